"""The row of a session, out of all that is known of it; most of it is kept while a session grows.

In: a session's id. Out: its row as the catalog is to hold it, with the texts it is found by. An
append changes a few fields of a row, and comes many times a second: the rest of it (names, parent,
command, meta file) is taken over from the row before, as long as neither the meta file nor any of
what it was made of is another. Only so many rows are kept, of those that grew last. What is not
kept is made of everything. Nothing here writes. One thread uses this.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from indexerd.agents import ADAPTERS
from indexerd.daemon.files import Files
from indexerd.meta.cache import MetaCache, MetaStat
from indexerd.meta.model import MetaFile
from indexerd.protocol.rows import (
    Facts,
    Written,
    fact_fields,
    facts_of,
    firm,
    gone_row,
    growing,
    row_of,
)
from indexerd.sessions.family import Parent, ParentIndex
from indexerd.sessions.info import SessionInfo
from indexerd.sources.stores import Store
from indexerd.store.catalog import Catalog

KEPT = 512  # rows; a few kilobytes each


class _Held(NamedTuple):
    """A row, and what it was made of."""

    firm: tuple[Any, ...]
    meta: MetaStat | None
    written: Written


class Rows:
    """Makes rows."""

    def __init__(
        self,
        files: Files,
        metas: MetaCache,
        catalog: Catalog,
        kin: ParentIndex,
        stores: Callable[[], list[Store]],
    ) -> None:
        self._files = files
        self._metas = metas
        self._catalog = catalog
        self._kin = kin
        self._stores = stores
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def drop(self) -> None:
        """What rows are made of may be another: make each anew."""
        self._held.clear()

    def of(self, session_id: str, *, grown: bool) -> Written | None:
        """A session's row; None where it has none. `grown`: of itself and its kin, that is all."""
        card = self._files.card(session_id)
        if card is None or not grown:
            self._held.pop(session_id, None)
            return self._made(session_id, None)
        held = self._fitting(session_id, card)
        if held is None:
            written = self._made(session_id, None)
        else:
            written = replace(held, row=held.row | growing(card))
        self._keep(session_id, card, written)
        return written

    def with_facts(self, session_id: str, facts: Facts) -> Written | None:
        """A session's row with what it did; None where it has none.

        Also where nothing is new in it: the transaction that it went into last may have failed.
        """
        card = self._files.card(session_id)
        if card is None:
            return None
        written = self._fitting(session_id, card)
        if written is None:
            old = self._catalog.get(session_id)
            return self._made(session_id, facts) if old else None
        written = replace(written, row=written.row | fact_fields(facts) | growing(card))
        self._keep(session_id, card, written)
        return written

    def _fitting(self, session_id: str, card: SessionInfo) -> Written | None:
        """What is held of a session's row, if most of it still holds."""
        held = self._held.get(session_id)
        if held is None or held.meta is not self._metas.get(session_id):
            return None
        return held.written if held.firm == firm(card) else None

    def _keep(self, session_id: str, card: SessionInfo, written: Written | None) -> None:
        made_of = firm(card)
        if written is None or made_of is None:
            return
        self._held[session_id] = _Held(made_of, self._metas.get(session_id), written)
        self._held.move_to_end(session_id)
        if len(self._held) > KEPT:
            self._held.popitem(last=False)

    def _made(self, session_id: str, facts: Facts | None) -> Written | None:
        """A row made of everything; `facts` are those of the row before, where none are given."""
        card, stat = self._files.card(session_id), self._metas.get(session_id)
        meta = self._metas.meta(session_id)
        old = self._catalog.get(session_id)
        title = stat.title if stat else None
        if card is None:
            return None if self._is_hidden(session_id, meta, old) else gone_row(old, meta, title)
        return row_of(
            card,
            meta,
            title,
            facts_of(old) if facts is None else facts,
            resume=self._resume,
            parent=self._parent(card, old.get("parentSessionId") if old else None),
        )

    def _resume(self, session_id: str, cwd: str, path: str) -> str:
        """The command that opens a session again; a directory that is not absolute is none."""
        store = next((one for one in self._stores() if one.takes(path)), None)
        if store is None:
            return ""
        there = cwd if cwd.startswith("/") else ""
        command = ADAPTERS[store.agent].resume_command
        return command(session_id, there, path, store.variables)

    def _is_hidden(
        self, session_id: str, meta: MetaFile | None, old: dict[str, Any] | None
    ) -> bool:
        """Whether the user excluded a session, of which perhaps only our own files are left."""
        if session_id in self._files.hidden or session_id in self._files.exclusions.forgotten:
            return True
        if old is not None and self._files.exclusions.match(old["sessionFile"], old["cwd"]):
            return True
        return meta is not None and self._files.exclusions.match(meta.session_file, meta.cwd)

    def _parent(self, card: SessionInfo, told: str | None) -> Parent:
        """Where a session came from; one that is gone stays the parent that was `told` before."""
        parent = self._kin.parent(card)
        if parent.session_id is None and card.parent:  # its file is gone; its row may be there
            for row in self._catalog.by_file(card.parent):
                return Parent(str(row["sessionId"]), card.parent)
        before = told if told != card.parent_id else None
        named = "" if card.parent else before or parent.session_id
        if named and self._files.card(named) is None and named not in self._files.hidden:
            left = self._catalog.get(named)
            if left is not None:
                return Parent(named, str(left["sessionFile"]))
        return parent

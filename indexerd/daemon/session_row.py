"""The row of a session: `Row` of interfaces.md, out of all that is known of it.

Made from the session file's info, a meta file and a sidecar, each of which may be missing. The
order of names is the user's title, the meta file's name, the agent's own, the first user message,
the file's stem (S0.46). Paths in a row are absolute, resolved against the cwd. Session and meta
files may have been written by any hand: no text of theirs goes into a row unbounded.

An append changes a few fields of a row, and comes many times a second: the rest of it is taken over
from the row before, as long as neither the meta file nor any of what it was made of is another.
Only so many rows are kept, of those that grew last. Nothing here writes. One thread uses `Rows`.
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from indexerd.agents import ADAPTERS
from indexerd.daemon.files import Files
from indexerd.meta.cache import MetaCache, MetaStat
from indexerd.meta.model import MetaFile
from indexerd.privacy.redact import redact, shown_paths, with_shown
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    FIRST_MESSAGE_MAX,
    NAME_MAX,
    PATH_MAX,
    PATHS_MAX,
    READ_MAX,
    SUMMARY_MAX,
    TAG_MAX,
    TAGS_SHOWN,
    WORD_MAX,
)
from indexerd.protocol.results import StoredRow
from indexerd.sessions.facts import TOKEN_KEYS, Facts, absolute, fact_fields, facts_of
from indexerd.sessions.family import Parent, ParentIndex
from indexerd.sessions.info import SessionInfo, state_of
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore
from indexerd.times import iso_ms, iso_of_ms

KEPT = 512  # rows; a few kilobytes each


class _Held(NamedTuple):
    """A row, and what it was made of."""

    firm: tuple[Any, ...]
    meta: MetaStat | None
    written: StoredRow


class Rows:
    """Makes rows."""

    def __init__(
        self,
        files: Files,
        metas: MetaCache,
        store: StateStore,
        kin: ParentIndex,
        stores: Callable[[], list[Store]],
    ) -> None:
        self._files = files
        self._metas = metas
        self._store = store
        self._kin = kin
        self._stores = stores
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def drop(self) -> None:
        """What rows are made of may be another: make each anew."""
        self._held.clear()

    def of(self, session_id: str, *, grown: bool) -> StoredRow | None:
        """A session's row; None where it has none. `grown`: of itself and its kin, that is all."""
        card = self._files.card(session_id)
        if card is None or not grown:
            self._held.pop(session_id, None)
            return self._made(session_id, None)
        held = self._fitting(session_id, card)
        if held is None:
            written = self._made(session_id, None)
        else:
            written = held._replace(row=held.row | growing(card))
        self._keep(session_id, card, written)
        return written

    def with_facts(self, session_id: str, facts: Facts) -> StoredRow | None:
        """A session's row with what it did; None where it has none.

        Also where nothing is new in it: the transaction that it went into last may have failed.
        """
        card = self._files.card(session_id)
        if card is None:
            return None
        written = self._fitting(session_id, card)
        if written is None:
            old = self._store.get(session_id)
            return self._made(session_id, facts) if old else None
        written = written._replace(row=written.row | fact_fields(facts) | growing(card))
        self._keep(session_id, card, written)
        return written

    def _fitting(self, session_id: str, card: SessionInfo) -> StoredRow | None:
        """What is held of a session's row, if most of it still holds."""
        held = self._held.get(session_id)
        if held is None or held.meta is not self._metas.get(session_id):
            return None
        return held.written if held.firm == firm(card) else None

    def _keep(self, session_id: str, card: SessionInfo, written: StoredRow | None) -> None:
        made_of = firm(card)
        if written is None or made_of is None:
            return
        self._held[session_id] = _Held(made_of, self._metas.get(session_id), written)
        self._held.move_to_end(session_id)
        if len(self._held) > KEPT:
            self._held.popitem(last=False)

    def _made(self, session_id: str, facts: Facts | None) -> StoredRow | None:
        """A row made of everything; `facts` are those of the row before, where none are given."""
        card, stat = self._files.card(session_id), self._metas.get(session_id)
        meta = self._metas.meta(session_id)
        old = self._store.get(session_id)
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
            for row in self._store.by_file(card.parent):
                return Parent(str(row["sessionId"]), card.parent)
        before = told if told != card.parent_id else None
        named = "" if card.parent else before or parent.session_id
        if named and self._files.card(named) is None and named not in self._files.hidden:
            left = self._store.get(named)
            if left is not None:
                return Parent(named, str(left["sessionFile"]))
        return parent


def row_of(
    card: SessionInfo,
    meta: MetaFile | None,
    title: str | None,
    facts: Facts | None,
    *,
    resume: Callable[[str, str, str], str],
    parent: tuple[str | None, str | None] = (None, None),
) -> StoredRow:
    """The row of a session whose file is there. `parent`: its id, and its file.

    `facts`: None until all of it was read, and then nothing is told of what it took.
    """
    stem = posixpath.basename(card.path).removesuffix(".zst").removesuffix(".jsonl")
    names = _names(title, meta, card.agent_title, card.first_user, stem)
    row = _base(names, meta, title) | {
        "sessionId": card.session_id,
        "agent": card.agent,
        "sessionFile": _shown(card.file),
        "cwd": _shown(card.cwd),
        "createdAt": iso_of_ms(iso_ms(card.created_at) or card.mtime_ms),
        "firstUserMessage": card.first_user,
        "archived": card.archived,
        "gone": False,
        "resume": resume(card.session_id, card.cwd, card.path),
        "version": card.version,
        "subagent": card.subagent,
    }
    row |= fact_fields(facts) | growing(card)
    if card.git_branch:
        row["gitBranch"] = _line(_unsecret(card.git_branch), WORD_MAX)
    if card.agent_title:
        row["agentTitle"] = _line(card.agent_title, FIRST_MESSAGE_MAX)
    parent_id, parent_file = parent
    if card.parent or parent_file:
        row["parentSessionFile"] = _absolute(card.parent or parent_file or "", card.cwd)
    if parent_id:
        row["parentSessionId"] = parent_id[:WORD_MAX]
    return _written(row, meta, [title, card.agent_title])


def growing(card: SessionInfo) -> dict[str, Any]:
    """The fields of a row that become others while a session grows, and no card but it changes."""
    found: dict[str, Any] = {
        "modifiedAt": iso_of_ms(card.modified_ms),
        "messageCount": card.messages,
        "userMessageCount": card.users,
        "newUserMessages": card.new_users,
        "state": state_of(card),
        "leafId": card.leaf_id and card.leaf_id[:WORD_MAX],
        "compactions": card.compactions,
    }
    if card.tokens:
        found["tokens"] = dict(zip(TOKEN_KEYS, card.tokens, strict=True))
    return found


def firm(card: SessionInfo) -> tuple[Any, ...] | None:
    """All else that a row takes from a card; None where its file's time is in it, too."""
    return _firm(card) if iso_ms(card.created_at) else None


_firm = attrgetter(
    *("agent", "path", "session_id", "cwd", "created_at", "parent", "version", "agent_title"),
    *("first_user", "parent_id", "subagent", "archived", "git_branch", "born_ms", "first"),
    *("boxed", "fork_of"),
)


def gone_row(
    old: dict[str, Any] | None, meta: MetaFile | None, title: str | None
) -> StoredRow | None:
    """The row of a session whose file is gone: what was known, or what its meta file says."""
    if old is None and meta is None:
        return None
    row = dict(old) if old else _from_meta(meta)
    for key in ("model", "updatedAt", "metaName"):
        row.pop(key, None)
    stem = posixpath.basename(row["sessionFile"]).removesuffix(".jsonl")
    names = _names(title, meta, row.get("agentTitle"), row.get("firstUserMessage", ""), stem)
    row |= _base(names, meta, title)
    row |= {"gone": True, "archived": True, "state": "archived", "resume": ""}
    return _written(row, meta, [title, row.get("agentTitle")])


def _from_meta(meta: MetaFile | None) -> dict[str, Any]:
    assert meta is not None  # noqa: S101 - gone_row looked
    return {
        "sessionId": meta.session_id,
        "agent": _line(meta.agent or "", WORD_MAX) or "pi",
        "sessionFile": _shown(meta.session_file),
        "cwd": _shown(meta.cwd),
        "createdAt": _line(meta.session_created_at or meta.created_at, WORD_MAX),
        "modifiedAt": _line(meta.session_modified_at or meta.updated_at, WORD_MAX),
        "messageCount": meta.message_count or 0,
        "userMessageCount": meta.user_message_count or 0,
        "newUserMessages": 0,
        "firstUserMessage": _line(_unsecret(meta.first_user_message or ""), FIRST_MESSAGE_MAX),
        "archived": False,
        "filesRead": _listed(meta.files_read, meta.cwd),
        "filesModified": _listed(meta.files_modified, meta.cwd),
        "toolsUsed": {
            _line(name, WORD_MAX): count
            for name, count in list((meta.tools_used or {}).items())[:PATHS_MAX]
        },
        "resume": "",
    }


def _base(names: tuple[str, str], meta: MetaFile | None, title: str | None) -> dict[str, Any]:
    name, source = names
    found: dict[str, Any] = {
        "name": name,
        "nameSource": source,
        "description": _text(_unsecret(meta.description), DESCRIPTION_MAX) if meta else "",
        "tags": _tags(meta.tags) if meta else [],
        "indexed": meta is not None,
    }
    if meta is not None:
        found |= {
            "model": _line(meta.model, NAME_MAX),
            "updatedAt": _line(meta.updated_at, WORD_MAX),
        }
        if title:
            found["metaName"] = _line(_unsecret(meta.name), NAME_MAX)
    return found


def _tags(tags: Iterable[str]) -> list[str]:
    plain = (_line(_unsecret(tag), TAG_MAX) for tag in islice(tags, TAGS_SHOWN))
    return [tag for tag in plain if tag]


def _names(
    title: str | None, meta: MetaFile | None, agent: str | None, first: str, stem: str
) -> tuple[str, str]:
    candidates = (
        (title, "user"),
        (_unsecret(meta.name) if meta else None, "meta"),
        (agent, "agent"),
        (first, "first-message"),
    )
    for text, source in candidates:
        name = _line(text or "", NAME_MAX)
        if name:
            return name, source
    return _line(_unsecret(_shown(stem)), NAME_MAX) or "session", "file"


def _written(row: dict[str, Any], meta: MetaFile | None, names: Iterable[str | None]) -> StoredRow:
    known = [row["name"], _line(_unsecret(meta.name), NAME_MAX) if meta else "", *names]
    aliases = dict.fromkeys(_line(name, NAME_MAX) for name in known if name)
    summary = _text(_unsecret(meta.summary), SUMMARY_MAX) if meta else ""
    return StoredRow(with_shown(row), summary, tuple(name for name in aliases if name))


@lru_cache(512)
def _unsecret(text: str) -> str:
    """A text of a meta file without secrets, before it is cut: another hand may have written it.

    A row is made anew whenever its session grows, and its meta file seldom changes.
    """
    return redact(text[:READ_MAX]).text


def _line(text: str, limit: int) -> str:
    return clean_line(text[:READ_MAX], limit)


def _text(text: str, limit: int) -> str:
    return clean_text(text[:READ_MAX], limit)


def _shown(path: str) -> str:
    """A path that JSON can hold: bytes that are no UTF-8 are escaped."""
    whole = path[:PATH_MAX].encode("utf-8", "surrogateescape")
    return whole.decode("utf-8", "backslashreplace")


def _listed(paths: Iterable[str] | None, cwd: str) -> list[str]:
    """Paths of a meta file, absolute and without secrets."""
    return list(shown_paths(tuple(_absolute(one, cwd) for one in islice(paths or (), PATHS_MAX))))


def _absolute(path: str, cwd: str) -> str:
    return _shown(absolute(path[:PATH_MAX], cwd[:PATH_MAX]))

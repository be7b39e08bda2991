"""Answers that need no running daemon: rows, references, search, from store and meta files.

The daemon and the command line without a daemon both use these, so their answers are the same.
Nothing here scans or parses a session file, and nothing writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from indexerd.errors import NotFoundError
from indexerd.paths import user_name
from indexerd.protocol import params
from indexerd.protocol.params import RefParams
from indexerd.references.resolve import NameIndex, Names, Scope
from indexerd.search.index import TextIndex
from indexerd.search.ranking import search
from indexerd.sessions.family import Link, Place, by_age, depth_first, kept, member, relation

if TYPE_CHECKING:
    from indexerd.meta.sidecar import Held  # pydantic, only where a file is read

ANCESTORS_MAX = 8  # generations that sets are looked for in
MEMBERS_MAX = 500  # sessions of a family

Row = dict[str, Any]


class Answers:
    """Typed question in, the result of docs/PROTOCOL.md out."""

    def __init__(
        self,
        texts: TextIndex,
        clock: Callable[[], float],
        hidden: Callable[[Row], bool] | None = None,
        *,
        home: Callable[[str], str | None] = lambda _: None,
        behind: Callable[[], int] = int,
    ) -> None:
        """`hidden(row)` says what is not to be shown: without a daemon, the exclusions.

        `home(session_id)`: the directory of its meta file, if there is a place for it. `behind()`:
        how many sessions have text that cannot be found yet.
        """
        self.home = home
        self._behind = behind
        self._texts = texts
        self._store = texts.store
        self._hidden = hidden or (lambda _: False)
        self._clock = clock
        self.index = NameIndex(texts.store, lambda one: bool(hidden) and self._row(one) is None)

    @property
    def names(self) -> Names:
        """Every session's names, in memory; built when first asked for."""
        return self.index.now()

    def _row(self, session_id: str) -> Row | None:
        row = self._store.get(session_id)
        return None if row is None or self._hidden(row) else row

    def row(self, ref: str, *, cwd: str | None = None, fuzzy: bool = True) -> Row:
        """The row that a reference means; the store knows a new session before its name.

        What changes something is not for a name nearly given (`fuzzy`): that is an AmbiguousError
        that offers the session.
        """
        scope: Scope = "project" if cwd else "all"
        row = self._row(ref)
        return row or self.by_id(self.names.resolve(ref, cwd=cwd, scope=scope, fuzzy=fuzzy)[0])

    def by_id(self, session_id: str) -> Row:
        row = self._row(session_id)
        if row is None:
            raise NotFoundError(f"no session {session_id}")
        return row

    def resolve(self, asked: params.Resolve) -> Row:
        """Which session a reference means, and how that was found."""
        scope = asked.scope or "project"
        match = self.names.resolve(asked.ref, cwd=asked.cwd, scope=scope, exclude=asked.exclude)
        name = self.by_id(match.session_id)["name"]
        found: Row = {"sessionId": match.session_id, "name": name, "how": match.how}
        return found if match.score is None else found | {"score": round(match.score, 3)}

    def complete(self, asked: params.Complete) -> Row:
        where: dict[str, Any] = {"cwd": asked.cwd, "exclude": asked.exclude, "limit": asked.limit}
        return {"items": self.names.complete(asked.prefix or "", **where, now=self._clock())}

    def list(self, asked: params.List) -> Row:
        texts, cursor = self._store.page(**msgspec.structs.asdict(asked))
        rows = [row for row in map(json.loads, texts) if not self._hidden(row)]
        return {"sessions": rows} | ({"nextCursor": cursor} if cursor else {})

    def search(self, asked: params.Search) -> Row:
        """Hits, best first; with `rows`, what is known of their sessions, by id."""
        where: dict[str, Any] = {"agent": asked.agent, "cwd": asked.cwd, "since": asked.since}
        result = search(self._texts, asked.query, **where, limit=asked.limit)
        rows = self._shown(one["sessionId"] for one in result.hits)
        found: Row = {"hits": [one for one in result.hits if one["sessionId"] in rows]}
        found |= {"rows": rows} if asked.rows else {}
        warnings = [*result.warnings]
        if behind := self._behind():
            warnings.append(f"the text of {behind} sessions is not searchable yet")
        return found | ({"warnings": warnings} if warnings else {})

    def get(self, asked: RefParams) -> Row:
        """All that is stored of one session."""
        from indexerd.meta.sidecar import read_all  # noqa: PLC0415 - pydantic

        row = self.row(asked.ref, cwd=asked.cwd)
        found: Row = {"session": row, "meta": None, "context": {}, "labels": {}}
        found["digest"] = {"segments": []}
        if self.home(row["sessionId"]) is None:
            return found
        return found | read_all(row["sessionId"], self.sidecars(row))

    def noted(self, row: Row) -> Held:
        """What the user and the agent noted of a session; for any thread."""
        from indexerd.meta.sidecar import read_sidecar  # noqa: PLC0415 - pydantic

        return read_sidecar(self.sidecars(row))

    def sidecars(self, row: Row) -> Sequence[Path]:
        """The paths of a session's sidecar, and of those of the sessions that it was forked from.

        The nearest first. NotFoundError where there is no place for its own.
        """
        home = self.home(row["sessionId"])
        if home is None:
            raise NotFoundError("there is no place for this session's sidecar")
        paths = [Path(home) / user_name(row["sessionId"])]
        with suppress(NotFoundError):
            for _ in range(ANCESTORS_MAX):
                if not is_fork(row):
                    break
                row = self.by_id(row["parentSessionId"])
                if home := self.home(row["sessionId"]):
                    paths.append(Path(home) / user_name(row["sessionId"]))
        return paths

    # Who came from whom, as far as it is to be shown. A session that is hidden, or that nobody has
    # met, is no member; whatever names it as its parent begins a family: all that came from it
    # together, below `missingParent`.

    def forks(self, session_id: str) -> Sequence[Row]:
        below = self._store.children([session_id])
        return [*self._shown(one.session_id for one in below if not one.subagent).values()]

    def family_of(self, row: Row) -> Row:
        """The sessions that one came from, and all that came from the same; for any thread."""
        own = row["sessionId"]
        roots, missing = self._roots(own)
        places = depth_first(roots, self._below(roots))
        members = self._members(kept(places, own, MEMBERS_MAX), missing=bool(missing))
        found: Row = {"sessionId": own, "members": members, "more": len(places) - len(members)}
        return found | ({"missingParent": missing} if missing else {})

    def _shown(self, session_ids: Iterable[str]) -> dict[str, Row]:
        rows = self._store.get_many(session_ids)
        return {key: row for key, row in rows.items() if not self._hidden(row)}

    def _children(self, parents: Iterable[str]) -> Sequence[Link]:
        links = self._store.children(parents)
        shown = self._shown(one.session_id for one in links)
        return [one for one in links if one.session_id in shown]

    def _roots(self, own: str) -> tuple[Sequence[Link], str]:
        """Climb as far as sessions are known; the parent that these name, if nobody knows it."""
        above: dict[str, Link] = {}
        link = self._link(own)
        if link is None:
            raise NotFoundError(f"no session {own}")
        while link.parent:
            above[link.session_id] = link
            if link.parent in above:  # a circle
                ring = [*above.values()][[*above].index(link.parent) :]
                return by_age(ring)[:1], ""
            parent = self._link(link.parent)
            if parent is None:
                roots = {one.session_id: one for one in [link, *self._children([link.parent])]}
                return [*roots.values()], link.parent
            link = parent
        return [link], ""

    def _link(self, session_id: str) -> Link | None:
        return next(iter(self._store.links([session_id])), None) if self._row(session_id) else None

    def _below(self, roots: Iterable[Link]) -> Iterable[Link]:
        """All that came from these, a generation at a time."""
        level = found = {one.session_id: one for one in roots}
        while level:
            children = self._children([*level])
            level = {one.session_id: one for one in children if one.session_id not in found}
            found = found | level
        return found.values()

    def _members(self, places: Sequence[Place], *, missing: bool) -> Sequence[Row]:
        """The rows of these; `missing`: the roots name a parent that is not known."""
        ids = dict.fromkeys(one for place in places for one in (place.session_id, place.parent))
        rows = self._store.get_many(one for one in ids if one)
        found = []
        for own, depth, parent in places:
            if own in rows:  # it may be forgotten meanwhile
                named = missing or depth > 0
                on = self._texts.carries_on(parent, own) if parent else None
                how = relation(rows[own], rows.get(parent), named=named, carries_on=on)
                found.append(member(rows[own], depth, how))
        return found


def is_fork(row: Mapping[str, Any]) -> bool:
    """Whether a session goes on from another one; a sub-agent does not."""
    return bool(row.get("parentSessionId")) and not row.get("subagent")

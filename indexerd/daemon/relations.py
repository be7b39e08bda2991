"""`family`: the sessions that one came from, and those that came from it or from its ancestors.

In: the store, a row, and what says which rows are not to be shown. Out: the answer of the
socket's method, and the ids that an export names. The cost is that of the family, never of the
store; nothing is written, and no session file is read.

A session that is hidden, or that nobody has met, is no member. Whatever names it as its parent
begins a family: all that came from it together, below `missingParent`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from indexerd.errors import NotFoundError
from indexerd.search.index import TextIndex
from indexerd.sessions.family import Link, Place, by_age, depth_first, kept, member, relation

MEMBERS_MAX = 500
WALK_MAX = 50_000  # sessions that are walked over; of a larger family `more` says too little
KIN_MAX = 200  # ids of each kind

Row = dict[str, Any]
Hidden = Callable[[Row], bool]


class Kindred:
    """Who came from whom, as far as it is to be shown."""

    def __init__(self, texts: TextIndex, hidden: Hidden | None) -> None:
        self._texts = texts
        self._store = texts.store
        self._hidden = hidden

    def family(self, row: Mapping[str, Any]) -> Row:
        """The answer of `family`."""
        own = row["sessionId"]
        top = self._top(own)
        places = depth_first(top.roots, self._below(top.roots))
        members = self._members(kept(places, own, MEMBERS_MAX), missing=bool(top.missing))
        found: Row = {"sessionId": own, "members": members, "more": len(places) - len(members)}
        return found | ({"missingParent": top.missing} if top.missing else {})

    def kin(self, row: Mapping[str, Any]) -> Row:
        """The ids of a session's parent, forks and sub-agents, oldest first; absent where none."""
        below = by_age(self._shown(self._store.children([row["sessionId"]])))
        forks = [one.session_id for one in below if not one.subagent]
        agents = [one.session_id for one in below if one.subagent]
        parent = row.get("parentSessionId")
        named = {"forks": forks[:KIN_MAX], "subagents": agents[:KIN_MAX], "parent": parent}
        return {key: one for key, one in named.items() if one}

    def _shown(self, links: list[Link]) -> list[Link]:
        if self._hidden is None:
            return links
        rows = self._store.get_many(one.session_id for one in links)
        shown = {key for key, row in rows.items() if not self._hidden(row)}
        return [one for one in links if one.session_id in shown]

    def _top(self, own: str) -> _Top:
        """Climb as far as sessions are known."""
        above: dict[str, Link] = {}
        link = self._known(own)
        if link is None:
            raise NotFoundError(f"no session {own}")
        while True:
            above[link.session_id] = link
            if not link.parent or len(above) >= WALK_MAX:
                return _Top([link])
            if link.parent in above:  # a circle
                ring = list(above.values())[[*above].index(link.parent) :]
                return _Top(by_age(ring)[:1])
            parent = self._known(link.parent)
            if parent is None:
                beside = self._shown(self._store.children([link.parent]))
                roots = {one.session_id: one for one in [link, *beside]}
                return _Top(list(roots.values()), link.parent)
            link = parent

    def _known(self, session_id: str) -> Link | None:
        return next(iter(self._shown(self._store.links([session_id]))), None)

    def _below(self, roots: Iterable[Link]) -> Iterable[Link]:
        """All that came from these, a generation at a time."""
        found = {one.session_id: one for one in roots}
        level = list(found)
        while level and len(found) < WALK_MAX:
            children = self._shown(self._store.children(level))
            new = {one.session_id: one for one in children if one.session_id not in found}
            found |= new
            level = list(new)
        return found.values()

    def _members(self, places: Sequence[Place], *, missing: bool) -> list[Row]:
        """What is told of these; `missing`: the roots name a parent that is not known."""
        ids = dict.fromkeys(one for place in places for one in (place.session_id, place.parent))
        rows = self._store.get_many(one for one in ids if one)
        pairs = [(one.parent, one.session_id) for one in places if one.parent]
        ends = self._texts.carry_on(pairs)
        found = []
        for own, depth, parent in places:
            if own in rows:  # it may be forgotten meanwhile
                named = missing if depth == 0 else True
                on = ends.get(own)
                how = relation(rows[own], rows.get(parent), named=named, carries_on=on)
                found.append(member(rows[own], depth, how))
        return found


class _Top(NamedTuple):
    """Where a family begins."""

    roots: list[Link]
    missing: str = ""  # the parent that they name, if nobody knows it

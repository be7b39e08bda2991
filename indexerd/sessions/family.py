"""Order the sessions of a family, and decide how each came from its parent.

What agents write of parents is not ours: it may run in a circle, or name what is not there. So
every session is met once, and a circle begins with the oldest session in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from indexerd.sessions.info import SessionInfo
from indexerd.times import iso_ms

Relation = Literal["root", "fork", "resumed", "subagent"]
Row = Mapping[str, Any]
_FIELDS = (
    *("sessionId", "name", "agent", "cwd", "state", "archived", "gone", "createdAt", "modifiedAt"),
    *("userMessageCount", "parentSessionId"),
)
_COPIED = "claude"  # the agent whose forks say nothing, and copy all that their origin said
_TITLED = "opencode"  # the agent whose forks say in their title what they came from
_Key = str | tuple[str, str]


class Link(NamedTuple):
    """Which session another came from."""

    session_id: str
    parent: str  # its id, or its file where that is all that is known; empty: none
    created: int  # ms since the epoch
    subagent: bool


class Place(NamedTuple):
    """A session's place in its family; `parent` is empty where that is no member of it."""

    session_id: str
    depth: int
    parent: str


def by_age(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda one: (one.created, one.session_id))


def depth_first(roots: Iterable[Link], below: Iterable[Link]) -> list[Place]:
    """Place every session that descends from these roots, each once."""
    children: dict[str, list[Link]] = {}
    for one in by_age(below):
        children.setdefault(one.parent, []).append(one)
    waiting = [Place(one.session_id, 0, "") for one in reversed(by_age(roots))]
    found: dict[str, Place] = {}
    while waiting:
        place = waiting.pop()
        if place.session_id not in found:
            found[place.session_id] = place
            more = reversed(children.get(place.session_id, ()))
            waiting += [Place(one.session_id, place.depth + 1, place.session_id) for one in more]
    return list(found.values())


def kept(places: Sequence[Place], own: str, limit: int) -> list[Place]:
    """Keep at most `limit` places: first those from a session up, then from the top down."""
    above = {one.session_id: one.parent for one in places}
    way = []
    while own in above:
        way.append(own)
        own = above[own]
    chosen = set([*dict.fromkeys([*way, *above])][:limit])
    return [one for one in places if one.session_id in chosen]


def relation(row: Row, above: Row | None, *, named: bool, carries_on: bool | None) -> Relation:
    """Decide how a session came to be. `named`: it says that it came from another session.

    `carries_on`: its messages continue where the parent's end; None where messages cannot tell,
    as when it has none of them. Then times do: it was resumed if the parent ended before it began.
    """
    if not named:
        return "root"
    if row.get("subagent"):
        return "subagent"
    if carries_on is None and above is not None:
        carries_on = 0 < iso_ms(above["modifiedAt"]) <= iso_ms(row["createdAt"])
    return "resumed" if carries_on else "fork"


def member(row: Row, depth: int, how: Relation) -> dict[str, Any]:
    fields = {key: row.get(key) for key in _FIELDS}
    return fields | {"subagent": bool(row.get("subagent")), "relation": how, "depth": depth}


class Parent(NamedTuple):
    """The session that another came from; either field may be all that is known."""

    session_id: str | None = None
    file: str | None = None


class ParentIndex:
    """Finds parents and children by info, in one thread."""

    def __init__(self) -> None:
        self._infos: dict[str, SessionInfo] = {}
        self._files: dict[str, str] = {}  # a path, and its last part -> session id
        # A parent's id or file -> its children; a directory and a first entry -> its copies.
        self._groups: dict[_Key, dict[str, None]] = {}

    def put(self, session_id: str, info: SessionInfo | None) -> set[str]:
        """Replace or (None) drop a session; returns those whose relations may change by it."""
        old, others = self._infos.get(session_id), set[str]()
        if old is not None and info is not None and _relations(old) == _relations(info):
            self._infos[session_id] = info
            return others
        for one in filter(None, (old, info)):
            keys: list[_Key] = [_leaf(one.path), session_id, *_copies(one)]
            for key in keys:
                others.update(self._groups.get(key, ()))
        if old is not None:
            del self._infos[session_id]
            for path in (old.path, _leaf(old.path)):
                if self._files.get(path) == session_id:
                    del self._files[path]
            for key in _keys(old):
                self._groups[key].pop(session_id, None)
                if not self._groups[key]:
                    del self._groups[key]
        if info is not None:
            self._infos[session_id] = info
            self._files[info.path] = self._files[_leaf(info.path)] = session_id
            for key in _keys(info):
                self._groups.setdefault(key, {})[session_id] = None
        return others - {session_id}

    def parent(self, info: SessionInfo) -> Parent:
        older = self._older(info)
        if older and info.agent == _COPIED:
            return Parent(older[0].session_id, older[0].file)
        if info.parent_id:
            known = self._infos.get(info.parent_id)
            return Parent(info.parent_id, known.file if known else None)
        if info.parent:
            owner = self._files.get(info.parent) or self._files.get(_leaf(info.parent))
            return Parent(owner, info.parent)
        # A user can rename a fork or its origin. Then the only older copy is the origin, unless
        # that is a fork itself, whose sibling this one may be.
        named = [one for one in older if info.fork_of and one.agent_title == info.fork_of]
        found = named or [one for one in older if len(older) == 1 and not one.fork_of]
        return Parent(found[0].session_id, found[0].file) if len(found) == 1 else Parent()

    def _older(self, info: SessionInfo) -> list[SessionInfo]:
        """Older sessions with the same history, oldest first."""
        copies = [self._infos[one] for key in _copies(info) for one in self._groups.get(key, ())]
        return sorted((one for one in copies if _age(one) < _age(info)), key=_age)


def _relations(info: SessionInfo) -> tuple[object, ...]:
    title = info.agent_title if info.agent == _TITLED else None
    copied = (info.first, info.born_ms, info.fork_of, title)
    return (info.path, info.parent_id, info.parent, *copied)


def _keys(info: SessionInfo) -> Iterator[_Key]:
    yield from filter(None, {info.parent_id, _leaf(info.parent or ""), *_copies(info)})


def _copies(info: SessionInfo) -> list[tuple[str, str]]:
    return [(info.path.rpartition("/")[0], info.first)] if info.first else []


def _leaf(path: str) -> str:
    """A file's name: pi's holds time and id, and survives a directory that was moved."""
    return path.rpartition("/")[2]


def _age(info: SessionInfo) -> tuple[int, str]:
    return info.born_ms, info.path

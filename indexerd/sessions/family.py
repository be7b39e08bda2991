"""Order the sessions of a family.

The parents that agents record may form a cycle, or be missing. So every session is visited once,
and a cycle begins with its oldest session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from indexerd.sessions.info import SessionInfo

Row = Mapping[str, Any]
_FIELDS = (
    *("sessionId", "name", "agent", "cwd", "state", "archived", "gone", "createdAt", "modifiedAt"),
    *("userMessageCount", "parentSessionId"),
)
_COPIED = "claude"  # the agent whose forks copy the history and do not name their origin
_TITLED = "opencode"  # the agent whose forks name their origin by their title
_Key = str | tuple[str, str]


class Link(NamedTuple):
    """A session and its parent."""

    session_id: str
    parent: str  # its id, or its file if only that is known; empty: none
    created: int  # ms since the epoch
    subagent: bool


def by_age(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (link.created, link.session_id))


def depth_first(roots: Iterable[Link], below: Iterable[Link]) -> dict[str, int]:
    """Map every descendant of these roots to its depth, in order."""
    children: dict[str, list[Link]] = {}
    for link in by_age(below):
        children.setdefault(link.parent, []).append(link)
    waiting = [(root.session_id, 0) for root in reversed(by_age(roots))]
    depths: dict[str, int] = {}
    while waiting:
        session_id, depth = waiting.pop()
        if session_id not in depths:
            depths[session_id] = depth
            more = reversed(children.get(session_id, ()))
            waiting += [(link.session_id, depth + 1) for link in more]
    return depths


def member(row: Row, depth: int, *, child: bool) -> dict[str, Any]:
    """Describe a member; `child`: it has a parent, whether that is known or not."""
    subagent = bool(row.get("subagent"))
    relation = "root" if not child else "subagent" if subagent else "fork"
    fields = {key: row.get(key) for key in _FIELDS}
    return fields | {"subagent": subagent, "relation": relation, "depth": depth}


class Parent(NamedTuple):
    """A session's parent; either field may be unknown."""

    session_id: str | None = None
    file: str | None = None


class ParentIndex:
    """Finds parents and children by their infos, in one thread."""

    def __init__(self) -> None:
        self._infos: dict[str, SessionInfo] = {}
        self._files: dict[str, str] = {}  # path, and also file name -> session id
        # Parent's id or file name -> its children; (directory, first entry) -> copies of a history.
        self._groups: dict[_Key, dict[str, None]] = {}

    def put(self, session_id: str, info: SessionInfo | None) -> set[str]:
        """Replace or (None) drop a session; return others whose relations this may change."""
        old, others = self._infos.get(session_id), set[str]()
        if old is not None and info is not None and _relations(old) == _relations(info):
            self._infos[session_id] = info
            return others
        for known in filter(None, (old, info)):
            keys: list[_Key] = [_leaf(known.path), session_id, *_copies(known)]
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
        # After a user renamed a fork or its origin, the only older copy is the origin, unless that
        # copy is a fork itself and so may be a sibling.
        named = [other for other in older if info.fork_of and other.agent_title == info.fork_of]
        origins = named or [other for other in older if len(older) == 1 and not other.fork_of]
        return Parent(origins[0].session_id, origins[0].file) if len(origins) == 1 else Parent()

    def _older(self, info: SessionInfo) -> list[SessionInfo]:
        """List older sessions with the same history, oldest first."""
        ids = (session_id for key in _copies(info) for session_id in self._groups.get(key, ()))
        copies = map(self._infos.__getitem__, ids)
        return sorted((other for other in copies if _age(other) < _age(info)), key=_age)


def _relations(info: SessionInfo) -> tuple[object, ...]:
    title = info.agent_title if info.agent == _TITLED else None
    copied = (info.first, info.born_ms, info.fork_of, title)
    return (info.path, info.parent_id, info.parent, *copied)


def _keys(info: SessionInfo) -> Iterator[_Key]:
    yield from filter(None, {info.parent_id, _leaf(info.parent or ""), *_copies(info)})


def _copies(info: SessionInfo) -> list[tuple[str, str]]:
    return [(info.path.rpartition("/")[0], info.first)] if info.first else []


def _leaf(path: str) -> str:
    """Return a file's name: pi's has a time and an id, and survives a move of the directory."""
    return path.rpartition("/")[2]


def _age(info: SessionInfo) -> tuple[int, str]:
    return info.born_ms, info.path

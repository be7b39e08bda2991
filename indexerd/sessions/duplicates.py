"""Which of several files stands for a session.

One session id can be claimed by several files. One of them owns it: the one of the highest rank,
where an agent has such; then the one with the newest message, and the smaller path where that is
a tie. Among equals the owner stays until another is ahead by a minute, so that two who write to
two copies in turn do not make it flip to and fro.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from indexerd.sessions.info import SessionInfo

MARGIN_MS = 60_000


class Claimant(Protocol):
    """A file, as far as owning a session goes."""

    path: str
    info: SessionInfo | None
    rank: tuple[Any, ...]


_C = TypeVar("_C", bound=Claimant)


class DuplicateResolver(Generic[_C]):
    """Session ids, the files that claim them, and the one that counts."""

    def __init__(self) -> None:
        self._owners: dict[str, _C] = {}
        self._claims: dict[str, dict[str, _C]] = {}  # where there are several
        self.margin_ms = 0  # while all is met for the first time the newest counts

    def get(self, session_id: str) -> _C | None:
        """The file that stands for a session."""
        return self._owners.get(session_id)

    def infos(self) -> Iterator[SessionInfo]:
        """The info of every session."""
        files = list(self._owners.values())  # another thread may ask while this one reads
        return (file.info for file in files if file.info)

    def files(self, session_id: str) -> list[_C]:
        """Every file that claims a session, the owner first."""
        owner, claims = self._owners.get(session_id), self._claims.get(session_id, {})
        if owner is None:
            return []
        return [owner, *(one for one in list(claims.values()) if one is not owner)]

    def twins(self) -> dict[str, list[str]]:
        """Session ids claimed by several files of one rank, the owner first."""
        found = {}
        for session_id in list(self._claims):
            files = self.files(session_id)
            equals = [one.path for one in files if one.rank == files[0].rank]
            if len(equals) > 1:
                found[session_id] = [equals[0], *sorted(equals[1:])]
        return found

    def claim(self, file: _C) -> None:
        """Let a file stand for its session, if it is the best one; or another, if it is no more."""
        if file.info is None:
            return
        session_id = file.info.session_id
        owner, claims = self._owners.get(session_id), self._claims.get(session_id)
        if claims is None:
            if owner is None or owner is file:
                self._owners[session_id] = file
                return
            claims = self._claims[session_id] = {owner.path: owner}
        claims[file.path] = file
        best = max(claims.values(), key=_worth)
        if owner is None or self._ahead(best, owner):
            self._owners[session_id] = best

    def _ahead(self, file: _C, owner: _C) -> bool:
        """Whether the best file is so much better than the owner that it takes over."""
        (rank, newest, _), (owners_rank, owners, _) = _worth(file), _worth(owner)
        if rank != owners_rank:
            return rank > owners_rank
        return newest - owners > self.margin_ms or (newest == owners and file.path < owner.path)

    def disown(self, file: _C, session_id: str) -> None:
        """A file stands for a session no more; another may."""
        claims = self._claims.get(session_id, {})
        claims.pop(file.path, None)
        if len(claims) < 2:  # noqa: PLR2004 - one file is no twin
            self._claims.pop(session_id, None)
        if self._owners.get(session_id) is file:
            del self._owners[session_id]
            for path in sorted(claims):
                self.claim(claims[path])


def _worth(file: Claimant) -> tuple[tuple[Any, ...], int, list[int]]:
    """What decides between files: rank, newest message, smaller path."""
    activity = file.info.activity_ms if file.info else 0
    return file.rank, activity, [*(-ord(char) for char in file.path), 1]

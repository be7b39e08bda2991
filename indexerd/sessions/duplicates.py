"""Which of several files stands for a session that they all claim.

The one of the highest rank, where an agent has such; then the one with the newest message, and the
smaller path where that is a tie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from indexerd.sessions.info import SessionInfo


class Claimant(Protocol):
    """A file, as far as owning a session goes."""

    path: str
    info: SessionInfo | None
    rank: tuple[Any, ...]


_C = TypeVar("_C", bound=Claimant)


class DuplicateResolver(Generic[_C]):
    """Session ids, and the files that claim each, the owner first."""

    def __init__(self) -> None:
        self._claims: dict[str, list[_C]] = {}

    def get(self, session_id: str) -> _C | None:
        return next(iter(self._claims.get(session_id, ())), None)

    def infos(self) -> Iterator[SessionInfo]:
        owners = map(self.get, list(self._claims))  # another thread may ask while this one reads
        return (file.info for file in owners if file is not None and file.info)

    def files(self, session_id: str) -> list[_C]:
        """Every file that claims a session, the owner first."""
        return list(self._claims.get(session_id, ()))

    def twins(self) -> dict[str, list[str]]:
        """Session ids claimed by several files of one rank, the owner first."""
        found = {}
        for session_id, files in list(self._claims.items()):
            if len(files) > 1 and files[1].rank == files[0].rank:
                found[session_id] = [one.path for one in files if one.rank == files[0].rank]
        return found

    def claim(self, file: _C) -> None:
        """Let a file stand for its session, if it is the best one; or another, if it is no more."""
        if file.info is not None:
            files = self._claims.get(file.info.session_id, [])
            if file not in files:
                files = [*files, file]
            # The old list stays as it is for whoever looks at it now.
            best_first = sorted(files, key=_worth, reverse=True) if len(files) > 1 else files
            self._claims[file.info.session_id] = best_first

    def disown(self, file: _C, session_id: str) -> None:
        """A file stands for a session no more; another may."""
        files = [one for one in self._claims.pop(session_id, ()) if one is not file]
        if files:
            self._claims[session_id] = files


def _worth(file: Claimant) -> tuple[tuple[Any, ...], int, list[int]]:
    activity = file.info.activity_ms if file.info else 0
    return file.rank, activity, [*(-ord(char) for char in file.path), 1]

"""Choose which of several files stands for a session that they all claim.

The one of the highest rank, where an agent has ranks; then the one with the newest message; then
the smaller path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from indexerd.sessions.info import SessionInfo


class Claimant(Protocol):
    """A file that may stand for a session."""

    path: str
    info: SessionInfo | None
    rank: tuple[Any, ...]


_C = TypeVar("_C", bound=Claimant)


class DuplicateResolver(Generic[_C]):
    """The files that claim each session id, the owner first.

    Another thread may look while this one changes it: a list is replaced, never changed.
    """

    def __init__(self) -> None:
        self._claims: dict[str, list[_C]] = {}

    def files(self, session_id: str) -> list[_C]:
        return self._claims.get(session_id, [])

    def get(self, session_id: str) -> _C | None:
        return next(iter(self.files(session_id)), None)

    def infos(self) -> Iterator[SessionInfo]:
        owners = map(self.get, list(self._claims))
        return (file.info for file in owners if file is not None and file.info)

    def claim(self, file: _C) -> None:
        """Add a file to those of its session, or sort them again after it changed."""
        if file.info is not None:
            files = [one for one in self.files(file.info.session_id) if one is not file]
            by_path = sorted([*files, file], key=lambda one: one.path)
            self._claims[file.info.session_id] = sorted(by_path, key=_worth, reverse=True)

    def disown(self, file: _C, session_id: str) -> None:
        files = [one for one in self._claims.pop(session_id, ()) if one is not file]
        if files:
            self._claims[session_id] = files


def _worth(file: Claimant) -> tuple[tuple[Any, ...], int]:
    return file.rank, file.info.activity_ms if file.info else 0

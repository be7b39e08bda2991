"""Purged sessions, which are not read again until the purge is undone."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from indexerd.errors import AccessError, WriteError
from indexerd.models.journal import Journal
from indexerd.times import iso

NAME = "forgotten.jsonl"
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Forgotten(Collection[str]):
    """The ids of forgotten sessions, kept in a file that is only ever added to.

    What was forgotten stays so over a crash. Of several lines about one session the newest counts.
    Where the file cannot be read (AccessError) nothing else is, either: a session must not come
    back because of that. `in` is for any thread.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / NAME
        self._journal = Journal(self._path)
        self._agents: dict[str, str] = {}
        try:
            for row in self._journal.rows():
                self._take(row)
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._agents

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._agents))

    def __len__(self) -> int:
        return len(self._agents)

    def agent(self, session_id: str) -> str:
        """Whose session it was."""
        return self._agents.get(session_id, "")

    def add(self, session_id: str, agent: str, *, at: float, by: str, undone: bool = False) -> None:
        """Forget a session from now on, or no more; `at` is in seconds since the epoch."""
        row: dict[str, Any] = {"sessionId": session_id, "agent": agent, "at": iso(at), "by": by}
        row |= {"undone": True} if undone else {}
        try:
            self._journal.append(row)
        except OSError as bad:
            error = AccessError if bad.errno in _DENIED else WriteError
            message = f"{self._path} could not be written: {bad.strerror}"
            raise error(message, upstream=bad.strerror) from None
        self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        session_id, agent = row.get("sessionId"), row.get("agent")
        if not isinstance(session_id, str):
            return
        if row.get("undone") is True:
            self._agents.pop(session_id, None)
        else:
            self._agents[session_id] = agent if isinstance(agent, str) else ""

"""Purged sessions, which are not read again until the purge is undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexerd.errors import AccessError, WriteError
from indexerd.models.journal import Journal
from indexerd.times import iso

NAME = "forgotten.jsonl"


class Forgotten:
    """The purged sessions and the agents they were of, kept in a file that is only appended to."""

    def __init__(self, state_dir: Path) -> None:
        """AccessError where the file cannot be read: a session must not come back by that."""
        self.agents: dict[str, str] = {}  # by session; for any thread
        self._path = state_dir / NAME
        self._journal = Journal(self._path)
        try:
            for row in self._journal.rows():
                self._take(row)
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None

    def add(self, session_id: str, agent: str, *, at: float, by: str, undone: bool = False) -> None:
        """Forget a session from now on, or no more; `at` is in seconds since the epoch."""
        row: dict[str, Any] = {"sessionId": session_id, "agent": agent, "at": iso(at), "by": by}
        row |= {"undone": True} if undone else {}
        try:
            self._journal.append(row)
        except OSError as bad:
            message = f"{self._path} could not be written: {bad.strerror}"
            raise WriteError(message, upstream=bad.strerror) from None
        self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        session_id, agent = row.get("sessionId"), row.get("agent")
        if row.get("undone") is True:
            self.agents.pop(str(session_id), None)
        elif isinstance(session_id, str):
            self.agents[session_id] = agent if isinstance(agent, str) else ""

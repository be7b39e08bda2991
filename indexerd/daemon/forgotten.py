"""Purged sessions, which are not read again until the purge is undone."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.disk import append_line
from indexerd.errors import AccessError, WriteError
from indexerd.times import iso


class Forgotten:
    """The purged sessions and their agents, kept in an append-only file."""

    def __init__(self, state_dir: Path) -> None:
        """AccessError if the file cannot be read: no purged session may come back."""
        self.agents: dict[str, str] = {}  # by session id; any thread may read it
        self._path = state_dir / "forgotten.jsonl"
        try:
            for line in self._path.read_bytes().split(b"\n"):
                with suppress(ValueError, AttributeError):  # torn by a crash
                    self._apply(json.loads(line))
        except FileNotFoundError:
            pass
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None

    def add(self, session_id: str, agent: str, *, at: float, by: str, undone: bool = False) -> None:
        """Forget a session from now on, or undo that; `at` is in seconds since the epoch."""
        row: dict[str, Any] = {"sessionId": session_id, "agent": agent, "at": iso(at), "by": by}
        row |= {"undone": True} if undone else {}
        try:
            append_line(self._path, json.dumps(row).encode(), durable=True)
        except OSError as bad:
            raise WriteError(f"cannot write {self._path}: {bad.strerror}") from None
        self._apply(row)

    def _apply(self, row: dict[str, Any]) -> None:
        session_id = str(row.get("sessionId"))
        if row.get("undone") is True:
            self.agents.pop(session_id, None)
        else:
            self.agents[session_id] = str(row.get("agent") or "")

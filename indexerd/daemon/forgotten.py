"""The list of purged sessions, which are never read again."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from indexerd.disk import append_line
from indexerd.errors import AccessError, WriteError
from indexerd.times import iso


class Forgotten:
    """The purged sessions and their agents, kept in an append-only file."""

    def __init__(self, state_dir: Path) -> None:
        """AccessError: the file cannot be read, and no purged session may come back."""
        self.agents: dict[str, str] = {}  # by session id; any thread may read it
        self._path = state_dir / "forgotten.jsonl"
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None
        for line in lines:
            # torn by a crash, or not a row of ours
            with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                row = json.loads(line)
                self.agents[row["sessionId"]] = str(row.get("agent") or "")

    def add(self, session_id: str, agent: str, *, by: str) -> None:
        row = {"sessionId": session_id, "agent": agent, "at": iso(time.time()), "by": by}
        try:
            append_line(self._path, json.dumps(row).encode(), durable=True)
        except OSError as bad:
            raise WriteError(f"cannot write {self._path}: {bad.strerror}") from None
        self.agents[session_id] = agent

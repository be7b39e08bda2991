"""Sessions that are looked at while they grow, and what a page makes of what it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from indexerd.settings import Settings
from indexerd.web.live import LiveSessions
from tests.sessions.tree_sessions import session

Document = dict[str, Any]


class World:
    """Session files of pi below a home, and what looks at them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.now = 0.0
        self.folder = home / ".pi/agent/sessions/--w--"
        self.folder.mkdir(parents=True)
        self.live = self.another()

    def another(self) -> LiveSessions:
        """Whoever looks for the first time."""
        return LiveSessions(Settings, {}, self.home, clock=lambda: self.now)

    def path(self, name: str = "s1") -> Path:
        """A session's file."""
        return self.folder / f"{name}.jsonl"

    def write(self, *entries: bytes, name: str = "s1") -> None:
        """A session, anew."""
        head, rest = session(*entries).split(b"\n", 1)
        own = json.dumps(json.loads(head) | {"id": name}).encode()
        self.path(name).write_bytes(own + b"\n" + rest)

    def append(self, *entries: bytes, name: str = "s1") -> None:
        """The session goes on."""
        with self.path(name).open("ab") as file:
            file.write(b"".join(entries))

    def stored(self, name: str = "s1", **more: Any) -> dict[str, Any]:
        """What is stored of a session."""
        row = {"sessionId": name, "agent": "pi", "sessionFile": str(self.path(name)), "cwd": "/w"}
        return {"session": row | {"name": "A name"}, **more}

    def ask(self, since: str | None = None, name: str = "s1", **more: Any) -> Document:
        """What a page hears."""
        return self.live.document(self.stored(name, **more), since, _go_on)

    def fresh(self, name: str = "s1") -> Document:
        """What somebody hears who never looked before."""
        other = self.another()
        try:
            return other.document(self.stored(name), None, _go_on)
        finally:
            other.close()


def _go_on() -> None:
    """Somebody waits."""

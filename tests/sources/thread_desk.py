"""Threads of Codex's that begin in one another, read by `Files` from real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from indexerd.daemon.files import Change, Files
from indexerd.sources.opencode_db import Database
from indexerd.sources.scan import Found, scan
from indexerd.sources.stores import Kind, Store
from indexerd.store.store import StateStore

A, B, C = (f"01a1fff2-0000-7000-8000-00000000000{n}" for n in range(3))


class Thread:
    """One file of Codex, in the dialect whose lines have ordinals."""

    def __init__(self, root: Path, thread: str, second: int, name: str = "", **meta: Any) -> None:
        self.id = thread
        self.base = meta.get("history_base")
        self.ordinal = self.base["end_ordinal_exclusive"] if self.base else 0
        stem = f"rollout-2026-11-22T12-00-{second:02}-{thread}{name}"
        self.path = root / "sessions" / f"{stem}.jsonl"
        held = {"id": thread, "timestamp": f"2026-11-22T12:00:{second:02}.000Z", "cwd": "/w"}
        self.write("session_meta", held | {"source": "cli"} | meta)

    def write(self, kind: str, payload: dict[str, Any]) -> None:
        """Append a line."""
        time = "2026-11-22T12:00:00.000Z"
        line = {"timestamp": time, "ordinal": self.ordinal, "type": kind, "payload": payload}
        with self.path.open("ab") as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.ordinal += 1

    def say(self, *texts: str) -> Thread:
        """A turn for each text."""
        for text in texts:
            self.write("event_msg", {"type": "task_started", "turn_id": text})
            self.write("event_msg", {"type": "user_message", "message": text})
            self.write("event_msg", {"type": "task_complete", "turn_id": text})
        return self

    @property
    def end(self) -> dict[str, Any]:
        """What a file that goes on from here says of it."""
        size = self.path.stat().st_size
        base = {"end_ordinal_exclusive": self.ordinal, "end_byte_offset": size}
        return {"thread_id": self.id, **base}


class Desk:
    """The files of an agent in a directory, and a reader of them that can start again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.exclude: list[str] = []
        self.stores = [
            Store("codex", f"{root}/sessions", f"{root}/meta"),
            Store("codex", f"{root}/archived_sessions", f"{root}/meta", archive=True),
        ]
        (root / "sessions").mkdir()
        (root / "archived_sessions").mkdir()
        self.database: Database | None = None
        self.files = self.start()

    def start(self) -> Files:
        """A reader over the ledger as it is."""
        self.files = Files(
            StateStore(self.root / "store.sqlite"),
            stores=lambda: self.stores,
            since=lambda _: None,
            title=lambda _agent, _id: None,
            exclude=lambda: list(self.exclude),
            defect=self.defect,
        )
        self.files.load()
        return self.files

    def restart(self) -> None:
        """The daemon ends, and starts again."""
        self.files.checkpoint()
        self.start()

    @staticmethod
    def defect(path: str, bug: Exception) -> None:
        """No file may provoke one."""
        raise AssertionError(path) from bug

    def scan(self) -> list[Change]:
        """One reconciling scan; what it changed."""
        changes = self.files.reconsider()
        roots = [one.sessions for one in self.stores if one.kind is Kind.FILES]
        found: list[Found] = scan(roots, suffix=(".jsonl", ".jsonl.zst")).files
        found += self.database.sessions() if self.database else []
        gone = self.files.missing(found, lambda _: False)
        for batch in self.files.refresh([*self.files.differing(found), *gone]):
            changes += batch
        return changes

    def texts(self, session_id: str) -> list[str]:
        """What the user said, in order, as it stands in the files."""
        state = self.files.state(session_id)
        assert state is not None
        with self.files.lines(session_id) as lines:
            held = [lines.row(row) for row in range(len(state))]
        messages = (json.loads(line)["payload"].get("message") for line in held if line)
        return [one for one in messages if one]


def fork(desk: Desk, of: Thread, thread: str = B, second: int = 9, **meta: Any) -> Thread:
    """A thread that begins where another is now."""
    return Thread(desk.root, thread, second, history_base=of.end, forked_from_id=of.id, **meta)

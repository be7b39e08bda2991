"""A database of opencode, written row by row as the client would."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE project (id TEXT PRIMARY KEY, worktree TEXT NOT NULL);
CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT,
  directory TEXT NOT NULL, title TEXT NOT NULL, version TEXT NOT NULL, revert TEXT,
  time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, time_archived INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL,
  time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
  time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
CREATE INDEX message_session ON message (session_id, time_created, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
"""
SCHEMA_2 = """
CREATE TABLE session_v2 (id TEXT PRIMARY KEY, parent_id TEXT, fork_session_id TEXT,
  directory TEXT NOT NULL, title TEXT, version TEXT NOT NULL, revert TEXT,
  time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, time_archived INTEGER);
CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, type TEXT NOT NULL,
  seq INTEGER NOT NULL, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL,
  data TEXT NOT NULL);
"""
EVENTS = """
CREATE TABLE event (id TEXT PRIMARY KEY, aggregate_id TEXT NOT NULL, seq INTEGER NOT NULL,
  type TEXT NOT NULL, data TEXT NOT NULL);
"""
START = 1_795_000_000_000  # ms


class Rows:
    """The client's side of a database. Each change is a commit of its own."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.path = path
        self._now = START
        self._events = 0
        with self.writing() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(schema)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection for one commit."""
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("PRAGMA synchronous = OFF")
            yield db

    def run(self, statement: str, *given: Any) -> None:
        """One statement."""
        with self.writing() as db:
            db.execute(statement, given)

    def tick(self, step: int = 10) -> int:
        """The client's clock, a little later."""
        self._now += step
        return self._now

    def session(self, session_id: str, **more: Any) -> str:
        """Insert a session; returns its path."""
        now = self.tick()
        held = {
            "project_id": "p",
            "directory": "/work/demo",
            "title": "A title",
            "version": "1.18.33",
            "time_created": now,
            "time_updated": now,
        }
        self._insert("session", held | {"id": session_id} | more)
        return f"{self.path}/{session_id}"

    def session_2(self, session_id: str, **more: Any) -> str:
        """Insert a session of version 2; returns its path."""
        now = self.tick()
        held = {
            "directory": "/work/two",
            "title": "Two",
            "version": "2.0.12",
            "time_created": now,
            "time_updated": now,
        }
        self._insert("session_v2", held | {"id": session_id} | more)
        return f"{self.path}/{session_id}"

    def message(self, session_id: str, message_id: str, role: str, **data: Any) -> int:
        """Insert a message; returns its time."""
        at = data.pop("at", None) or self.tick()
        held = {"role": role, "time": {"created": at}} | data
        self._insert(
            "message",
            {
                "id": message_id,
                "session_id": session_id,
                "time_created": at,
                "time_updated": at,
                "data": json.dumps(held),
            },
        )
        return at

    def part(self, session_id: str, message_id: str, part_id: str, **data: Any) -> None:
        """Insert a part."""
        at = self.tick()
        self._insert(
            "part",
            {
                "id": part_id,
                "message_id": message_id,
                "session_id": session_id,
                "time_created": at,
                "time_updated": at,
                "data": json.dumps(data),
            },
        )

    def said(self, session_id: str, message_id: str, role: str, text: str, **data: Any) -> None:
        """Insert a message with one text."""
        if role == "assistant":
            data = {"finish": "stop", "time": {"created": self._now, "completed": self._now}} | data
        self.message(session_id, message_id, role, **data)
        self.part(session_id, message_id, f"prt_{message_id}", type="text", text=text)

    def row_2(self, session_id: str, message_id: str, kind: str, seq: int, **data: Any) -> None:
        """Insert a message of version 2."""
        at = self.tick()
        self._insert(
            "session_message",
            {
                "id": message_id,
                "session_id": session_id,
                "type": kind,
                "seq": seq,
                "time_created": at,
                "time_updated": at,
                "data": json.dumps({"time": {"created": at}} | data),
            },
        )

    def event(self, session_id: str) -> None:
        """Log an event of a session."""
        self._events += 1
        self._insert(
            "event",
            {
                "id": f"evt_{self._events}",
                "aggregate_id": session_id,
                "seq": self._events,
                "type": "message.updated.1",
                "data": "{}",
            },
        )

    def _insert(self, table: str, held: dict[str, Any]) -> None:
        names, marks = ", ".join(held), ", ".join("?" * len(held))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names of ours
        self.run(statement, *held.values())

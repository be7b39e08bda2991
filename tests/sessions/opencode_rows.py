"""Write opencode's database row by row, as the client does."""

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
START = 1_795_000_000_000  # ms


class Rows:
    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.path = path
        self._now = START
        with self.writing() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(schema)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("PRAGMA synchronous = OFF")
            yield db

    def run(self, statement: str, *params: Any) -> None:
        with self.writing() as db:
            db.execute(statement, params)

    def tick(self, step: int = 10) -> int:
        self._now += step
        return self._now

    def session(self, session_id: str, **more: Any) -> str:
        known = {"project_id": "p", "directory": "/work/demo", "title": "A title"}
        return self._session("session", session_id, known | {"version": "1.18.33"} | more)

    def session_2(self, session_id: str, **more: Any) -> str:
        known = {"directory": "/work/two", "title": "Two", "version": "2.0.12"}
        return self._session("session_v2", session_id, known | more)

    def _session(self, table: str, session_id: str, values: dict[str, Any]) -> str:
        now = self.tick()
        self._insert(table, {"id": session_id, "time_created": now, "time_updated": now} | values)
        return f"{self.path}/{session_id}"

    def message(self, session_id: str, message_id: str, role: str, **data: Any) -> int:
        at: int = data.pop("at", None) or self.tick()
        values = {"role": role, "time": {"created": at}} | data
        self._dated("message", at, values, id=message_id, session_id=session_id)
        return at

    def part(self, session_id: str, message_id: str, part_id: str, **data: Any) -> None:
        named = {"id": part_id, "message_id": message_id, "session_id": session_id}
        self._dated("part", self.tick(), data, **named)

    def _dated(self, table: str, at: int, data: dict[str, Any], **values: Any) -> None:
        times = {"time_created": at, "time_updated": at}
        self._insert(table, values | times | {"data": json.dumps(data)})

    def said(self, session_id: str, message_id: str, role: str, text: str, **data: Any) -> None:
        if role == "assistant":
            data = {"finish": "stop", "time": {"created": self._now, "completed": self._now}} | data
        self.message(session_id, message_id, role, **data)
        self.part(session_id, message_id, f"prt_{message_id}", type="text", text=text)

    def row_2(self, session_id: str, message_id: str, kind: str, seq: int, **data: Any) -> None:
        at = self.tick()
        named = {"id": message_id, "session_id": session_id, "type": kind, "seq": seq}
        self._dated("session_message", at, {"time": {"created": at}} | data, **named)

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - constant names
        self.run(statement, *values.values())

"""Sessions of opencode, as release 1.18 keeps them: rows of one database, and a log of events.

A message is a row, and each thing it says or does another one, which the log repeats; so half of
the database is the log. Rows have the release's columns that mean something to a reader.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from corpus_text import Draw, iso

_SCHEMA = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text,
  time_created integer NOT NULL, time_updated integer NOT NULL, sandboxes text NOT NULL);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, workspace_id text,
  parent_id text, slug text NOT NULL, directory text NOT NULL, path text, title text NOT NULL,
  version text NOT NULL, share_url text, summary_diffs text, metadata text,
  cost real DEFAULT 0 NOT NULL, tokens_input integer DEFAULT 0 NOT NULL,
  tokens_output integer DEFAULT 0 NOT NULL, revert text, permission text, agent text, model text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer,
  time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL,
  type text NOT NULL, data text NOT NULL);
CREATE UNIQUE INDEX event_aggregate_seq_idx ON event (aggregate_id, seq);
CREATE INDEX event_aggregate_type_seq_idx ON event (aggregate_id, type, seq);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE INDEX session_project_idx ON session (project_id);
CREATE INDEX session_parent_idx ON session (parent_id);
"""
_TOOLS = {
    "bash": '"command":"%s","description":"Run it"',
    "edit": '"filePath":"/home/dev/app.ts","oldString":"old","newString":"%s"',
    "read": '"filePath":"/home/dev/%s.ts"',
    "write": '"filePath":"/home/dev/new.ts","content":"%s"',
}
_INTO = {
    "message": "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
    "part": "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
    "event": "INSERT INTO event VALUES (?, ?, ?, ?, ?)",
}
_WRAP = 1 << 48
_AROUND = 220  # bytes of a row, with its indexes, that are no data
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass
class _Session:
    draw: Draw
    ms: int
    due: int
    own: str = ""
    parent: str = ""
    size: int = 0
    users: int = 0
    pictures: int = 0
    count: int = 0
    rows: dict[str, list[tuple[object, ...]]] = field(
        default_factory=lambda: {table: [] for table in _INTO}
    )

    def name(self, kind: str, *, falling: bool = False) -> str:
        """An id: the time, which a session's counts down, a counter, and chance."""
        self.count += 1
        at = (self.ms * 4096 + self.count) % _WRAP
        chance = "".join(self.draw.rng.choices(_DIGITS, k=14))
        return f"{kind}_{_WRAP - 1 - at if falling else at:012x}{chance}"

    def event(self, kind: str, data: str) -> None:
        """The log repeats each row."""
        rows = self.rows["event"]
        told = f'{{"sessionID":"{self.own}",{data}}}'
        rows.append((self.name("evt"), self.own, len(rows), kind, told))
        self.size += len(told) + _AROUND

    def message(self, data: str) -> str:
        """A message's row; its id."""
        own = self.name("msg")
        self.rows["message"].append((own, self.own, self.ms, self.ms, f"{{{data}}}"))
        self.size += len(data) + _AROUND
        self.event("message.updated.1", f'"info":{{"id":"{own}",{data}}}')
        return own

    def part(self, message: str, data: str) -> None:
        """What a message says or does."""
        own = self.name("prt")
        self.ms += int(self.draw.random() * 900)
        row = (own, message, self.own, self.ms, self.ms, f"{{{data}}}")
        self.rows["part"].append(row)
        self.size += len(data) + _AROUND
        self.event("message.part.updated.1", f'"part":{{"id":"{own}",{data}}}')

    def ask(self) -> None:
        """A human message."""
        draw = self.draw
        self.ms += 1000 + int(draw.random() * 20_000)
        self.users += 1
        self.parent = self.message(
            f'"role":"user","time":{{"created":{self.ms}}},"agent":"build",'
            '"model":{"providerID":"anthropic","modelID":"claude-opus-4-5"},"summary":{"diffs":[]}'
        )
        self.part(self.parent, f'"type":"text","text":"{draw.prose("prompt").decode()}"')
        if self.pictures < self.due and draw.random() < 0.5:
            data = draw.picture().decode()
            self.pictures += 2 * len(data)  # once more in the log
            url = f"data:image/png;base64,{data}"
            self.part(self.parent, f'"type":"file","mime":"image/png","url":"{url}"')

    def answer(self, tool: str = "") -> None:
        """One step of the model, with the tool that it used."""
        draw, began = self.draw, self.ms
        self.ms += 300 + int(draw.random() * 4000)
        used, finish = 4000 + int(draw.random() * 9000), "tool-calls" if tool else "stop"
        tokens = (
            f'"cost":0.00789,"tokens":{{"total":{used + 20},"input":{used},"output":20,'
            '"reasoning":0,"cache":{"write":0,"read":0}}'
        )
        own = self.message(
            f'"parentID":"{self.parent}","role":"assistant","mode":"build","agent":"build",'
            f'"path":{{"cwd":"/home/dev","root":"/home/dev"}},{tokens},'
            f'"modelID":"claude-opus-4-5","providerID":"anthropic",'
            f'"time":{{"created":{began},"completed":{self.ms}}},"finish":"{finish}"'
        )
        step = f'"snapshot":"{draw.hex(40).decode()}","type":'
        self.part(own, f'{step}"step-start"')
        span = f'"time":{{"start":{began},"end":{self.ms}}}'
        if draw.random() < 0.15:
            self.part(own, f'"type":"reasoning","text":"{draw.prose("thought").decode()}",{span}')
        if not tool or draw.random() < 0.45:
            said = draw.prose("said", 1 if tool else 3).decode()
            self.part(own, f'"type":"text","text":"{said}",{span}')
        if tool:
            given = (
                _TOOLS[tool] % (draw.hex(6) if tool == "read" else draw.code("argument")).decode()
            )
            output = draw.code(tool).decode()
            self.part(
                own,
                f'"type":"tool","tool":"{tool}","callID":"call_{draw.hex(24).decode()}","state":'
                f'{{"status":"completed","input":{{{given}}},"output":"{output}",'
                f'"metadata":{{"truncated":false}},"title":"","time":{{"start":{began}}}}}',
            )
        self.part(own, f'"reason":"{finish}",{step}"step-finish",{tokens}')

    def fill(self, target: int) -> None:
        """Talk until the session is large enough."""
        while self.size < target or not self.users:
            self.ask()
            for _ in range(self.draw.calls()):
                self.answer(self.draw.tool())
                if self.size >= target:
                    break
            self.answer()


def write(
    folder: Path, draw: Draw, plans: list[tuple[int, int]], image_share: float
) -> tuple[list[str], int, int, int]:
    """Write one database: a session for each plan, of so many bytes, from such a time (ms) on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "opencode.db"
    files, size, lines, users, pictures = [], 0, 0, 0, 0
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(_SCHEMA)
        for target, at in plans:
            due = int(image_share * (size + target)) - pictures if target > 100_000 else 0
            held = _Session(draw, at, due)
            held.own = held.name("ses", falling=True)
            held.fill(target)
            _store(db, held, at)
            files.append(f"{path}/{held.own}")
            size += held.size
            lines += len(held.rows["message"])
            users += held.users
            pictures += held.pictures
        db.commit()
        db.execute("PRAGMA journal_mode = WAL")
    return files, path.stat().st_size, lines, users


def _store(db: sqlite3.Connection, held: _Session, at: int) -> None:
    draw = held.draw
    project, title = f"{int(50 * draw.random() ** 2):040x}", draw.name().decode()
    where = f"/home/dev/project-{project[-3:]}"
    db.execute(
        "INSERT OR IGNORE INTO project VALUES (?, ?, 'git', NULL, ?, ?, '[]')",
        (project, where, at, at),
    )
    db.execute(
        "INSERT INTO session (id, project_id, slug, directory, path, title, version, agent,"
        " time_created, time_updated) VALUES (?, ?, ?, ?, '', ?, '1.18.33', 'build', ?, ?)",
        (held.own, project, title.replace(" ", "-"), where, title, at, held.ms),
    )
    held.event("session.created.1", f'"info":{{"title":"{title}","at":"{iso(at).decode()}"}}')
    for table, insert in _INTO.items():
        db.executemany(insert, held.rows[table])
    db.execute(
        "INSERT INTO event_sequence VALUES (?, ?, NULL)", (held.own, len(held.rows["event"]))
    )

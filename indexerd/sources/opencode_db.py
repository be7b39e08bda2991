"""Sessions in opencode's database, and each of them as lines of JSON.

A session is read whole at each change: rows are rewritten in place, deleted, hidden by a revert.
A line's offset is its message's rowid, which holds as long as the message does. Version 1 keeps a
session in session, message and part; version 2 in session_v2 and session_message, under the same
id: the older copy is then ignored. Columns vary by release.

What surprised us: time_updated of a session says nothing of its messages and parts, and no index
has theirs; a deletion leaves no trace but a missing row. So only a scan reads the times of all
rows, and hints those of the sessions that were last asked something.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from indexerd.agents.json_lines import string, time_ms
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources.foreign_db import Files, files_of, opened, reading
from indexerd.sources.opencode_lines import Message, Record, decoded, digest, session_of
from indexerd.sources.tail import Look

ROWS_MAX = 500_000  # messages of a session, or parts of a message
RECENT = 16  # sessions that are looked at when the database changed

_MS_MAX = 9_000_000_000_000  # the year 2255; in nanoseconds it still is 63 bits
_TABLES = {1: ("session", "message", "part"), 2: ("session_v2", "session_message")}
_Listed = dict[str, tuple[Record, Look]]  # by id: a session's own record, and its signature
_FIELDS = {  # of a session, and their columns
    "id": "id",
    "parentID": "parent_id",
    "forkID": "fork_session_id",
    "title": "title",
    "directory": "directory",
    "version": "version",
    "created": "time_created",
    "updated": "time_updated",
    "archived": "time_archived",
    "revert": "revert",
}


class Database:
    """All sessions of one database. For one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[str, Look] = {}
        self._files: Files | None = None  # at the last listing

    def sessions(self) -> dict[str, Look]:
        """Every session by path. FileNotFoundError, or SessionUnreadableError."""
        files = files_of(self._path)
        if files != self._files:
            self._found = self._ask(_Tables.listed, files)
            self._files = files
        return self._found.copy()

    def touched(self) -> list[str]:
        """The sessions that changed since the last call, among the recent ones."""
        files = files_of(self._path)
        if self._files is None or self._files.main[:2] != files.main[:2]:  # another file
            return [*self.sessions()]
        found = self._ask(_Tables.recent, files)
        changed = [path for path, now in found.items() if self._found.get(path) != now]
        self._found |= found
        return changed

    def _ask(self, ask: Callable[[_Tables], _Listed], files: Files) -> dict[str, Look]:
        listed = reading(self._path, lambda db: ask(_Tables(db, files)))
        return {f"{self._path}/{key}": now for key, (_, now) in listed.items()}


class _Tables:
    """The tables of a database as its release made them, within one transaction."""

    def __init__(self, db: sqlite3.Connection, files: Files) -> None:
        self._db, self._main = db, files.main
        db.execute("BEGIN")
        columns = db.execute(
            "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
            " WHERE m.type = 'table'"
        )
        self._columns: dict[str, set[str]] = {}
        for table, column in columns:
            self._columns.setdefault(table, set()).add(column)
        there = self._columns.keys()
        self._versions = [key for key, names in _TABLES.items() if there >= set(names)]
        if there and not self._versions:  # with none at all, the client is just creating it
            raise SessionUnreadableError("not a schema of opencode that we know")

    def listed(self, ids: Iterable[str] | None = None) -> _Listed:
        """These sessions, or all; the newer copy of one that is in both versions."""
        found: _Listed = {}
        given = list(ids or ())
        among = " NOT NULL" if ids is None else f" IN ({','.join('?' * len(given))})"
        for version in self._versions:
            table, *others = _TABLES[version]
            sums = [self._sums(one, f"session_id{among}", given) for one in others]
            for row in self._db.execute(f"{self._select(table)} WHERE s.id{among}", given):
                held = dict(zip(_FIELDS, row, strict=True))
                key = string(held["id"])
                if is_session_id(key):
                    hidden = decoded(string(held["revert"]).encode())
                    session = session_of(key, held | {"time": held, "revert": hidden}, version)
                    found[key] = session, self._stamp(session, [one.get(key) for one in sums])
        return found

    def recent(self) -> _Listed:
        ids = set[str]()
        for version in self._versions:
            newest = f"{self._select(_TABLES[version][0])} ORDER BY 8 DESC LIMIT {RECENT}"
            ids |= {string(row[0]) for row in self._db.execute(newest)}  # 8: time_updated
        return self.listed(ids)

    def one(self, session_id: str) -> tuple[Record, Look]:
        """One session; FileNotFoundError when it is gone."""
        found = self.listed([session_id]).get(session_id)
        if found is None:
            raise FileNotFoundError(session_id)
        return found

    def _select(self, table: str) -> str:
        """A SELECT of sessions' fields; NULL for those that this release does not have."""
        held = self._columns[table]
        fields = [f"s.{one}" if one in held else "NULL" for one in _FIELDS.values()]
        join = ""
        if "project_id" in held and {"id", "worktree"} <= self._columns.get("project", set()):
            join = " LEFT JOIN project p ON p.id = s.project_id"
            fields[4] = f"coalesce(nullif({fields[4]}, ''), nullif(p.worktree, '/'))"
        return f"SELECT {', '.join(fields)} FROM {table} s{join}"  # noqa: S608 - our names

    def _sums(self, table: str, where: str, ids: list[str]) -> dict[str, tuple[Any, ...]]:
        """By session: the newest time_updated of its rows, their number, and the sum of times."""
        rows = self._db.execute(
            "SELECT session_id, max(time_updated), count(*), sum(time_updated)"  # noqa: S608 - ours
            f" FROM {table} WHERE {where} GROUP BY 1",
            ids,
        )
        return {key: tuple(held) for key, *held in rows}

    def _stamp(self, session: Record, sums: list[tuple[Any, ...] | None]) -> Look:
        """A session's signature, in fields of 63 bits like those of a file's stat."""
        written = max(session["time"]["updated"], *(time_ms(one[0]) for one in sums if one), 0)
        ino, size = digest(f"{self._main.ino}/{session['id']}"), digest(repr((session, sums)))
        return Look(self._main.dev, ino, size, min(written, _MS_MAX) * 1_000_000)


class _Session:
    """The records of one session."""

    def __init__(self, db: sqlite3.Connection, session: Record) -> None:
        self._db, self.session = db, session

    def messages(self, place: int = 0) -> Iterator[Message]:
        """All messages in their order, or the one at a place."""
        table, kind, order = "message", "''", "id"
        if self.session["schema"] > 1:
            table, kind, order = "session_message", "type", "seq"
        rows = self._db.execute(
            f"SELECT rowid, id, time_created, CAST(data AS BLOB), {kind} FROM {table}"  # noqa: S608 - our names
            f" WHERE rowid {'=' if place else '>'} ? AND session_id = ? ORDER BY {order}"
            f" LIMIT {ROWS_MAX}",
            (place, self.session["id"]),
        )
        for rowid, message_id, at, data, role in rows:
            held = decoded(data or b"") or {}
            if role:
                held["role"] = role
            yield Message(rowid, str(message_id), at if isinstance(at, int) else 0, held)

    def parts(self, message_id: str) -> Iterator[tuple[str, Record]]:
        """The parts of a message; version 2 keeps them within it."""
        if self.session["schema"] > 1:
            return
        rows = self._db.execute(
            "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? AND session_id = ?"
            " ORDER BY id LIMIT ?",
            (message_id, self.session["id"], ROWS_MAX),
        )
        for part_id, data in rows:
            if (held := decoded(data or b"")) is not None:
                yield part_id, held


def look(path: str) -> Look | None:
    """A session's signature; None where there is none. SessionUnreadableError when that fails."""
    place, _, session_id = path.rpartition("/")
    try:
        files = files_of(place)
        return reading(place, lambda db: _Tables(db, files).one(session_id)[1])
    except FileNotFoundError:
        return None


@contextmanager
def records(path: str) -> Iterator[_Session]:
    """Open a session; FileNotFoundError or SessionUnreadableError when that fails."""
    place, _, session_id = path.rpartition("/")
    with opened(place) as db:
        session, _ = _Tables(db, files_of(place)).one(session_id)
        db.execute("COMMIT")  # each message is read by itself: no long transaction
        yield _Session(db, session)

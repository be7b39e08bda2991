"""Sessions in opencode's database, and each of them as lines of JSON.

A session's path is the database's with the session's id below it. A session is rendered anew at
each change: rows are rewritten in place, deleted, hidden by a revert. A line's offset is its
message's rowid, which holds as long as the message does.

Version 1 keeps a session in session, message and part. Version 2 keeps it in session_v2 and
session_message, under the same id: the older copy is then ignored. Columns vary by release.

What surprised us: time_updated of a session says nothing of its messages and parts, and no index
has theirs; a deletion leaves no trace but a missing row. So all rows are looked at only at a
listing, and in between those of the sessions that were written last.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from indexerd.agents.lines import string
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources.cursor import Cursor, Look, is_same
from indexerd.sources.foreign_db import Files, files_of, opened, reading
from indexerd.sources.lines import Block
from indexerd.sources.opencode_lines import (
    Lines,
    Message,
    Parts,
    Record,
    Session,
    brief_lines,
    decoded,
    digest,
)
from indexerd.sources.scan import Found

MESSAGES_MAX = 500_000  # of one session
PARTS_MAX = 100_000  # of one message
RECENT = 16  # sessions written last, in which rows change while their own row does not
ASKED_MAX = 400  # sessions asked for by name; all of them cost less than more names
GRAIN_NS = 2_000_000_000  # a file written later than that before a look may change unnoticed

_MS_MAX = 9_000_000_000_000  # the year 2255; in nanoseconds it still is 63 bits
_TABLES = {1: ("session", "message", "part"), 2: ("session_v2", "session_message")}
_TEXTS = ("id", "parent_id", "fork_session_id", "title", "directory", "version")
_TIMES = ("time_created", "time_updated", "time_archived")
_FIELDS = (*_TEXTS, *_TIMES, "revert")  # of a session

Sums = tuple[Any, ...]  # of rows: how many, the newest time_updated, and all of these together


class Facts(NamedTuple):
    """What a session's signature is made of."""

    session: Session
    messages: Sums
    parts: Sums


class Database:
    """All sessions of one database, and what differs since it was last asked. For one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._facts: dict[str, Facts] = {}
        self._found: dict[str, Found] = {}
        self._main = (0, 0)  # device and inode
        self._listed: tuple[Look, Look | None, bool] | None = None  # its files at the last listing

    def sessions(self) -> list[Found]:
        """Every session there is. FileNotFoundError, or SessionUnreadableError."""
        files = files_of(self._path)
        if files.content != self._listed:
            facts = reading(self._path, lambda db: _Tables(db).facts())
            self._facts, self._found = {}, {}
            self._main = _inode(files)
            self._take(facts)
            newest = max(one.mtime_ns for one in files.content[:2] if one)
            self._listed = files.content if time.time_ns() - newest > GRAIN_NS else None
        return list(self._found.values())

    def touched(self) -> list[Found]:
        """The sessions that changed since the last call, as far as a short look tells.

        Those whose own row differs, and those written last. All, where nothing is known yet.
        """
        if _inode(files_of(self._path)) != self._main:
            return self.sessions()
        return self._take(reading(self._path, self._news))

    def _news(self, db: sqlite3.Connection) -> dict[str, Facts]:
        tables, known = _Tables(db), self._facts
        rows = tables.sessions()
        newest = sorted(self._found, key=lambda key: self._found[key].mtime_ns)[-RECENT:]
        asked = {key for key, row in rows.items() if key not in known or known[key].session != row}
        return tables.facts((asked | set(newest)) & rows.keys())

    def _take(self, facts: dict[str, Facts]) -> list[Found]:
        changed = []
        for key, one in facts.items():
            if self._facts.get(key) != one:
                now = _stamp(self._main, one)
                self._facts[key] = one
                self._found[key] = Found(
                    f"{self._path}/{key}", now.dev, now.ino, now.size, now.mtime_ns
                )
                changed.append(self._found[key])
        return changed


def _inode(files: Files) -> tuple[int, int]:
    return files.main.dev, files.main.ino


def _stamp(main: tuple[int, int], facts: Facts) -> Look:
    """A session's signature, in the fields of a file's stat; 63 bits each."""
    written = max(facts.session.updated, _ms(facts.messages[1]), _ms(facts.parts[1]))
    ino = digest(f"{main[1]}/{facts.session.id}")
    return Look(main[0], ino, digest(repr(facts)), written * 1_000_000)


def _ms(value: object) -> int:
    return min(value, _MS_MAX) if isinstance(value, int) and value > 0 else 0


# -- questions to the database -------------------------------------------------------------------


class _Tables:
    """The tables of a database as its release made them, within one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
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

    def sessions(self, ids: Collection[str] | None = None) -> dict[str, Session]:
        """These sessions, or (None) all; of one in both versions, the newer."""
        found: dict[str, Session] = {}
        for version in self._versions:
            where, given = _among("s.id", ids)
            for row in self._db.execute(self._select(version) + where, given):
                if isinstance(row[0], str) and is_session_id(row[0]):
                    found[row[0]] = _session(version, row)
        return found

    def facts(self, ids: Collection[str] | None = None) -> dict[str, Facts]:
        """The facts of these sessions, or (None) of all."""
        asked = None if ids is None or len(ids) > ASKED_MAX else ids
        where, given = _among("session_id", asked)
        sums: dict[tuple[str, str], Sums] = {}
        for table in (name for version in self._versions for name in _TABLES[version][1:]):
            rows = self._db.execute(
                "SELECT session_id, count(*), max(time_updated), sum(time_updated)"  # noqa: S608 - ours
                f" FROM {table}{where} GROUP BY 1",
                given,
            )
            sums |= {(table, key): tuple(held) for key, *held in rows}
        return {
            key: Facts(
                row, *(sums.get((one, key), (0, 0, 0)) for one in (*_TABLES[row.schema], "")[1:3])
            )
            for key, row in self.sessions(asked).items()
            if ids is None or key in ids
        }

    def one(self, session_id: str) -> Facts:
        """One session; FileNotFoundError when it is gone."""
        facts = self.facts([session_id]).get(session_id)
        if facts is None:
            raise FileNotFoundError(session_id)
        return facts

    def _select(self, version: int) -> str:
        """Asks for sessions' fields; those that this release does not have are NULL."""
        table = _TABLES[version][0]
        held = self._columns[table]
        fields = {one: f"s.{one}" if one in held else "NULL" for one in _FIELDS}
        join = ""
        if "project_id" in held and {"id", "worktree"} <= self._columns.get("project", set()):
            join = " LEFT JOIN project p ON p.id = s.project_id"
            own = fields["directory"]
            fields["directory"] = f"coalesce(nullif({own}, ''), nullif(p.worktree, '/'))"
        return f"SELECT {', '.join(fields.values())} FROM {table} s{join}"  # noqa: S608 - our names


def _among(column: str, ids: Collection[str] | None) -> tuple[str, tuple[str, ...]]:
    if ids is None:
        return "", ()
    return f" WHERE {column} IN ({','.join('?' * len(ids))})", tuple(ids)


def _session(version: int, row: tuple[object, ...]) -> Session:
    hidden = decoded(string(row[-1]).encode()) or {}
    texts, times = map(string, row[: len(_TEXTS)]), map(_ms, row[len(_TEXTS) : -1])
    revert = (string(hidden.get(key)) for key in ("messageID", "partID"))
    return Session._make((*texts, *times, *revert, version))


def _messages(db: sqlite3.Connection, session: Session, place: int = 0) -> Iterator[Message]:
    """A session's messages in their order, or the one at a place."""
    table, kind, order = (
        ("session_message", "type", "seq") if session.schema > 1 else ("message", "''", "id")
    )
    where = "rowid = ?" if place else "rowid > ?"
    rows = db.execute(
        f"SELECT rowid, id, time_created, CAST(data AS BLOB), {kind} FROM {table}"  # noqa: S608 - our names
        f" WHERE {where} AND session_id = ? ORDER BY {order} LIMIT {MESSAGES_MAX}",
        (place, session.id),
    )
    for rowid, message_id, at, data, role in rows:
        held = decoded(data or b"") or {}
        if role:
            held["role"] = role
        yield Message(rowid, str(message_id), at if isinstance(at, int) else 0, held)


def _parts_of(db: sqlite3.Connection, session: Session) -> Parts:
    """Asks for the parts of a message; version 2 keeps them within it."""

    def parts(message_id: str) -> Iterator[tuple[str, Record]]:
        rows = db.execute(
            "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = ? AND session_id = ?"
            " ORDER BY id LIMIT ?",
            (message_id, session.id, PARTS_MAX),
        )
        for part_id, data in rows:
            if (held := decoded(data or b"")) is not None:
                yield part_id, held

    return parts if session.schema == 1 else lambda _: ()


# -- the source ----------------------------------------------------------------------------------


def look(path: str) -> Look | None:
    """A session's signature; None where there is none, or it cannot be read."""
    place, _, session_id = path.rpartition("/")
    try:
        main = _inode(files_of(place))
        return reading(place, lambda db: _stamp(main, _Tables(db).one(session_id)))
    except (FileNotFoundError, SessionUnreadableError):
        return None


def load(path: str, held: Cursor | None) -> tuple[Look, list[Block] | None]:
    """A session's signature, and its lines if it is another. FileNotFoundError when it is gone."""
    place, _, session_id = path.rpartition("/")
    main = _inode(files_of(place))

    def ask(db: sqlite3.Connection) -> tuple[Look, list[Block] | None]:
        facts = _Tables(db).one(session_id)
        now, session = _stamp(main, facts), facts.session
        if held is not None and is_same(held, now):
            return now, None
        return now, list(brief_lines(session, _messages(db, session), _parts_of(db, session)))

    return reading(place, ask)


@contextmanager
def lines(path: str) -> Iterator[Lines]:
    """Open a session to read single messages; SessionUnreadableError when that fails."""
    place, _, session_id = path.rpartition("/")
    try:
        with opened(place) as db:
            session = _Tables(db).one(session_id).session
            db.execute("COMMIT")  # each line is read by itself: no long transaction
            find = lambda place: next(_messages(db, session, place), None)  # noqa: E731
            yield Lines(session, find, _parts_of(db, session))
    except FileNotFoundError:
        raise SessionUnreadableError("the session is gone") from None

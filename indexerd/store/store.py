"""The store: rows, cursors and notes, in one SQLite file that may be deleted.

Nothing in it is the only copy: losing it costs time, never data and never a model call. One thread
writes; any thread reads what was last committed. A command that runs without a daemon opens it
`readonly`; if the file cannot be read, it gets an empty store with a `problem`.

A full disk, a lock or a missing permission raises an error and loses nothing. Damage means that
SQLite reports corruption, that a value does not decode, or that something else changed the file:
when the store is next closed or opened, the file is deleted and a new one is made.

SQLite does not notice a flipped byte within a value. So only this class checkpoints the log, and
writes a checksum of the whole file to `<name>.sum`. Until the next checkpoint only the log changes,
whose frames have their own checksums: so the sum is valid even after a crash, and every access
compares the file's size and time.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.client import is_windows_path
from indexerd.disk import remove
from indexerd.errors import AccessError, DamagedError, StateError, UsageError, WriteError
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.sessions.facts import SessionUsage
from indexerd.sessions.family import Link
from indexerd.sessions.info import SessionInfo, pack, unpack
from indexerd.sources.tail import Cursor
from indexerd.times import iso_ms

VERSION = 26  # of the tables, and of what agents' lines mean
_BUSY_MS = 5000
_COUNT_MAX = 1 << 53  # larger ones are not exact in JSON
_LOG_MAX = 64 * 2**20  # bytes: appends wait for each checkpoint
_ACCESS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)

_GIVEN = "SELECT value FROM json_each(?)"
_ORDERS = {  # of a page; times and costs that are unknown come last
    "recent": "modified",
    "cost": "coalesce(cost, -1)",
    "longest": "coalesce(duration, -1)",
    "prompts": "prompts",
}

_T = TypeVar("_T")

# `remote`, `outbox` and `sent` are of the fleet, and empty without one.
# Rows have their own table, so that sorting `session` reads none: 3 ms for 500 rows, not 9.
_SCHEMA = f"""
CREATE TABLE session (
  id TEXT PRIMARY KEY, agent TEXT, cwd TEXT, place TEXT, project TEXT, file TEXT,
  modified INTEGER, created INTEGER, archived INTEGER, gone INTEGER, subagent INTEGER,
  pinned INTEGER, hidden INTEGER, tags TEXT,
  parent TEXT, name TEXT, named INTEGER, aliases TEXT, text_hash INTEGER,
  state TEXT, messages INTEGER, prompts INTEGER, duration INTEGER, cost REAL,
  context INTEGER DEFAULT 0, context_window INTEGER, provider TEXT, model TEXT,
  machine TEXT);  -- of the fleet that has its file; NULL: this one
CREATE INDEX session_listed
  ON session (pinned DESC, modified DESC, id, agent, project, archived, gone, subagent, hidden);
CREATE INDEX session_hidden ON session (id) WHERE hidden;
CREATE INDEX session_file ON session (file);
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE TABLE usage (
  id TEXT, day INTEGER, model TEXT, prompts INTEGER,
  input INTEGER, output INTEGER, cache_read INTEGER, cache_write INTEGER, cost REAL, estimated REAL,
  PRIMARY KEY (id, day, model)) WITHOUT ROWID;
CREATE TABLE record (id TEXT PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE file (path BLOB PRIMARY KEY, cursor BLOB, info BLOB) WITHOUT ROWID;
CREATE TABLE remote (
  id TEXT PRIMARY KEY, machine TEXT, seq INTEGER, next_row INTEGER DEFAULT 0, documents BLOB)
  WITHOUT ROWID;
CREATE TABLE outbox (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE);
CREATE TABLE sent (
  seq INTEGER PRIMARY KEY, kind TEXT, id TEXT, next_row INTEGER, print BLOB, stale INTEGER);
CREATE INDEX sent_id ON sent (id, kind);
CREATE TABLE note (topic TEXT, key TEXT, value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""

_EMPTY = "(messages = 0 AND NOT named)"  # a condition: nobody said anything
_SLASHED = "replace(lower({}), char(92), '/')"  # paths of Windows and others alike
_FLAGS = ("archived", "gone", "subagent", "pinned", "hidden")
_encode = msgspec.msgpack.Encoder().encode
_cursor = msgspec.msgpack.Decoder(Cursor).decode


class Named(NamedTuple):
    """A session's names, and the facts that decide between sessions with the same name."""

    session_id: str
    name: str
    aliases: tuple[str, ...]  # every name that refers to it, `name` included
    cwd: str  # the directory of its project, which may be elsewhere than the recorded one
    modified: int  # milliseconds since the epoch
    named: bool  # a user, a model or the agent chose the name
    live: bool  # neither gone, archived, hidden nor empty, and not a sub-agent's
    hidden: bool = False  # by the user: only its id or its exact name finds it


class Filter(NamedTuple):
    """Which sessions to list or search; None: no condition."""

    agent: str | None = None
    cwd: str | None = None  # the project's directory, or one below
    since: str | None = None  # an ISO-8601 time
    tag: str | None = None
    project: str | None = None  # a directory's path, its name, or several with slashes between


def named(row: Mapping[str, Any], aliases: Iterable[str] = ()) -> Named:
    """Return the names in a row, with further aliases."""
    name = str(row.get("name") or "")
    own = (name, str(row.get("agentTitle") or ""), *aliases)
    has_name = row.get("nameSource") in {"user", "meta", "agent"}
    return Named(
        session_id=str(row["sessionId"]),
        name=name,
        aliases=tuple(dict.fromkeys(name for name in own if name)),
        cwd=sys.intern(str(row.get("project") or row.get("cwd") or "")),
        modified=iso_ms(str(row.get("modifiedAt") or "")),
        named=has_name,
        live=not any(row.get(key) for key in ("archived", "gone", "subagent", "hidden"))
        and bool(has_name or row.get("messageCount")),
        hidden=bool(row.get("hidden")),
    )


class StateStore:
    """Rows, cursors and notes."""

    def __init__(
        self,
        path: Path,
        report: Callable[[Path, str], None] = lambda _path, _why: None,
        *,
        readonly: bool = False,
    ) -> None:
        """Open or create it; `report(path, why)` is called once if it is damaged, in any thread."""
        self.damaged = False
        self.problem: str | None = None  # why a store opened `readonly` is empty
        self._path, self._report = path, report
        self._sum, self._log = Path(f"{path}.sum"), Path(f"{path}-wal")
        self._log_max = _LOG_MAX
        # For the checksum. Closing any descriptor of a file drops all locks that this process has
        # on it, so it is opened before SQLite's and closed after them.
        self._fd = -1
        self._stamped: tuple[int, ...] | None = None  # stamp of the file; None while it may change
        self._writer: sqlite3.Connection | None = None
        self._owner = 0  # the thread with an open transaction
        self._idle: list[sqlite3.Connection] = []  # readers
        self._copy: sqlite3.Connection | None = None  # read instead, by all threads
        self._closed = False
        if readonly:
            self._idle.append(self._open_readonly())
            return
        try:
            self._writer = self._open()
        except DamagedError as bad:
            _delete(path)
            self._writer = self._open()
            report(path, str(bad))
        if not self._stamped:  # a new file
            self.fold()

    def _open(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = None
        if not all(file.is_file() for file in self._path.parent.glob(f"{self._path.name}*")):
            raise DamagedError("the store is damaged: something else is in its place")
        try:
            # SQLite gives the log the same mode.
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._verify()
            db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA wal_autocheckpoint = 0")  # see the module's docstring
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA secure_delete = ON")
            if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            _check(db)
            self._stamped = self._stamp() if self._sum.exists() else None
        except (sqlite3.Error, OSError, DamagedError) as bad:
            if db is not None:
                db.close()
            self._close_file()
            raise _state_error(bad) from bad
        return db

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _verify(self) -> None:
        known = self._sum.read_bytes() if self._sum.exists() else b"00000000"  # of an empty file
        if known != self._checksum():
            raise DamagedError("the store is damaged: it does not match its checksum")

    def _check_stamp(self) -> None:
        known = self._stamped  # a checkpoint changes the file: it replaces this before and after
        if known and known != self._stamp() and known is self._stamped:
            raise DamagedError("the store is damaged: something else changed it")

    def _stamp(self) -> tuple[int, ...]:
        status = os.fstat(self._fd)
        return status.st_size, status.st_mtime_ns, status.st_nlink

    def _checksum(self) -> bytes:
        total = at = 0
        while chunk := os.pread(self._fd, 2**20, at):
            total, at = zlib.crc32(chunk, total), at + len(chunk)
        return b"%08x" % total

    def _open_readonly(self) -> sqlite3.Connection:
        try:
            db = self._open_reader("ro")
            _check(db)
        except (sqlite3.Error, DamagedError) as bad:
            self.problem = f"{self._path}: {bad}"
            db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            db.executescript(_SCHEMA)
        return db

    def _open_reader(self, mode: str = "rw") -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = MEMORY")  # so that sorting works on a full disk
        # A start reads every page once: caching them took a tenth of all memory.
        db.execute("PRAGMA cache_size = -256")
        return db

    def close(self) -> None:
        """Close the file; delete it if it is damaged."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        if self._writer is not None:
            with suppress(StateError):
                self.fold()
            self._writer.close()
            self._writer = None
            if self.damaged:
                with suppress(OSError):
                    _delete(self._path)
        self._close_file()

    def fold(self) -> None:
        """Checkpoint the log, so that deleted data is no longer in it."""
        if self._writer is None or self.damaged:
            return
        with self._guarded():
            if self._stamped:  # not for a new file, or after a failed checkpoint
                self._verify()
            self._stamped = None
            self._sum.unlink(missing_ok=True)
            busy, *_ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                self._sum.write_bytes(self._checksum())
                self._stamped = self._stamp()

    def _read(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        """Call `ask` with a connection, in any thread; the writer's thread sees its own changes."""
        if self._copy is not None:
            return ask(self._copy)
        if self._writer is not None and self._owner == threading.get_ident():
            with self._guarded():
                return ask(self._writer)
        if self._closed:
            raise StateError("the store is closed")
        with self._guarded():
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._open_reader()
            try:
                return ask(db)
            finally:
                if self._closed:
                    db.close()
                else:
                    self._idle.append(db)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            self._check_stamp()
            yield
        except (sqlite3.Error, OSError, ValueError, DamagedError) as bad:
            error = _state_error(bad)
            if isinstance(error, DamagedError) and not self.damaged:
                self.damaged = True
                self._report(self._path, str(error))
            raise error from bad

    @contextmanager
    def batch(self) -> Iterator[None]:
        db = self._writer
        if db is None:
            raise StateError("the store is open read-only")
        if self._owner:
            yield
            return
        with self._guarded():
            db.execute("BEGIN IMMEDIATE")
        self._owner = threading.get_ident()
        try:
            yield
            with self._guarded():
                db.execute("COMMIT")
        finally:
            self._owner = 0
            if db.in_transaction:
                with suppress(sqlite3.Error):  # keep the first error
                    db.execute("ROLLBACK")
        with suppress(StateError, OSError):  # the changes are safe in the log
            if self._log.stat().st_size > self._log_max:
                self.fold()
                self._log_max = self._log.stat().st_size + _LOG_MAX

    def run(self, sql: str, *values: Any) -> int:
        """Execute one statement in a transaction; return how many rows it changed."""
        with self.batch():
            return self._read(lambda db: db.execute(sql, values).rowcount)

    def _all(self, columns: str, where: str, values: Sequence[Any] = ()) -> list[Sequence[Any]]:
        """Select columns of many sessions in one step of SQLite.

        Between two steps another Python thread may get the interpreter, and a busy one keeps it
        for milliseconds: a few hundred rows, fetched one by one, took up to a second.
        """
        whole = f"SELECT * FROM session WHERE {where}"  # noqa: S608 - our own words
        sql = f"SELECT json_group_array(json_array({columns})) FROM ({whole})"  # noqa: S608 - as above
        rows: list[Sequence[Any]] = self._read(
            lambda db: json.loads(db.execute(sql, values).fetchone()[0])
        )
        return rows

    def get(self, session_id: str) -> dict[str, Any] | None:
        return self.get_many([session_id]).get(session_id)

    def get_many(self, session_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the rows of sessions by id; unknown ids are left out."""
        wanted = list(session_ids)
        sql = f"SELECT id, row FROM record WHERE id IN ({_GIVEN})"  # noqa: S608 - ours
        values = (json.dumps(wanted),)
        rows = self._read(lambda db: {key: json.loads(row) for key, row in db.execute(sql, values)})
        return {session_id: rows[session_id] for session_id in wanted if session_id in rows}

    def documents(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the meta file, labels, tags and digest of another machine's session."""
        if not row.get("machine"):
            return {}
        sql = "SELECT documents FROM remote WHERE id = ?"
        found = self.select(sql, row["sessionId"])
        with self._guarded():
            return json.loads(found[0][0] or "{}") if found else {}

    def by_file(self, path: str) -> list[dict[str, Any]]:
        """Return the rows of all sessions in a file; a database has several."""
        ids = self._all("id", "file = ? ORDER BY id", [replace_surrogates(path)])
        return [*self.get_many(row[0] for row in ids).values()]

    def ids(self) -> list[str]:
        """List the sessions that have a row, hidden ones included, or only texts."""
        return [row[0] for row in self.select("SELECT id FROM session UNION SELECT id FROM remote")]

    def names(self) -> list[Named]:
        live = f"NOT (archived OR gone OR subagent OR hidden OR {_EMPTY})"
        columns = f"id, name, aliases, project, modified, named, {live}, hidden"
        rows = self._all(columns, "true")
        with self._guarded():
            return [
                Named(session_id, name, tuple(json.loads(also or "[]")) or (name,), *rest)
                for session_id, name, also, *rest in rows
            ]

    def directories(self) -> dict[str, str]:
        """Return the recorded directories of all sessions, by id."""
        return dict(self._all("id, cwd", "true"))  # type: ignore[arg-type] # pairs

    def places(self) -> list[Sequence[Any]]:
        """List this machine's sessions: id, recorded directory, ms when it began, places now."""
        return self._all("id, cwd, created, place, project", "machine IS NULL")

    def shown(self) -> list[Sequence[str]]:
        return self._all("id, file, cwd", "NOT gone AND machine IS NULL")

    def elsewhere(self) -> set[str]:
        """Return the sessions of other machines."""
        return {row[0] for row in self._all("id", "machine IS NOT NULL")}

    def matching(self, *filters: Filter) -> list[str] | None:
        """Return the sessions that fit all filters, newest first; None: no filter has a condition.

        Hidden ones are left out. UsageError if a `since` is not a time.
        """
        where, values = _conditions(*filters)
        return self.newest(" AND ".join(where), values) if where else None

    def newest(self, where: str = "true", values: Sequence[Any] = ()) -> list[str]:
        """Return sessions, newest first, without hidden and empty ones."""
        order = f"{where} AND NOT (hidden OR {_EMPTY}) ORDER BY modified DESC, id"
        return [row[0] for row in self._all("id", order, values)]

    def hidden(self) -> list[str]:
        """List the sessions that the user hid."""
        by_index = "hidden ORDER BY id"  # unsorted, SQLite would scan all sessions
        return [row[0] for row in self._all("id", by_index)]

    def some(self, columns: str, session_ids: Iterable[str]) -> list[Sequence[Any]]:
        """Select columns of these sessions, without hidden ones."""
        where = f"NOT hidden AND id IN ({_GIVEN})"
        return self._all(columns, where, [json.dumps([*session_ids])])

    def page(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: str = "recent",
        state: str | None = None,
        **shown: Any,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return rows, pinned ones first, then the largest of `sort`, and the next page's cursor.

        `shown` says what is listed, as in `_of_lists`. UsageError if `since` is not a time, or the
        cursor is none of ours; one of other filters gives other rows.
        """
        where, values = _of_lists(**shown)
        if state is not None:
            where.append("state = ?")
            values.append(state)
        by = _ORDERS[sort]
        if cursor is not None:
            where.append(f"(pinned, {by}) <= (?, ?) AND (pinned < ? OR {by} < ? OR id > ?)")
            pinned, place, last = _opened(cursor)
            values += [pinned, place, pinned, place, last]
        index = "INDEXED BY session_listed" if sort == "recent" and state is None else ""
        sql = (
            f"SELECT row, pinned, place, id FROM (SELECT pinned, {by} AS place, id FROM session"  # noqa: S608 - ours
            f" {index} WHERE {' AND '.join(where or ['true'])}"
            " ORDER BY pinned DESC, place DESC, id LIMIT ?)"
            " CROSS JOIN record USING (id)"  # keeps the order
        )
        rows = self._read(lambda db: db.execute(sql, (*values, limit + 1)).fetchall())
        following = None
        if len(rows) > limit:
            end = json.dumps(rows[limit - 1][1:]).encode()
            following = base64.urlsafe_b64encode(end).decode()
        with self._guarded():
            return [json.loads(text) for text, *_ in rows[:limit]], following

    def count(self, by: str, **shown: Any) -> dict[str, int]:
        """Count the sessions that `page` would list, by a column, most first."""
        where, values = _of_lists(**shown)
        sql = (
            f"SELECT {by}, count(*) FROM session WHERE {' AND '.join(where or ['true'])}"  # noqa: S608 - ours
            f" GROUP BY {by} ORDER BY count(*) DESC, {by}"
        )
        return dict(self.select(sql, *values))

    def leave_out(self, session_ids: Collection[str]) -> None:
        """Replace a store opened `readonly` by a copy in memory without these sessions."""
        copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._read(lambda db: db.backup(copy))
        for table in ("session", "record", "usage", "remote"):
            copy.executemany(f"DELETE FROM {table} WHERE id = ?", zip(session_ids))  # noqa: S608 - ours
        self._copy = copy

    def kinds(self) -> dict[str, int]:
        """Count this machine's sessions by what lists do with them, most first."""
        kind = (
            "CASE WHEN subagent THEN 'subagents' WHEN archived THEN 'archived' WHEN hidden"
            f" THEN 'hidden' WHEN {_EMPTY} THEN 'empty' ELSE 'listed' END"
        )
        where = "NOT gone AND machine IS NULL GROUP BY 1 ORDER BY count(*) DESC"
        return dict(self.select(f"SELECT {kind}, count(*) FROM session WHERE {where}"))  # noqa: S608 - ours

    def select(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._read(lambda db: db.execute(sql, values).fetchall())

    def put_usage(self, session_id: str, usage: SessionUsage) -> None:
        """Replace a session's use by day and model, and its context."""
        names = "context = ?, context_window = ?, provider = ?, model = ?"
        last = usage.context, usage.window, usage.provider, usage.model
        with self.batch():
            self.run(f"UPDATE session SET {names} WHERE id = ?", *last, session_id)  # noqa: S608 - ours
            self.run("DELETE FROM usage WHERE id = ?", session_id)
            for use in usage.uses:
                counts = (min(count, _COUNT_MAX) for count in (use.prompts, *use.tokens))
                values = session_id, use.day, use.model, *counts, use.cost_usd, use.estimated_usd
                marks = ", ".join("?" * len(values))
                self.run(f"INSERT INTO usage VALUES ({marks})", *values)  # noqa: S608 - ours

    def put(self, rows: Iterable[tuple[Mapping[str, Any], Named, int]]) -> list[str]:
        """Write rows with their names and text hashes; return the sessions whose texts changed."""
        items = list(rows)  # first, so that their errors do not count as the store's
        with self.batch():
            return self._read(lambda db: [item[1].session_id for item in items if _put(db, *item)])

    def forget(self, session_id: str) -> bool:
        """Delete a session's row; return whether there was one."""
        with self.batch():
            self.run("DELETE FROM record WHERE id = ?", session_id)
            self.run("DELETE FROM usage WHERE id = ?", session_id)
            return self.run("DELETE FROM session WHERE id = ?", session_id) > 0

    def replaced(self, session_id: str) -> None:
        """Note for the fleet that a session's messages were replaced: all are told again."""
        with self.batch():
            sql = "UPDATE sent SET stale = 1 WHERE id = ? AND kind = 'text'"
            self.run(sql, session_id)
            # A batch under way, which is not in `sent` yet, may have old ones.
            sql = "INSERT INTO sent SELECT min(0, min(seq)) - 1, 'text', ?, 0, x'', 1 FROM sent"
            on = "EXISTS (SELECT 1 FROM note WHERE topic = 'fleet' AND key = 'flight')"
            self.run(f"{sql} HAVING {on}", session_id)

    def links(self, key: Literal["id", "parent"], wanted: Iterable[str]) -> list[Link]:
        """Return the links to their parents of sessions with these ids, or with these parents."""
        # One by one: a JSON list would end at a null character, which a session file may contain.
        sql = (
            "SELECT id, coalesce(parent, ''), coalesce(created, 0), subagent FROM session"  # noqa: S608 - our own names
            f" WHERE {key} = ?"
        )
        keys = [(replace_surrogates(session_id),) for session_id in wanted]
        rows = self._read(lambda db: [row for values in keys for row in db.execute(sql, values)])
        return [Link(session_id, above, born, bool(sub)) for session_id, above, born, sub in rows]

    def subagents(self, session_id: str) -> list[str]:
        """Return a session's sub-agents, those of theirs included."""
        level, found = [session_id], dict[str, None]()
        while level:
            below = [link.session_id for link in self.links("parent", level) if link.subagent]
            level = [each for each in dict.fromkeys(below) if each not in (session_id, *found)]
            found |= dict.fromkeys(level)
        return [*found]

    def text_hashes(self) -> dict[str, int]:
        return dict(self._all("id, text_hash", "true"))  # type: ignore[arg-type] # pairs

    def files(self) -> list[tuple[str, Cursor, SessionInfo | None]]:
        raw = self._read(lambda db: db.execute("SELECT path, cursor, info FROM file").fetchall())
        rows = ((key.decode("utf-8", "surrogateescape"), at, info) for key, at, info in raw)
        with self._guarded():
            return [
                (path, _cursor(at), unpack(info, path) if info else None) for path, at, info in rows
            ]

    def put_files(self, files: Mapping[str, tuple[Cursor, SessionInfo | None] | None]) -> None:
        """Write the cursors and infos of files by path; None deletes a file's."""
        for path, known in files.items():
            key = path.encode("utf-8", "surrogateescape")  # bytes as on disk, perhaps not UTF-8
            if known is None:
                self.run("DELETE FROM file WHERE path = ?", key)
            else:
                values = key, _encode(known[0]), pack(known[1]) if known[1] else b""
                self.run("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", *values)

    def note(self, topic: str, key: str, value: bytes | None) -> None:
        """Store a value under a topic, such as a retry state; None deletes it."""
        if value is None:
            self.run("DELETE FROM note WHERE topic = ? AND key = ?", topic, key)
        else:
            self.run("INSERT OR REPLACE INTO note VALUES (?, ?, ?)", topic, key, value)

    def notes(self, topic: str, read: Callable[[bytes], _T]) -> dict[str, _T]:
        """Return all values under a topic, each decoded by `read`."""
        sql = "SELECT key, value FROM note WHERE topic = ?"
        return self._read(lambda db: {key: read(value) for key, value in db.execute(sql, (topic,))})

    def noted(self, topic: str, key: str, read: Callable[[bytes], _T]) -> _T | None:
        """Return one value of a topic, decoded by `read`; None if there is none."""
        sql = "SELECT value FROM note WHERE topic = ? AND key = ?"
        values = self._read(lambda db: [read(value) for (value,) in db.execute(sql, (topic, key))])
        return values[0] if values else None


def _state_error(bad: Exception) -> StateError:
    """Turn a failure of the store into an error for the user."""
    if isinstance(bad, StateError):
        return bad
    if isinstance(bad, OSError):
        return AccessError(f"the store cannot be opened: {bad.strerror}")
    code = getattr(bad, "sqlite_errorcode", -1) & 0xFF  # without the extended code
    # An error about text that is not UTF-8 has no code, and quotes the text.
    undecodable = isinstance(bad, sqlite3.OperationalError) and not hasattr(bad, "sqlite_errorcode")
    if undecodable or code in _DAMAGE or not isinstance(bad, sqlite3.Error):
        what = getattr(bad, "sqlite_errorname", type(bad).__name__)  # nothing from a session
        return DamagedError(f"the store is damaged: {what}")
    kind = AccessError if code in _ACCESS else WriteError
    return kind(f"the store cannot be used now: {bad}")


def _check(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        what = f"the store has version {version}, not {VERSION}"
        raise DamagedError(f"{what}; the daemon or `indexerd run --once` rebuilds it")


def _delete(path: Path) -> None:
    """Delete a store's files, or anything else in their place."""
    for file in path.parent.glob(f"{path.name}*"):
        remove(file)


def _opened(cursor: str) -> tuple[int, float, str]:
    """Decode a cursor's place."""
    try:
        data = base64.urlsafe_b64decode(cursor)
        return msgspec.json.decode(data, type=tuple[int, int | float, str])
    except ValueError:
        hint = "omit the cursor to start with the first page"
        raise UsageError("not a cursor of this list", hint=hint) from None


def _conditions(*filters: Filter) -> tuple[list[str], list[str | float]]:
    """Make SQL conditions and their values."""
    where: list[str] = []
    values: list[str | float] = []

    def add(condition: str, *wanted: str | float) -> None:
        where.append(condition)
        values.extend(wanted)

    for agent, cwd, since, tag, project in filters:
        if cwd is not None:
            # Everything that begins with `/a/b/` is between that and `/a/b0`: 0 follows the slash.
            base = replace_surrogates(cwd).rstrip("/")
            below = base + "/", base + "0"
            if is_windows_path(base):
                add(f"instr({_SLASHED.format('project')} || '/', ?) = 1", f"{_slashed(base)}/")
            else:
                add("(project = ? OR project >= ? AND project < ?)", base or "/", *below)
        if agent is not None:
            if agent not in ADAPTERS:
                why = f"no such agent: {clean_line(agent, 40)}"
                raise UsageError(why, hint=f"agents are {', '.join(ADAPTERS)}")
            add("agent = ?", agent)
        if since is not None:
            moment = iso_ms(since)
            if moment == 0:
                hint = "write it like 2026-01-31T12:00:00Z"
                raise UsageError("since is not a time", hint=hint)
            add("modified >= ?", moment)
        if tag is not None:
            add("instr(tags, ?)", _listed([tag]))
        if project is not None:
            begin = "\n" if project.startswith("/") or is_windows_path(project) else "/"
            places = " || ".join(
                f"char(10) || {each} || '/'" for each in ("project", "place", "cwd")
            )
            add(f"instr({_SLASHED.format(places)}, ?)", f"{begin}{_slashed(project)}/")
    return where, values


def _slashed(path: str) -> str:
    """Write a path as `_SLASHED` does, without slashes at its end."""
    lower = replace_surrogates(path).encode().lower().decode()  # of ASCII only, like SQLite's
    return lower.replace("\\", "/").rstrip("/")


def _listed(tags: Iterable[str]) -> str:
    """Write tags so that each can be found whole, in any case, with and without a "#"."""
    words = (replace_surrogates(tag).strip().removeprefix("#").casefold() for tag in tags)
    return "".join(f"\n{word}\n" for word in words)


def _of_lists(
    *, archived: bool = False, subagents: bool = False, hidden: bool = False, **fields: Any
) -> tuple[list[str], list[str | float]]:
    """Make the conditions of a list; `fields` are those of a `Filter`.

    `archived` adds archived and gone sessions, `subagents` those of sub-agents, `hidden` those
    that the user hid.
    """
    where, values = _conditions(Filter(**fields))
    where += [] if archived else ["NOT archived", "NOT gone", f"NOT {_EMPTY}"]
    where += [] if subagents else ["NOT subagent"]
    return where if hidden else [*where, "NOT hidden"], values


def _put(db: sqlite3.Connection, row: Mapping[str, Any], names: Named, texts: int) -> bool:
    """Write one row; return whether its texts changed."""
    *aliases, name, project, cwd, file, parent = (
        replace_surrogates(str(value or ""))
        for value in (
            *(*names.aliases, names.name, names.cwd, row.get("cwd"), row.get("sessionFile")),
            row.get("parentSessionId") or row.get("parentSessionFile"),
        )
    )
    costs = [row[key] for key in ("costUsd", "costEstimatedUsd") if row.get(key) is not None]
    values = {
        "id": names.session_id,
        "agent": row.get("agent"),
        "cwd": cwd,
        "place": replace_surrogates(str(row.get("movedTo") or cwd)),
        "project": project.rstrip("/") or project[:1],
        "file": file,
        "modified": names.modified,
        "created": iso_ms(str(row.get("createdAt") or "")),
        **{key: int(bool(row.get(key))) for key in _FLAGS},
        # The user's own are listed twice, which tells them from a model's.
        "tags": _listed([*row.get("ownTags", ()), *(row.get("tags") or ())]),
        "parent": parent or None,
        "name": name,
        "named": int(names.named),
        "aliases": "" if aliases == [name] else json.dumps(aliases),
        "text_hash": texts,
        "state": row.get("state"),
        "messages": row.get("messageCount") or 0,
        "prompts": row.get("userMessageCount") or 0,
        "duration": row.get("durationMs"),
        "cost": sum(costs) if costs else None,
        "machine": row.get("machine"),
    }
    sql = "SELECT text_hash FROM session WHERE id = ?"
    old = db.execute(sql, (names.session_id,)).fetchone()
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    updates = ", ".join(f"{key} = excluded.{key}" for key in values)
    sql = f"INSERT INTO session ({columns}) VALUES ({marks})"  # noqa: S608 - ours
    sql += f" ON CONFLICT (id) DO UPDATE SET {updates}"
    db.execute(sql, [*values.values()])
    whole = json.dumps(row, separators=(",", ":"))
    db.execute("INSERT OR REPLACE INTO record VALUES (?, ?)", (names.session_id, whole))
    return bool(old != (texts,))


def hashed(*texts: str) -> bytes:
    """Hash texts to eight bytes."""
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=8).digest()

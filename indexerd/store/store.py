"""The store: rows, cursors and notes, in one SQLite file that may be deleted.

Nothing in it is the only copy (truth order: session file > meta file > store): losing it costs a
reading, never data and never a model call. One thread writes; any thread reads, through a
connection of its own, what was last committed. `readonly` is for commands that run without a
daemon: whatever is wrong with the file, they get an empty store and a `problem`, not an error.

Trouble of its place (a full disk, a lock, a right) is an error for the caller, and nothing is
dropped for it; anything else that is raised is damage. A damaged file is set aside when the store
is opened, or when it is closed after damage showed; the daemon then restarts itself.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from indexerd.errors import DamagedError, IndexerdError, StateError, UsageError
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.sessions.family import Link
from indexerd.sources.cursor import Cursor
from indexerd.store.integrity import (
    Checksum,
    beside,
    is_trouble,
    named,
    remove,
    set_aside,
    state_error,
)
from indexerd.store.pages import Page, conditions, opened, sealed
from indexerd.times import iso_ms

VERSION = 3
LIMIT_MAX = 1000  # rows of a page
_LOG_MAX = 16 << 20  # bytes, before the log is brought into the file
_BUSY_MS = 5000

_T = TypeVar("_T")

# Rows stand beside `session`: sorting it reads none of them (500 rows take 3 ms so, and not 9).
_SCHEMA = f"""
CREATE TABLE session (
  no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT, cwd TEXT, file TEXT,
  modified INTEGER, created INTEGER, archived INTEGER, gone INTEGER, subagent INTEGER,
  parent TEXT, name TEXT, named INTEGER, aliases TEXT, row_hash BLOB, text_hash INTEGER);
CREATE INDEX session_listed
  ON session (modified DESC, id, agent, cwd, archived, gone, subagent);
CREATE INDEX session_file ON session (file);
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE TABLE record (no INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE file (path BLOB PRIMARY KEY, cursor BLOB, info BLOB) WITHOUT ROWID;
CREATE TABLE note (topic TEXT, key TEXT, value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_COLUMNS = (
    "agent", "cwd", "file", "modified", "created", "archived", "gone", "subagent", "parent",
    "name", "named", "aliases", "row_hash",
)  # fmt: skip
_SET = ", ".join(f"{one} = ?" for one in _COLUMNS)


class Named(NamedTuple):
    """What a session is called."""

    session_id: str
    name: str
    aliases: tuple[str, ...]  # every name it answers to, `name` included
    cwd: str
    modified: int  # milliseconds since the epoch
    named: bool  # the name was given by somebody, and not only taken from a message or a file
    live: bool  # neither gone nor archived, and not a sub-agent's


class StateStore:
    """Rows, cursors and notes."""

    def __init__(
        self,
        path: Path,
        report: Callable[[str], None] = lambda _why: None,
        *,
        readonly: bool = False,
    ) -> None:
        """Raises StateError where the file can be neither opened nor made.

        `report(why)` is called once, in any thread, where it is damaged.
        """
        self.damaged = False
        self.problem: str | None = None  # why a store that is only read is empty
        self.renamed = 0  # counts up where rows were stored, and the names index was not told
        self._path = path
        self._report = report
        self._readonly = readonly
        self._writer: sqlite3.Connection | None = None
        self._checksum: Checksum | None = None
        self._log_max = _LOG_MAX
        self._unfolded = False
        self._depth = self._owner = 0  # of transactions, and the thread that has one open
        self._idle: list[sqlite3.Connection] = []  # readers
        self._closed = False
        if readonly:
            self._idle.append(self._open_readonly())
            return
        try:
            self._open()
        except Exception as bad:
            if is_trouble(bad):
                raise state_error(bad) from bad
            try:
                set_aside(self._path)
                self._open()
            except Exception as again:
                raise state_error(again) from again
            report(named(bad))

    # -- opening and closing ---------------------------------------------------------------

    def _open(self) -> None:
        checksum = Checksum(self._path)
        db: sqlite3.Connection | None = None
        try:
            checksum.check()
            db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if not tables:
                checksum.drop()  # what comes now is written without a log
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA wal_autocheckpoint = 0")  # but by our checksum
            db.execute("PRAGMA secure_delete = ON")
            if not tables:
                db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            _check(db)
        except BaseException:
            if db is not None:
                db.close()
            checksum.close()
            raise
        self._writer, self._checksum = db, checksum

    def _open_readonly(self) -> sqlite3.Connection:
        try:
            db = self._open_reader("ro")
            _check(db)
        except Exception as bad:  # noqa: BLE001 - whatever it is, there is nothing to be read
            self.problem = f"{self._path}: {bad if is_trouble(bad) else named(bad)}"
            db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            db.executescript(_SCHEMA)
        return db

    def _open_reader(self, mode: str = "rw") -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = MEMORY")  # what is sorted needs no room on a full disk
        return db

    def close(self) -> None:
        """Bring the log into the file and let go of it; a damaged file is set aside."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        if self._writer is None or self._checksum is None:
            return
        if not self._checksum.checkpoint(self._writer):  # SQLite may write as it closes
            with suppress(OSError):
                self._checksum.drop()
        self._writer.close()
        self._checksum.close()
        self._writer = self._checksum = None
        if self.damaged:
            with suppress(OSError):
                set_aside(self._path)

    def fold(self) -> None:
        """Drop what was set aside, and bring the log into the file: what was dropped is in none.

        While others read that cannot be; it is done with the next transaction, or at the end.
        """
        with suppress(OSError):
            remove(beside(self._path, ".aside"))
        self._unfolded = True
        self._fold()

    def _fold(self) -> None:
        if self._writer is None or self._checksum is None:
            return
        if self._unfolded or self._checksum.logged > self._log_max:
            self._unfolded = not self._checksum.checkpoint(self._writer)
            self._log_max = self._checksum.logged + _LOG_MAX

    # -- asking and writing --------------------------------------------------------------

    def read(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        """What `ask` makes of the store, in any thread; in a transaction's, with what it wrote.

        Whatever is made of values that are stored is made in `ask`: it may find them damaged.
        """
        if self._writer is not None and self._owner == threading.get_ident():
            return self._guarded(ask, self._writer)
        if self._closed:
            raise StateError("the store is closed")
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._guarded(lambda _: self._open_reader(), None)
        try:
            return self._guarded(ask, db)
        finally:
            if self._closed:
                db.close()
            else:
                self._idle.append(db)

    def _guarded(self, ask: Callable[[Any], _T], db: sqlite3.Connection | None) -> _T:
        try:
            return ask(db)
        except Exception as bad:
            if isinstance(bad, IndexerdError) and not isinstance(bad, DamagedError):
                raise
            if not is_trouble(bad) and not self.damaged:
                self.damaged = True
                self._report(named(bad))
            raise state_error(bad) from bad

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction around many calls."""
        if self._writer is None:
            raise StateError("the store is open for reading only")
        if self._depth:
            yield
            return
        db = self._writer
        self._guarded(lambda db: db.execute("BEGIN IMMEDIATE"), db)
        self._depth, self._owner = 1, threading.get_ident()
        try:
            yield
            self._guarded(lambda db: db.execute("COMMIT"), db)
        finally:
            self._depth = self._owner = 0
            if db.in_transaction:
                with suppress(sqlite3.Error):  # the first error is the one to tell
                    db.execute("ROLLBACK")
        self._fold()

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something in a transaction."""
        with self.batch():
            return self.read(work)

    # -- rows ----------------------------------------------------------------------------

    def get(self, session_id: str) -> dict[str, Any] | None:
        """The row of a session."""
        return self.get_many([session_id]).get(session_id)

    def get_many(self, session_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The rows of some sessions by their ids; unknown ones are left out."""
        wanted = list(dict.fromkeys(session_ids))
        sql = "SELECT row FROM record JOIN session USING (no) WHERE id = ?"

        def ask(db: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            found = (
                (one, db.execute(sql, (replace_surrogates(one),)).fetchone()) for one in wanted
            )
            return {one: json.loads(row[0]) for one, row in found if row}

        return self.read(ask)

    def by_file(self, path: str) -> tuple[dict[str, Any], ...]:
        """The rows of all sessions in a file: one, but for agents that keep a database."""
        sql = "SELECT row FROM record JOIN session USING (no) WHERE file = ? ORDER BY id"

        def ask(db: sqlite3.Connection) -> tuple[dict[str, Any], ...]:
            return tuple(json.loads(row) for (row,) in db.execute(sql, (replace_surrogates(path),)))

        return self.read(ask)

    def count(self) -> int:
        """How many sessions there are, hidden ones included."""
        return self.read(lambda db: int(db.execute("SELECT count(*) FROM record").fetchone()[0]))

    def ids(self) -> tuple[str, ...]:
        """The sessions that have a row."""
        return tuple(one for (one,) in self._all("id", "row_hash NOT NULL"))

    def names(self) -> list[Named]:
        """What every session is called."""
        live = "NOT (archived OR gone OR subagent)"
        columns = f"id, name, aliases, cwd, modified, named, {live}"
        return [
            Named(
                one,
                name,
                tuple(json.loads(aliases)) if aliases else (name,),
                cwd,
                modified,
                bool(given),
                bool(alive),
            )
            for one, name, aliases, cwd, modified, given, alive in self._all(
                columns, "row_hash NOT NULL"
            )
        ]

    def shown(self) -> list[Sequence[str]]:
        """The id, file and directory of every session whose file was there last."""
        return self._all("id, file, cwd", "row_hash NOT NULL AND NOT gone")

    def matching(
        self, agent: str | None, cwd: str | None, since: str | None
    ) -> frozenset[str] | None:
        """The sessions that fit; None stands for all. UsageError for a `since` that is no time."""
        where, values = conditions(agent, cwd, since)
        if not where:
            return None
        return frozenset(one for (one,) in self._all("id", " AND ".join(where), values))

    def by_age(self, session_ids: frozenset[str] | None) -> list[str]:
        """These sessions, or all, those last used first."""
        found = [one for (one,) in self._all("id", "row_hash NOT NULL ORDER BY modified")]
        return [one for one in reversed(found) if session_ids is None or one in session_ids]

    def some(self, columns: str, session_ids: Iterable[str]) -> list[Sequence[Any]]:
        """Something of these sessions."""
        where = "id IN (SELECT value FROM json_each(?)) AND row_hash NOT NULL"
        return self._all(columns, where, [json.dumps([*session_ids])])

    def _all(self, columns: str, where: str, values: Sequence[Any] = ()) -> list[Sequence[Any]]:
        """Something of many sessions, in one step of SQLite.

        Between two steps Python's other threads may take the interpreter, and a busy one keeps it
        for milliseconds: some hundred rows, fetched one by one, took up to a second.
        """
        whole = f"SELECT * FROM session WHERE {where}"  # noqa: S608 - our own words
        sql = f"SELECT json_group_array(json_array({columns})) FROM ({whole})"  # noqa: S608 - as above

        def ask(db: sqlite3.Connection) -> list[Sequence[Any]]:
            with _once_through(db):
                found: list[Sequence[Any]] = json.loads(db.execute(sql, values).fetchone()[0])
            return found

        return self.read(ask)

    def page(
        self,
        *,
        agent: str | None = None,
        cwd: str | None = None,
        since: str | None = None,
        archived: bool = False,
        subagents: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Rows, last modified first, then by id.

        `cwd` stands for that directory and all below; `archived` adds archived and gone
        sessions, `subagents` those of sub-agents. Raises UsageError for a limit below 1, a
        `since` that is no time, a cursor that was not given out for the same filters.
        """
        if limit < 1:
            raise UsageError("a limit is 1 or more")
        limit = min(limit, LIMIT_MAX)
        where, values = conditions(agent, cwd, since)
        where += ["modified NOT NULL"]  # which a session is whose words alone are known
        where += [] if archived else ["NOT archived", "NOT gone"]
        where += [] if subagents else ["NOT subagent"]
        filters = repr((agent, cwd, since, archived, subagents))
        if cursor is not None:
            where.append("modified <= ? AND (modified < ? OR id > ?)")
            modified, last = opened(cursor, filters)
            values += [modified, modified, last]
        sql = (
            "SELECT row, modified, id FROM (SELECT no, modified, id FROM session"  # noqa: S608 - ours
            f" INDEXED BY session_listed WHERE {' AND '.join(where)}"
            " ORDER BY modified DESC, id LIMIT ?)"
            " CROSS JOIN record USING (no)"  # which goes through the former as it is sorted
        )
        found = self.read(lambda db: db.execute(sql, (*values, limit + 1)).fetchall())
        following = None
        if len(found) > limit:
            following = sealed(found[limit - 1][1], found[limit - 1][2], filters)
        return Page(tuple(text for text, _, _ in found[:limit]), following)

    def put(self, rows: Iterable[tuple[Mapping[str, Any], Named, int]]) -> list[str]:
        """Add rows or take over what changed in them.

        Each comes with its names and a hash of the texts that it is found by. Returns the sessions
        whose texts are others now.
        """
        items = [_Item.of(*one) for one in rows]  # which may fail by what is given
        return self.write(lambda db: [one.session_id for one in items if _put(db, one)])

    def forget(self, session_id: str) -> bool:
        """Drop a session's row; whether there was anything of it."""

        def work(db: sqlite3.Connection) -> bool:
            sql = "SELECT no FROM session WHERE id = ?"
            found = db.execute(sql, (replace_surrogates(session_id),)).fetchone()
            if found is not None:
                db.execute("DELETE FROM record WHERE no = ?", found)
                db.execute("DELETE FROM session WHERE no = ?", found)
            return found is not None

        return self.write(work)

    # -- families ------------------------------------------------------------------------

    def links(self, session_ids: Iterable[str]) -> list[Link]:
        """Which session each of these came from; unknown ones are left out."""
        return self._links("id", session_ids)

    def children(self, parents: Iterable[str]) -> list[Link]:
        """The sessions that came from these: their ids, or files that nobody has met."""
        return self._links("parent", parents)

    def _links(self, key: str, wanted: Iterable[str]) -> list[Link]:
        # One by one: a list in JSON would end at a null character, which any hand can have written.
        sql = (
            "SELECT id, parent, created, subagent FROM session"  # noqa: S608 - our own names
            f" WHERE row_hash IS NOT NULL AND {key} = ?"
        )
        asked = list(wanted)

        def ask(db: sqlite3.Connection) -> list[Link]:
            rows = (row for one in asked for row in db.execute(sql, (replace_surrogates(one),)))
            return [Link(one, above or "", born or 0, bool(sub)) for one, above, born, sub in rows]

        return self.read(ask)

    def text_hashes(self) -> dict[str, int]:
        """What every session's own texts hash to."""
        return dict(self._all("id, text_hash", "true"))  # type: ignore[arg-type] # pairs

    # -- session files: cursors, and what is known of each ---------------------------------

    def files(self, decode: Callable[[bytes, str], _T]) -> list[tuple[str, Cursor, _T]]:
        """Every file's path and cursor, and what `decode(packed, path)` makes of the rest."""

        def ask(db: sqlite3.Connection) -> list[tuple[str, Cursor, _T]]:
            with _once_through(db):
                rows = db.execute("SELECT path, cursor, info FROM file").fetchall()
            named = ((_bytes(path).decode("utf-8", "surrogateescape"), c, d) for path, c, d in rows)
            return [(path, _cursor(at), decode(_bytes(info), path)) for path, at, info in named]

        return self.read(ask)

    def put_files(self, files: Iterable[tuple[str, Cursor, bytes]]) -> None:
        """Write (path, cursor, packed): what is known and where reading stopped, together."""
        rows = [(_key(path), _encode(cursor), info) for path, cursor, info in files]
        sql = "INSERT OR REPLACE INTO file (path, cursor, info) VALUES (?, ?, ?)"
        if rows:
            self.write(lambda db: db.executemany(sql, rows))

    def forget_files(self, paths: Iterable[str]) -> None:
        """Drop files."""
        keys = [(_key(path),) for path in paths]
        if keys:
            self.write(lambda db: db.executemany("DELETE FROM file WHERE path = ?", keys))

    # -- notes: retry state, issued references, what is remembered of meta files ---------

    def note(self, topic: str, key: str, value: bytes | None) -> None:
        """Keep a small value under a topic; None drops it."""
        if value is None:
            drop = "DELETE FROM note WHERE topic = ? AND key = ?"
            self.write(lambda db: db.execute(drop, (topic, key)))
        else:
            keep = "INSERT OR REPLACE INTO note VALUES (?, ?, ?)"
            self.write(lambda db: db.execute(keep, (topic, key, value)))

    def notes(self, topic: str, read: Callable[[bytes], Any] = bytes) -> dict[str, Any]:
        """All values under a topic, as `read` makes them of what was kept."""
        sql = "SELECT key, value FROM note WHERE topic = ?"

        def ask(db: sqlite3.Connection) -> dict[str, Any]:
            return {str(key): read(_bytes(value)) for key, value in db.execute(sql, (topic,))}

        return self.read(ask)

    def noted(self, topic: str, key: str, read: Callable[[bytes], Any] = bytes) -> Any:
        """Give one value of a topic; None where there is none."""
        sql = "SELECT value FROM note WHERE topic = ? AND key = ?"

        def ask(db: sqlite3.Connection) -> Any:
            row = db.execute(sql, (topic, key)).fetchone()
            return read(_bytes(row[0])) if row else None

        return self.read(ask)

    def trim(self, topic: str, keep: int) -> None:
        """Drop all values of a topic but the `keep` greatest; bytes are compared."""
        sql = (
            "DELETE FROM note WHERE topic = :topic AND key IN (SELECT key FROM note"
            " WHERE topic = :topic ORDER BY value DESC LIMIT -1 OFFSET :keep)"
        )
        self.write(lambda db: db.execute(sql, {"topic": topic, "keep": keep}))


@contextmanager
def _once_through(db: sqlite3.Connection) -> Iterator[None]:
    """Keep few pages in memory while a table is read from one end to the other.

    Each connection keeps up to 2 MB of what it read, and of such a reading none is asked for again:
    at a start that was a tenth of what 10,000 sessions take.
    """
    (kept,) = db.execute("PRAGMA cache_size").fetchone()
    db.execute("PRAGMA cache_size = -256")
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # the first error is the one to tell
            db.execute(f"PRAGMA cache_size = {kept}")


def _check(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise DamagedError(f"the store is of version {version}, not {VERSION}")
    db.execute("SELECT * FROM session JOIN record USING (no)").fetchone()
    db.execute("SELECT path FROM file").fetchone()
    db.execute("SELECT key FROM note").fetchone()


class _Item(NamedTuple):
    """One row, ready to be stored."""

    session_id: str
    values: tuple[Any, ...]  # as in _COLUMNS
    row: str
    text_hash: int

    @classmethod
    def of(cls, row: Mapping[str, Any], held: Named, text_hash: int) -> _Item:
        names = [replace_surrogates(name) for name in held.aliases]
        aliases = "" if names == [replace_surrogates(held.name)] else json.dumps(names)
        cwd = replace_surrogates(held.cwd)
        whole = json.dumps(row, separators=(",", ":"))
        values = (
            replace_surrogates(str(row.get("agent") or "")),
            cwd.rstrip("/") or cwd[:1],
            replace_surrogates(str(row.get("sessionFile") or "")),
            held.modified,
            iso_ms(str(row.get("createdAt") or "")),
            *(bool(row.get(key)) for key in ("archived", "gone", "subagent")),
            replace_surrogates(
                str(row.get("parentSessionId") or row.get("parentSessionFile") or "")
            )
            or None,
            replace_surrogates(held.name),
            held.named,
            aliases,
            hashed(whole, aliases),
        )
        return cls(replace_surrogates(held.session_id), values, whole, text_hash)


def _put(db: sqlite3.Connection, item: _Item) -> bool:
    """Take over one row; whether its texts are others."""
    sql = "SELECT no, row_hash, text_hash FROM session WHERE id = ?"
    held = db.execute(sql, (item.session_id,)).fetchone()
    if held is None:
        made = db.execute("INSERT INTO session (id) VALUES (?)", (item.session_id,))
        held = (made.lastrowid, None, None)
    no, row_hash, text_hash = held
    if row_hash != item.values[-1]:
        db.execute("INSERT OR REPLACE INTO record VALUES (?, ?)", (no, item.row))
        db.execute(f"UPDATE session SET {_SET} WHERE no = ?", (*item.values, no))  # noqa: S608 - our own names
    if text_hash == item.text_hash:
        return False
    db.execute("UPDATE session SET text_hash = ? WHERE no = ?", (item.text_hash, no))
    return True


def hashed(*texts: str, size: int = 16) -> bytes:
    """The same for the same texts."""
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=size).digest()


_encode = msgspec.msgpack.Encoder().encode
_cursor = msgspec.msgpack.Decoder(Cursor).decode


def _key(path: str) -> bytes:
    """Paths are bytes on disk, and may be no UTF-8."""
    return path.encode("utf-8", "surrogateescape")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise DamagedError("not what was put in")
    return value

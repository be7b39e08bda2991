"""The store: rows, cursors, session states and notes, in one SQLite file that may be deleted.

Nothing in it is the only copy (truth order: session file > meta file > store): losing it costs a
reading, never data and never a model call. One thread writes; any thread reads, through a
connection of its own, what was last committed. `readonly` is for commands that run without a
daemon: whatever is wrong with the file, they get an empty store and a `problem`, not an error.

What the file raises passes one guard. Trouble of its place (a full disk, a lock, a right) is an
error for the caller, and nothing is dropped for it; anything else is damage, noted at once
(`damaged`), and `renew` then sets the file aside and begins an empty one, once a run. `made` counts
the files that were begun: who keeps something of the old one has to fill the new one.

A connection is never closed while another thread asks it something: Python's sqlite3 then reads
what is no more, and the process ends (seen with 3.11). What is asked as all is closed is cut short.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import msgspec

from indexerd.errors import DamagedError, IndexerdError, StateError, UsageError
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.family import Link
from indexerd.sources.cursor import Cursor
from indexerd.store.integrity import (
    Checksum,
    beside,
    is_access,
    is_trouble,
    named,
    ours,
    remove,
    set_aside,
)
from indexerd.store.pages import conditions, index_for, opened, sealed
from indexerd.times import iso_ms

VERSION = 1
LIMIT_MAX = 1000  # rows of a page
_LOG_MAX = 16 << 20  # bytes, before the log is brought into the file
_BUSY_MS = 5000
_CUT_SECONDS, _CUT_AGAIN = 2.0, 0.01  # for what is under way to end, and between two words to it

_T = TypeVar("_T")

# Rows stand beside `session`: sorting it reads none of them (500 rows take 3 ms so, and not 9).
_SCHEMA = f"""
CREATE TABLE session (
  no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT, cwd TEXT, file TEXT,
  modified INTEGER, created INTEGER, archived INTEGER, gone INTEGER, subagent INTEGER,
  parent TEXT, name TEXT, named INTEGER, aliases TEXT, row_hash BLOB, text_hash BLOB, mark TEXT);
CREATE INDEX session_listed
  ON session (modified DESC, id, agent, cwd, archived, gone, subagent);
CREATE INDEX session_file ON session (file);
CREATE INDEX session_cwd ON session (cwd);
CREATE INDEX session_agent ON session (agent);
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE TABLE record (no INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE file (path BLOB PRIMARY KEY, cursor BLOB, card BLOB, state BLOB) WITHOUT ROWID;
CREATE TABLE note (topic TEXT, key TEXT, value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_ROW = "SELECT row FROM record JOIN session USING (no) WHERE id = ?"
_SET = (
    "agent", "cwd", "file", "modified", "created", "archived", "gone", "subagent", "parent",
    "name", "named", "aliases",
)  # fmt: skip
_HELD = f"SELECT no, row_hash, text_hash, {', '.join(_SET)} FROM session WHERE id = ?"  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and what to ask for the next ones with; None where there are none.

    `texts` are the rows in JSON: who passes them on need not read them.
    """

    texts: tuple[str, ...]
    next_cursor: str | None = None

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows themselves."""
        return tuple(json.loads(text) for text in self.texts)


class Named(NamedTuple):
    """What a session is called."""

    session_id: str
    name: str
    aliases: tuple[str, ...]  # every name it answers to, `name` included
    cwd: str
    modified: int  # milliseconds since the epoch
    named: bool  # the name was given by somebody, and not only taken from a message or a file
    live: bool  # neither gone nor archived, and not a sub-agent's


def _nobody(_why: str) -> None:
    """Nobody is told."""


class StateStore:
    """Rows, cursors, states and notes."""

    def __init__(
        self, path: Path, report: Callable[[str], None] = _nobody, *, readonly: bool = False
    ) -> None:
        """Raises StateError where the file can be neither opened nor made.

        `report(why)` is told, in any thread, that it is damaged.
        """
        self.damaged = False  # and not made anew yet
        self.problem: str | None = None  # why it stays empty, or is damaged still
        self.made = 0
        self.renamed = 0  # counts up where rows were stored, and nobody was told
        self._path = path
        self._report = report
        self._readonly = readonly
        self._writer: sqlite3.Connection | None = None
        self._checksum: Checksum | None = None
        self._log_max = _LOG_MAX
        self._renewed = self._renewing = self._unfolded = False
        self._depth = 0  # of transactions
        self._lost: Exception | None = None  # why the one under way is
        self._owner = 0  # the thread that has one open
        self._mine = threading.local()
        self._lock = threading.Condition()
        self._asking = 0  # threads that use a reader
        self._readers: list[sqlite3.Connection] | None = []
        if readonly:
            self.read(lambda db: db.execute("SELECT 1 FROM record LIMIT 1").fetchone())
            return
        try:
            self._begin()
        except Exception as bad:
            if is_trouble(bad):
                raise ours(bad) from bad
            self._begin_anew()
            report(named(bad))

    # -- opening, damage and closing -----------------------------------------------------

    def _begin(self) -> None:
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
                self.made += 1
            _check(db)
        except BaseException:
            if db is not None:
                db.close()
            checksum.close()
            raise
        self._writer, self._checksum = db, checksum

    def _begin_anew(self) -> None:
        try:
            set_aside(self._path)
            self._begin()
        except Exception as bad:
            raise ours(bad) from bad
        self._renewed = True

    def renew(self) -> bool:
        """Set a damaged file aside, and begin an empty one; whether that was done.

        By the thread that writes, outside of a transaction.
        """
        if not self.damaged or self._renewed or self._depth:
            return False
        self._renewing = True  # whoever asks from now on waits
        try:
            if not self._let_go():
                return False
            self._end()
            self._begin_anew()
            self._readers, self._mine = [], threading.local()
            self.damaged = False
            return True
        finally:
            with self._lock:
                self._renewing = False
                self._lock.notify_all()

    def _let_go(self) -> bool:
        """End what others ask, and their connections; False where somebody does not end."""
        with self._lock:
            readers, self._readers = self._readers or [], None
            until = monotonic() + _CUT_SECONDS
            while self._asking and monotonic() < until:
                for db in readers:
                    db.interrupt()
                self._lock.wait(_CUT_AGAIN)
            for db in () if self._asking else readers:
                db.close()
            if self._asking:
                self._readers = readers
            return not self._asking

    def _end(self) -> None:
        if self._writer is not None and self._checksum is not None:
            self._writer.close()
            self._checksum.close()
        self._writer = self._checksum = None

    def close(self) -> None:
        """Bring the log into the file and let go of it, in every thread."""
        self._let_go()
        with self._lock:
            self._readers = None
        if self._writer is not None and self._checksum is not None:
            if not self._checksum.checkpoint(self._writer):  # SQLite may write as it closes
                with suppress(OSError):
                    self._checksum.drop()
            self._end()

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

    def _failed(self, bad: Exception) -> Exception:
        """What a failure is for the caller; damage is noted, and told once."""
        if not is_trouble(bad):
            if self._renewed:
                self.problem = f"the store was made anew, and fails again: {named(bad)}"
            elif not self.damaged:
                self.damaged = True
                self._report(named(bad))
        return ours(bad)

    # -- asking and writing --------------------------------------------------------------

    def read(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        """What `ask` makes of the store, in any thread; in a transaction's, with what it wrote.

        Whatever is made of values that are stored is made in `ask`: it may find them damaged.
        """
        if self._writer is not None and self._owner == threading.get_ident():
            return self._guarded(ask, self._writer)
        with self._lock:
            while self._renewing:
                self._lock.wait()
            self._asking += 1
        try:
            return self._answer(ask)
        finally:
            with self._lock:
                self._asking -= 1
                self._lock.notify_all()

    def _guarded(self, ask: Callable[[sqlite3.Connection], _T], db: sqlite3.Connection) -> _T:
        try:
            return ask(db)
        except IndexerdError as bad:
            if not isinstance(bad, DamagedError):
                raise
            raise self._failed(bad) from bad
        except Exception as bad:
            raise self._failed(bad) from bad

    def _answer(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return ask(self._reader())
        except Exception as bad:
            if isinstance(bad, IndexerdError) and not isinstance(bad, DamagedError):
                raise
            if self._readers is None:
                raise StateError("the store is closed") from bad
            if not self._readonly or (is_trouble(bad) and not is_access(bad)):
                raise self._failed(bad) from bad
            self.problem = f"{self._path}: {bad if is_trouble(bad) else named(bad)}"
        empty = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        empty.executescript(_SCHEMA)
        self._mine.db = self._kept(empty)
        return ask(empty)

    def _reader(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._mine, "db", None)
        if db is not None and self._readers is not None:
            return db
        uri = self._path.absolute().as_uri() + ("?mode=ro" if self._readonly else "?mode=rw")
        db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        self._mine.db = self._kept(db)
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = MEMORY")  # what is sorted needs no room on a full disk
        _check(db)
        return db

    def _kept(self, db: sqlite3.Connection) -> sqlite3.Connection:
        with self._lock:
            if self._readers is None:
                db.close()
                raise StateError("the store is closed")
            self._readers.append(db)
        return db

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction around many calls: two to three times as fast when a lot is put in."""
        if self._writer is None:
            raise StateError("the store is open for reading only")
        if self._depth:
            yield
            return
        db = self._writer
        self._guarded(lambda db: db.execute("BEGIN IMMEDIATE"), db)
        self._lost = None
        self._depth, self._owner = 1, threading.get_ident()
        try:
            yield
            if self._lost is not None:
                raise self._lost
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
            try:
                return self.read(work)
            except Exception as bad:
                self._lost = bad  # whoever looks away from that loses all of the transaction
                raise

    # -- rows ----------------------------------------------------------------------------

    def get(self, session_id: str) -> dict[str, Any] | None:
        """The row of a session."""
        return self.get_many([session_id]).get(session_id)

    def get_many(self, session_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The rows of some sessions by their ids; unknown ones are left out."""
        wanted = list(dict.fromkeys(session_ids))

        def ask(db: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            found = ((one, db.execute(_ROW, (scrub(one),)).fetchone()) for one in wanted)
            return {one: json.loads(row[0]) for one, row in found if row}

        return self.read(ask)

    def by_file(self, path: str) -> tuple[dict[str, Any], ...]:
        """The rows of all sessions in a file: one, but for agents that keep a database."""
        sql = "SELECT row FROM record JOIN session USING (no) WHERE file = ? ORDER BY id"

        def ask(db: sqlite3.Connection) -> tuple[dict[str, Any], ...]:
            return tuple(json.loads(row) for (row,) in db.execute(sql, (scrub(path),)))

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
        found = []
        for one, name, aliases, cwd, modified, given, alive in self._all(
            columns, "row_hash NOT NULL"
        ):
            names = tuple(json.loads(aliases)) if aliases else (name,)
            found.append(Named(one, name, names, cwd, modified, bool(given), bool(alive)))
        return found

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

    def _all(self, columns: str, where: str, values: Sequence[Any] = ()) -> list[Sequence[Any]]:
        """Something of many sessions, in one step of SQLite.

        Between two steps Python's other threads may take the interpreter, and a busy one keeps it
        for milliseconds: some hundred rows, fetched one by one, took up to a second.
        """
        whole = f"SELECT * FROM session WHERE {where}"  # noqa: S608 - our own words
        sql = f"SELECT json_group_array(json_array({columns})) FROM ({whole})"  # noqa: S608 - as above

        def ask(db: sqlite3.Connection) -> list[Sequence[Any]]:
            with once_through(db):
                found: list[Sequence[Any]] = json.loads(db.execute(sql, values).fetchone()[0])
            return found

        return self.read(ask)

    def some(self, columns: str, session_ids: Iterable[str]) -> list[Sequence[Any]]:
        """Something of these sessions."""
        where = "id IN (SELECT value FROM json_each(?)) AND row_hash NOT NULL"
        return self._all(columns, where, [json.dumps([*session_ids])])

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

        def ask(db: sqlite3.Connection) -> list[tuple[str, int, str]]:
            how, (more, given) = index_for(db, agent, cwd)
            sql = (
                "SELECT row, modified, id FROM (SELECT no, modified, id FROM session"  # noqa: S608 - ours
                f" {how} WHERE {' AND '.join([*more, *where])} ORDER BY modified DESC, id LIMIT ?)"
                " CROSS JOIN record USING (no)"  # which goes through the former as it is sorted
            )
            return db.execute(sql, (*given, *values, limit + 1)).fetchall()

        found = self.read(ask)
        following = None
        if len(found) > limit:
            following = sealed(found[limit - 1][1], found[limit - 1][2], filters)
        return Page(tuple(text for text, _, _ in found[:limit]), following)

    def put(self, rows: Iterable[tuple[Mapping[str, Any], Named, bytes]]) -> list[str]:
        """Add rows or take over what changed in them.

        Each comes with its names and a hash of the texts that it is found by. The sessions whose
        texts are not those that were indexed last: these are to be indexed, and `indexed` told.
        """
        items = [_item(*one) for one in rows]  # which may fail by what is given
        items.sort(key=lambda one: one.values[_SET.index("modified")] or 0)

        def work(db: sqlite3.Connection) -> list[str]:
            return [item.session_id for item in items if _put(db, item)]

        return self.write(work)

    def forget(self, session_id: str) -> bool:
        """Drop a session's row; whether there was anything of it."""

        def work(db: sqlite3.Connection) -> bool:
            sql = "SELECT no FROM session WHERE id = ?"
            found = db.execute(sql, (scrub(session_id),)).fetchone()
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
            rows = (row for one in asked for row in db.execute(sql, (scrub(one),)))
            return [Link(one, above or "", born or 0, bool(sub)) for one, above, born, sub in rows]

        return self.read(ask)

    # -- what the text index has of them -------------------------------------------------

    def indexed(self, hashes: Mapping[str, bytes], marks: Mapping[str, str | None]) -> None:
        """The text index has these sessions' own texts, and their messages up to these marks."""

        def work(db: sqlite3.Connection) -> None:
            sql = "UPDATE session SET text_hash = ? WHERE id = ?"
            db.executemany(sql, [(held, scrub(one)) for one, held in hashes.items()])
            db.executemany(
                "INSERT INTO session (id, mark) VALUES (?, ?)"
                " ON CONFLICT (id) DO UPDATE SET mark = excluded.mark",
                [(scrub(one), mark) for one, mark in marks.items()],
            )

        if hashes or marks:
            self.write(work)

    def unindexed(self) -> tuple[str, ...]:
        """The sessions whose own texts the index does not have, or not as they are."""
        found = self._all("id", "row_hash NOT NULL AND text_hash IS NULL")
        return tuple(one for (one,) in found)

    def begin_index(self, name: str) -> None:
        """The text index is another one, and has nothing yet."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("UPDATE session SET text_hash = NULL, mark = NULL")
            self.note("index", "name", name.encode())

        self.write(work)

    def mark(self, session_id: str) -> str | None:
        """How far a session's messages were read."""
        sql = "SELECT mark FROM session WHERE id = ?"

        def ask(db: sqlite3.Connection) -> str | None:
            found = db.execute(sql, (scrub(session_id),)).fetchone()
            return found[0] if found else None

        return self.read(ask)

    def mark_signs(self) -> dict[str, str]:
        """The first word of every session's mark."""
        return dict(self._all("id, substr(mark, 1, instr(mark, ' ') - 1)", "mark NOT NULL"))  # type: ignore[arg-type] # pairs

    # -- session files: cursors, cards and states ----------------------------------------

    def cards(
        self, read: Callable[[bytes, str], Any] = lambda card, _path: card
    ) -> list[tuple[str, Cursor, Any]]:
        """Every file's cursor and card, as `read(card, path)` has it, without its state."""

        def ask(db: sqlite3.Connection) -> list[tuple[str, Cursor, Any]]:
            with once_through(db):
                rows = db.execute("SELECT path, cursor, card FROM file").fetchall()
            found = ((_text(path), _cursor(cursor), _bytes(card)) for path, cursor, card in rows)
            return [(path, at, read(card, path)) for path, at, card in found]

        return self.read(ask)

    def state(self, path: str, read: Callable[[bytes], Any] = bytes) -> Any:
        """One file's session state, as `read` makes it of what was put in; None for none."""
        return self._one("SELECT state FROM file WHERE path = ?", (_key(path),), read)

    def put_files(self, files: Iterable[tuple[str, Cursor, bytes, bytes | None]]) -> None:
        """Write (path, cursor, card, state) in one transaction; a state of None stays as it was.

        A cursor and the state it belongs to are stored together, so that what was counted and
        where reading stopped never disagree.
        """
        rows = [(_encode(cursor), card, state, _key(path)) for path, cursor, card, state in files]
        known = "UPDATE file SET cursor = ?, card = ? WHERE path = ?"
        whole = "INSERT OR REPLACE INTO file (cursor, card, state, path) VALUES (?, ?, ?, ?)"

        def work(db: sqlite3.Connection) -> None:
            for cursor, card, state, key in rows:
                if state is None:
                    db.execute(known, (cursor, card, key))
                else:
                    db.execute(whole, (cursor, card, state, key))

        if rows:
            self.write(work)

    def forget_files(self, paths: Iterable[str]) -> None:
        """Drop files."""
        keys = [(_key(path),) for path in paths]
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
        return self._one("SELECT value FROM note WHERE topic = ? AND key = ?", (topic, key), read)

    def _one(self, sql: str, values: tuple[Any, ...], read: Callable[[bytes], Any]) -> Any:
        def ask(db: sqlite3.Connection) -> Any:
            row = db.execute(sql, values).fetchone()
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
def once_through(db: sqlite3.Connection) -> Iterator[None]:
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


@dataclass(frozen=True, slots=True)
class _Item:
    session_id: str
    values: tuple[Any, ...]  # as in _SET
    row: str
    row_hash: bytes
    text_hash: bytes


def _item(row: Mapping[str, Any], named: Named, text_hash: bytes) -> _Item:
    names = [scrub(name) for name in named.aliases]
    aliases = "" if names == [scrub(named.name)] else json.dumps(names)
    cwd = scrub(named.cwd)
    values = (
        scrub(str(row.get("agent") or "")),
        cwd.rstrip("/") or cwd[:1],
        scrub(str(row.get("sessionFile") or "")),
        named.modified,
        iso_ms(str(row.get("createdAt") or "")),
        *(bool(row.get(key)) for key in ("archived", "gone", "subagent")),
        scrub(str(row.get("parentSessionId") or row.get("parentSessionFile") or "")) or None,
        scrub(named.name),
        named.named,
        aliases,
    )
    whole = json.dumps(row, separators=(",", ":"))
    return _Item(scrub(named.session_id), values, whole, hashed(whole, aliases), text_hash)


def hashed(*texts: str, size: int = 16) -> bytes:
    """The same for the same texts."""
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=size).digest()


def _put(db: sqlite3.Connection, item: _Item) -> bool:
    """Take over one row; whether its texts are to be indexed."""
    held = db.execute(_HELD, (item.session_id,)).fetchone()
    if held is None:
        cursor = db.execute("INSERT INTO session (id) VALUES (?)", (item.session_id,))
        held = (cursor.lastrowid, *[None] * (2 + len(_SET)))
    no, row_hash, text_hash, *values = held
    changed: dict[str, Any] = {}
    if row_hash != item.row_hash:  # of these columns most are in some index
        pairs = zip(_SET, values, item.values, strict=True)
        changed = {name: new for name, old, new in pairs if old != new}
        changed["row_hash"] = item.row_hash
        db.execute("INSERT OR REPLACE INTO record VALUES (?, ?)", (no, item.row))
    if text_hash != item.text_hash:
        changed["text_hash"] = None
    if changed:
        fields = ", ".join(f"{name} = ?" for name in changed)
        db.execute(f"UPDATE session SET {fields} WHERE no = ?", (*changed.values(), no))  # noqa: S608 - our own names
    return bool(text_hash != item.text_hash)


_encode = msgspec.msgpack.Encoder().encode
_cursor = msgspec.msgpack.Decoder(Cursor).decode


def _key(path: str) -> bytes:
    """Paths are bytes on disk, and may be no UTF-8."""
    return path.encode("utf-8", "surrogateescape")


def _text(key: Any) -> str:
    return _bytes(key).decode("utf-8", "surrogateescape")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise DamagedError("not what was put in")
    return value

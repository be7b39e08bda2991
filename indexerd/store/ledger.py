"""The ledger: cursors, session states and back-off, in one SQLite file that may be deleted.

A cursor and the state it belongs to are written in one transaction, so that what was counted
and where reading stopped never disagree. Losing the file costs a re-read, never data and never
a model call (S0 truth order: session file > meta file > ledger > catalog). Used by one thread.

A file that is damaged, or of another version, is set aside and made anew, also where the damage
shows only later: the caller then finds less than there was, and reads it again. Whatever is stored
is read within `_mending`, so that a value that is not what was stored is damage, too. It is done
once: should the new file fail as well, that is a StateError, and a `problem`. A file that is merely
in use, or a disk that is full, is no damage: nothing is dropped for it, and WriteError or
AccessError says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from indexerd.errors import AccessError, DamagedError, StateError, WriteError
from indexerd.sources.cursor import Cursor
from indexerd.sources.once_through import once_through
from indexerd.store.cache_file import (
    Seal,
    drop_aside,
    is_access,
    is_trouble,
    named,
    set_aside,
)

VERSION = 3
TURN = "catalog"  # the topic of the catalog's turn as something was put in last

_T = TypeVar("_T")
_LOG_MAX = 4 << 20  # bytes, before the log is brought into the file

_SCHEMA = """
CREATE TABLE files_3 (path BLOB PRIMARY KEY, cursor BLOB, card BLOB, state BLOB) WITHOUT ROWID;
CREATE TABLE notes_3 (topic TEXT, key TEXT, value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
"""


def _nobody(_why: str) -> None:
    """Nobody is told."""


class Ledger:
    """Open it, ask it, put into it, close it."""

    def __init__(self, path: Path, report: Callable[[str], None] = _nobody) -> None:
        """`report(why)` is told where it was damaged, and is made anew."""
        self._path = path
        self._report = report
        self.rebuilt = False
        self.problem = ""  # why it cannot be used, although it was made anew
        self.turn: Callable[[], int] = int  # the catalog's: how often it was written to
        self._db: sqlite3.Connection | None = None
        self._turn = 0  # as it was stored last
        self._renewed = False
        self._unfolded = False  # somebody read as the log was to be folded
        self._patience = _LOG_MAX  # the log's length at which it is folded
        try:
            self._open()
        except Exception as bad:
            if is_trouble(bad):
                raise _ours(bad) from bad
            self._renew(bad)

    def _open(self) -> sqlite3.Connection:
        self._seal = Seal(self._path)
        db: sqlite3.Connection | None = None
        try:
            self._seal.check()
            db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            self._set_up(db)
        except BaseException:
            if db is not None:
                db.close()
            self._seal.close()
            raise
        self._db = db
        return db

    def _set_up(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._seal.drop()  # what comes now is written without a log
            self.rebuilt = True
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")  # but by our seal
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA busy_timeout=5000")
        db.execute("PRAGMA secure_delete=ON")  # as most systems have it anyway
        if version == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        # Fails for a file of another version, too: its tables have another suffix.
        db.execute(f"SELECT count(*) FROM files_{VERSION}").fetchone()  # noqa: S608 - a constant

    def _renew(self, bad: Exception) -> sqlite3.Connection:
        """A file that is damaged, or of another version, is a cache like any other: start anew."""
        try:
            set_aside(self._path)
            db = self._open()
        except Exception as worse:
            raise _ours(worse) from worse
        self._renewed = True
        self._report(named(bad))
        return db

    def _again(self, bad: Exception) -> StateError:
        """The error for what is not mended now."""
        if not is_trouble(bad):
            self.problem = f"the ledger was made anew, and fails again: {named(bad)}"
        return _ours(bad)

    def _mending(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do work on the file; where that finds it damaged, do it on a new one.

        Everything that is asked of the file, and made of what it holds, goes through here.
        """
        try:
            return work(self._db or self._open())
        except Exception as bad:
            if is_trouble(bad) or self._renewed:
                raise self._again(bad) from bad
            if self._db is not None:
                self._db.close()
                self._seal.close()
                self._db = None
            db = self._renew(bad)
        try:
            return work(db)
        except Exception as bad:
            raise _ours(bad) from bad

    def cards(
        self, read: Callable[[bytes, str], Any] = lambda card, _path: card
    ) -> list[tuple[str, Cursor, Any]]:
        """Every file's cursor and card, as `read(card, path)` has it, without its state."""

        def work(db: sqlite3.Connection) -> list[tuple[str, Cursor, Any]]:
            with once_through(db):
                rows = db.execute("SELECT path, cursor, card FROM files_3").fetchall()
            found = ((_text(path), _cursor(cursor), _bytes(card)) for path, cursor, card in rows)
            return [(path, at, read(card, path)) for path, at, card in found]

        return self._mending(work)

    def state(self, path: str, read: Callable[[bytes], Any] = bytes) -> Any:
        """One file's session state, as `read` makes it of what was put in; None for none."""
        return self._one("SELECT state FROM files_3 WHERE path=?", (_key(path),), read)

    def _one(self, sql: str, values: tuple[Any, ...], read: Callable[[bytes], Any]) -> Any:
        def work(db: sqlite3.Connection) -> Any:
            row = db.execute(sql, values).fetchone()
            return read(_bytes(row[0])) if row else None

        return self._mending(work)

    def put(self, files: Iterable[tuple[str, Cursor, bytes, bytes | None]]) -> None:
        """Write (path, cursor, card, state) in one transaction; a state of None stays as it was.

        With it goes the catalog's turn, also alone: one that says less at a start has lost some.
        """
        rows = [
            (msgspec.msgpack.encode(cursor), card, state, _key(path))
            for path, cursor, card, state in files
        ]

        turn = self.turn()
        if not rows and turn == self._turn:
            return

        def work(db: sqlite3.Connection) -> None:
            with _Transaction(db):
                for cursor, card, state, key in rows:
                    if state is None:
                        sql = "UPDATE files_3 SET cursor=?, card=? WHERE path=?"
                        db.execute(sql, (cursor, card, key))
                    else:
                        sql = "INSERT OR REPLACE INTO files_3 VALUES (?, ?, ?, ?)"
                        db.execute(sql, (key, cursor, card, state))
                keep = "INSERT OR REPLACE INTO notes_3 VALUES (?, '', ?)"
                db.execute(keep, (TURN, b"%d" % turn))

        self._mending(work)
        self._turn = turn
        if self._unfolded or self._seal.logged > self._patience:
            self._fold()

    def forget(self, paths: Iterable[str]) -> None:
        """Drop files."""
        keys = [(_key(path),) for path in paths]

        def work(db: sqlite3.Connection) -> None:
            with _Transaction(db):
                db.executemany("DELETE FROM files_3 WHERE path=?", keys)

        self._mending(work)

    def note(self, topic: str, key: str, value: bytes | None) -> None:
        """Keep a small value (back-off, breaker) under a topic; None drops it."""
        if value is None:
            drop = "DELETE FROM notes_3 WHERE topic=? AND key=?"
            self._mending(lambda db: db.execute(drop, (topic, key)))
        else:
            keep = "INSERT OR REPLACE INTO notes_3 VALUES (?, ?, ?)"
            self._mending(lambda db: db.execute(keep, (topic, key, value)))

    def notes(self, topic: str, read: Callable[[bytes], Any] = bytes) -> dict[str, Any]:
        """All values under a topic, as `read` makes them of what was kept."""
        sql = "SELECT key, value FROM notes_3 WHERE topic=?"

        def work(db: sqlite3.Connection) -> dict[str, Any]:
            rows = db.execute(sql, (topic,)).fetchall()
            return {_word(key): read(_bytes(value)) for key, value in rows}

        return self._mending(work)

    def noted(self, topic: str, key: str, read: Callable[[bytes], Any] = bytes) -> Any:
        """Give one value of a topic; None where there is none."""
        return self._one("SELECT value FROM notes_3 WHERE topic=? AND key=?", (topic, key), read)

    def trim(self, topic: str, keep: int) -> None:
        """Drop all values of a topic but the `keep` greatest; bytes are compared."""
        sql = (
            "DELETE FROM notes_3 WHERE topic=:topic AND key IN (SELECT key FROM notes_3"
            " WHERE topic=:topic ORDER BY value DESC LIMIT -1 OFFSET :keep)"
        )
        self._mending(lambda db: db.execute(sql, {"topic": topic, "keep": keep}))

    def fold(self) -> None:
        """Fold the log into the file, and drop what was set aside: what was dropped is in none.

        While another process reads that cannot be; it is done with the next `put`, or at the end.
        """
        drop_aside(self._path)
        self._fold()

    def _fold(self) -> None:
        if self._db is not None:
            self._unfolded = not self._seal.checkpoint(self._db)
            self._patience = self._seal.logged + _LOG_MAX

    def close(self) -> None:
        """Fold the log into the file and let go."""
        if self._db is not None:
            done = self._seal.checkpoint(self._db)
            self._db.close()
            self._seal.close(done=done)


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # SQLite may have rolled back by itself
                self._db.execute("ROLLBACK")


def _ours(bad: BaseException) -> StateError:
    if isinstance(bad, StateError) and not isinstance(bad, DamagedError):
        return bad
    if not is_trouble(bad):
        return StateError(f"the ledger fails: {named(bad)}")
    if isinstance(bad, OSError):
        return AccessError(f"the ledger cannot be opened: {bad.strerror}")
    kind = AccessError if is_access(bad) else WriteError
    return kind(f"the ledger cannot be used now: {bad}")


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


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise DamagedError("not what was put in")
    return value

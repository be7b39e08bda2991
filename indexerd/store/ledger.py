"""The ledger: cursors, session states and back-off, in one SQLite file that may be deleted.

A cursor and the state it belongs to are written in one transaction, so that what was counted
and where reading stopped never disagree. Losing the file costs a re-read, never data and never
a model call (S0 truth order: session file > meta file > ledger > catalog). Used by one thread.

A file that is damaged, or of another version, is made anew, also where the damage shows only
later: the caller then finds less than there was, and reads it again. A file that is merely in
use, or a disk that is full, is no damage: nothing is dropped for it, and WriteError or
AccessError says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from indexerd.errors import AccessError, WriteError
from indexerd.sources.cursor import Cursor
from indexerd.sources.once_through import once_through
from indexerd.store.wal import emptied

VERSION = 3

_T = TypeVar("_T")
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_ACCESS = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}

_SCHEMA = """
CREATE TABLE files_3 (path BLOB PRIMARY KEY, cursor BLOB, card BLOB, state BLOB) WITHOUT ROWID;
CREATE TABLE notes_3 (topic TEXT, key TEXT, value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
"""


class Ledger:
    """Open it, ask it, put into it, close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rebuilt = False
        self._unfolded = False  # somebody read as the log was to be folded
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as bad:
            # SQLITE_ERROR: "no such table", in a file of another version.
            if _code(bad) not in {*_DAMAGE, sqlite3.SQLITE_ERROR}:
                raise _ours(bad) from bad
            self._renew()

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.touch(mode=0o600)  # SQLite gives its side files the same mode
        except OSError as bad:
            raise AccessError(f"the ledger cannot be opened: {bad.strerror}") from bad
        db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA busy_timeout=5000")
            db.execute("PRAGMA secure_delete=ON")  # as most systems have it anyway
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self.rebuilt = True
                db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
            # Fails for a file of another version, too: its tables have another suffix.
            db.execute(f"SELECT count(*) FROM files_{VERSION}").fetchone()  # noqa: S608 - a constant
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _renew(self) -> None:
        """A file that is damaged, or of another version, is a cache like any other: start anew."""
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                (self._path.parent / (self._path.name + suffix)).unlink()
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as bad:
            raise _ours(bad) from bad

    def _mending(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do work on the file; where that finds it damaged, do it on a new one."""
        try:
            try:
                return work(self._db)
            except sqlite3.DatabaseError as bad:
                if _code(bad) not in _DAMAGE:
                    raise
            self._db.close()
            self._renew()
            return work(self._db)
        except sqlite3.DatabaseError as bad:
            raise _ours(bad) from bad

    def cards(self) -> Iterator[tuple[str, Cursor, bytes]]:
        """Every file's cursor and card; states stay where they are."""

        def work(db: sqlite3.Connection) -> list[tuple[bytes, bytes, bytes]]:
            with once_through(db):
                return db.execute("SELECT path, cursor, card FROM files_3").fetchall()

        for path, cursor, card in self._mending(work):
            with suppress(msgspec.DecodeError):
                yield _text(path), _cursor(cursor), card

    def state(self, path: str) -> bytes | None:
        """One file's session state."""
        sql = "SELECT state FROM files_3 WHERE path=?"
        row = self._mending(lambda db: db.execute(sql, (_key(path),)).fetchone())
        return row[0] if row else None

    def put(self, files: Iterable[tuple[str, Cursor, bytes, bytes | None]]) -> None:
        """Write (path, cursor, card, state) in one transaction; a state of None stays as it was."""
        rows = [
            (msgspec.msgpack.encode(cursor), card, state, _key(path))
            for path, cursor, card, state in files
        ]

        def work(db: sqlite3.Connection) -> None:
            with _Transaction(db):
                for cursor, card, state, key in rows:
                    if state is None:
                        sql = "UPDATE files_3 SET cursor=?, card=? WHERE path=?"
                        db.execute(sql, (cursor, card, key))
                    else:
                        sql = "INSERT OR REPLACE INTO files_3 VALUES (?, ?, ?, ?)"
                        db.execute(sql, (key, cursor, card, state))

        self._mending(work)
        if self._unfolded:
            self.fold()

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

    def notes(self, topic: str) -> dict[str, bytes]:
        """All values under a topic."""
        sql = "SELECT key, value FROM notes_3 WHERE topic=?"
        return dict(self._mending(lambda db: db.execute(sql, (topic,)).fetchall()))

    def noted(self, topic: str, key: str) -> bytes | None:
        """Give one value of a topic."""
        sql = "SELECT value FROM notes_3 WHERE topic=? AND key=?"
        row = self._mending(lambda db: db.execute(sql, (topic, key)).fetchone())
        return row[0] if row else None

    def trim(self, topic: str, keep: int) -> None:
        """Drop all values of a topic but the `keep` greatest; bytes are compared."""
        sql = (
            "DELETE FROM notes_3 WHERE topic=:topic AND key IN (SELECT key FROM notes_3"
            " WHERE topic=:topic ORDER BY value DESC LIMIT -1 OFFSET :keep)"
        )
        self._mending(lambda db: db.execute(sql, {"topic": topic, "keep": keep}))

    def fold(self) -> None:
        """Fold the log into the file: what was dropped is then in neither.

        While another process reads that cannot be; it is done with the next `put`, or at the end.
        """
        self._unfolded = not emptied(self._db)

    def close(self) -> None:
        """Fold the log into the file and let go."""
        emptied(self._db)
        self._db.close()


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


def _code(bad: sqlite3.Error) -> int:
    return getattr(bad, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF


def _ours(bad: sqlite3.Error) -> AccessError | WriteError:
    kind = AccessError if _code(bad) in _ACCESS else WriteError
    return kind(f"the ledger cannot be used now: {bad}")


_cursor = msgspec.msgpack.Decoder(Cursor).decode


def _key(path: str) -> bytes:
    """Paths are bytes on disk, and may be no UTF-8."""
    return path.encode("utf-8", "surrogateescape")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")

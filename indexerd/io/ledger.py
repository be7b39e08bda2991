"""The ledger: cursors, session states and back-off, in one SQLite file that may be deleted.

A cursor and the state it belongs to are written in one transaction, so that what was counted
and where reading stopped never disagree. Losing the file costs a re-read, never data and never
a model call (S0 truth order: session file > meta file > ledger > catalog). Used by one thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from indexerd.core.cursor import Cursor

VERSION = 1

_SCHEMA = """
CREATE TABLE files_1 (path BLOB PRIMARY KEY, cursor BLOB, card BLOB, state BLOB) WITHOUT ROWID;
CREATE TABLE notes_1 (topic TEXT, key TEXT, value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
"""


class Ledger:
    """Open it, ask it, put into it, close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rebuilt = False
        try:
            self._db = self._open()
        except sqlite3.DatabaseError:
            self._set_aside()
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        self._path.touch(mode=0o600)  # SQLite gives its side files the same mode
        db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA busy_timeout=5000")
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

    def _set_aside(self) -> None:
        """A file that is damaged, or of another version, is a cache like any other: start anew."""
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                (self._path.parent / (self._path.name + suffix)).unlink()

    def cards(self) -> Iterator[tuple[str, Cursor, bytes]]:
        """Every file's cursor and card; states stay where they are."""
        for path, cursor, card in self._db.execute("SELECT path, cursor, card FROM files_1"):
            with suppress(msgspec.DecodeError):
                yield _text(path), _cursor(cursor), card

    def state(self, path: str) -> bytes | None:
        """One file's session state."""
        row = self._db.execute("SELECT state FROM files_1 WHERE path=?", (_key(path),)).fetchone()
        return row[0] if row else None

    def put(self, files: Iterable[tuple[str, Cursor, bytes, bytes | None]]) -> None:
        """Write (path, cursor, card, state) in one transaction; a state of None stays as it was."""
        with self._transaction():
            for path, cursor, card, state in files:
                key, packed = _key(path), msgspec.msgpack.encode(cursor)
                if state is None:
                    self._db.execute(
                        "UPDATE files_1 SET cursor=?, card=? WHERE path=?", (packed, card, key)
                    )
                else:
                    self._db.execute(
                        "INSERT OR REPLACE INTO files_1 VALUES (?, ?, ?, ?)",
                        (key, packed, card, state),
                    )

    def forget(self, paths: Iterable[str]) -> None:
        """Drop files."""
        with self._transaction():
            self._db.executemany("DELETE FROM files_1 WHERE path=?", [(_key(p),) for p in paths])

    def note(self, topic: str, key: str, value: bytes | None) -> None:
        """Keep a small value (back-off, breaker) under a topic; None drops it."""
        if value is None:
            self._db.execute("DELETE FROM notes_1 WHERE topic=? AND key=?", (topic, key))
        else:
            self._db.execute("INSERT OR REPLACE INTO notes_1 VALUES (?, ?, ?)", (topic, key, value))

    def notes(self, topic: str) -> dict[str, bytes]:
        """All values under a topic."""
        rows = self._db.execute("SELECT key, value FROM notes_1 WHERE topic=?", (topic,))
        return dict(rows.fetchall())

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)

    def close(self) -> None:
        """Fold the log into the file and let go."""
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


_cursor = msgspec.msgpack.Decoder(Cursor).decode


def _key(path: str) -> bytes:
    """Paths are bytes on disk, and may be no UTF-8."""
    return path.encode("utf-8", "surrogateescape")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")

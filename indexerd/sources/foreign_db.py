"""Read another program's SQLite database without changing it.

Nothing is written, no lock but SQLite's shared one is taken, and no file is created. Errors are
SessionUnreadableError, with SQLite's message.

Pitfalls: `mode=ro` alone opens the -shm file for writing and rebuilds it; with `readonly_shm=1`
SQLite reads it, or builds its own index in memory. SQLite opens the -wal file O_RDWR|O_CREAT in
every mode, although it writes nothing to it: so a database without one is opened with
`immutable=1`, and the result counts only if the files are the same afterwards. A main file of 4096
bytes may have all its data in the -wal. A process loses its locks on a file when it closes any
descriptor of it, so this module opens none itself.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from indexerd.errors import SessionUnreadableError
from indexerd.sources.tail import Look, look

ATTEMPTS = 4  # to read a database that changes meanwhile
PAUSE_SECONDS = 0.01  # between attempts: longer than the owner takes to remove its files
BUSY_SECONDS = 0.25  # a reader waits only while the index of the log is being rebuilt
VALUE_MAX = 256 * 1024 * 1024  # bytes of one value
_CHANGED = "changed"  # the code of errors after which to try again

_T = TypeVar("_T")


class DatabaseFiles(NamedTuple):
    """The files of a database, which a commit or a checkpoint changes."""

    main: Look
    wal: Look | None
    shm: bool  # whether it exists; reading changes its stat


def files_of(path: str) -> DatabaseFiles:
    """Stat a database's files. FileNotFoundError if it is gone."""
    main = look(path)
    if main is None:
        raise FileNotFoundError(path)
    return DatabaseFiles(main, look(f"{path}-wal"), look(f"{path}-shm") is not None)


class _Held(threading.local):
    """A thread's open connections by path, each with what must not have changed for its reuse."""

    open: dict[str, tuple[object, sqlite3.Connection]] | None = None


_held = _Held()


@contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection in autocommit; statements that must agree need a BEGIN.

    Close it soon: a reader in a transaction keeps the owner from shortening its log.
    FileNotFoundError if the database is gone. SessionUnreadableError on leaving if the files
    changed: then discard the result.
    """
    before = files_of(path)
    alone = before.wal is None or not (before.wal.size or before.shm)
    if not (alone or before.shm):  # a copy without -shm, or the owner is just closing it
        message = "the database has a write-ahead log without its index"
        hint = "open and close it once with the program that wrote it"
        raise SessionUnreadableError(message, hint=hint, upstream=_CHANGED)
    error: Exception | None = None
    try:
        with _connected(path, before, alone=alone) as db:
            yield db
    except (sqlite3.Error, FileNotFoundError, SessionUnreadableError) as bad:
        error = bad
    failed = isinstance(error, sqlite3.Error)
    if (alone or failed) and files_of(path) != before:  # even "not found" may be wrong then
        message = "the database changed while it was read"
        raise SessionUnreadableError(message, upstream=_CHANGED)
    if failed:
        raise SessionUnreadableError(f"cannot read: {error}")
    if error is not None:
        raise error


@contextmanager
def held_open() -> Iterator[None]:
    """Within this, open each database once in this thread: half of the time of short sessions."""
    connections = _held.open = {}
    try:
        yield
    finally:
        _held.open = None
        for _, db in connections.values():
            db.close()


def reading(path: str, ask: Callable[[sqlite3.Connection], _T]) -> _T:
    """Call `ask`, again if the database changed meanwhile."""
    attempts = 0
    while True:
        attempts += 1
        try:
            with opened(path) as db:
                return ask(db)
        except SessionUnreadableError as bad:
            if attempts == ATTEMPTS or bad.upstream != _CHANGED:
                raise
        time.sleep(PAUSE_SECONDS)


@contextmanager
def _connected(path: str, files: DatabaseFiles, *, alone: bool) -> Iterator[sqlite3.Connection]:
    """Yield a connection: the one held open, unless it is for other files."""
    kept, unchanged = _held.open, files if alone else files.main[:2]
    held = kept.pop(path, None) if kept else None
    if held and held[0] != unchanged:
        held[1].close()
        held = None
    db = held[1] if held else _connect(path, alone=alone)
    with ExitStack() as stack:
        stack.callback(db.close)
        yield db
        if kept is not None and kept is _held.open and path not in kept:
            db.rollback()
            kept[path] = unchanged, db
            stack.pop_all()


def _connect(path: str, *, alone: bool) -> sqlite3.Connection:
    how = "immutable=1" if alone else "readonly_shm=1"
    uri = f"file:{quote(os.fsencode(path))}?mode=ro&{how}"
    db = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_MAX)
    db.execute("PRAGMA temp_store = MEMORY")  # no texts of sessions in temporary files
    return db

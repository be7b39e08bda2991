"""Another program's live SQLite database, read and never touched.

In: a path. Out: a connection that can only read, for one short look. Nothing is written, no file
is created, no write lock is taken, nothing is checkpointed: its owner works as if we were not
there. Errors are SessionUnreadableError, in SQLite's own words as `upstream`.

What surprised us. `mode=ro` alone still opens the -shm file for writing and rebuilds it; with
`readonly_shm=1` SQLite reads it, or makes an index of its own in memory. The -wal file it opens
O_RDWR|O_CREAT all the same, whatever the mode: so a database is opened in a thread to which the
kernel (Landlock, Linux 5.13) refuses every kind of writing, whereupon SQLite falls back to
O_RDONLY. Where there is no Landlock that one open remains; nothing is written through it. A main
file of 4096 bytes may have all its data in the -wal: `immutable=1` is right only where there is
none, and a look at the files before and after tells whether somebody wrote meanwhile. POSIX locks
of a process go when it closes any descriptor of a file: so nothing here opens one itself.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from indexerd.errors import SessionUnreadableError

ATTEMPTS = 4  # looks at a database that changes while it is looked at
PAUSE_SECONDS = 0.01  # between them: longer than an owner takes to remove its files
BUSY_SECONDS = 0.25  # a reader waits only while the log's index is being rebuilt
LOOK_SECONDS = 30.0  # after that a question is broken off: a view can be endless
VALUE_MAX = 256 * 1024 * 1024  # bytes of one value
_STEPS = 100_000  # of SQLite's machine, between two looks at the clock

_T = TypeVar("_T")

Stamp = tuple[int, int, int, int]  # (dev, ino, size, mtime_ns)


class Files(NamedTuple):
    """The files of a database as they are on disk; None where there is none."""

    main: Stamp
    wal: Stamp | None
    shm: Stamp | None
    journal: Stamp | None

    @property
    def content(self) -> tuple[Stamp, Stamp | None]:
        """What differs after a commit or a checkpoint."""
        return self.main, self.wal


TORN = "changed under the look"  # the upstream of an error after which to look again


def _torn(why: str, hint: str = "") -> SessionUnreadableError:
    """The database changed under a look that cannot bear it."""
    return SessionUnreadableError(why, hint=hint, upstream=TORN)


def files_of(path: str) -> Files:
    """Look at a database's files; nothing is opened. FileNotFoundError when it is gone."""
    main = _stamp(path)
    if main is None:
        raise FileNotFoundError(path)
    wal, shm, journal = (_stamp(path + end) for end in ("-wal", "-shm", "-journal"))
    return Files(main, wal, shm, journal)


def _stamp(path: str) -> Stamp | None:
    """A regular file's stat; a link is not followed, and nothing else is taken for a file."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as bad:  # ValueError: a NUL in it
        raise SessionUnreadableError("cannot look at the database", upstream=str(bad)) from None
    if not stat.S_ISREG(found.st_mode):
        raise SessionUnreadableError("not a regular file")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, in autocommit; put statements that must agree in a BEGIN.

    Keep it for one look, not longer: a reader in a transaction keeps its owner from shortening
    the log. FileNotFoundError when the database is gone. SessionUnreadableError at the end, too:
    where the files changed under a look that cannot bear it, what was read must be dropped.
    """
    before = files_of(path)
    still = _still(before)
    _meant(path)
    try:
        db = _thread(os.getpid()).submit(_connect, path, still).result()
        with closing(db):
            _meant(path)
            if files_of(path).main[:2] != before.main[:2]:
                raise _torn("the database was replaced while it was opened")
            yield db
    except sqlite3.Error as bad:
        upstream = TORN if _moved(path, before) else str(bad)
        raise SessionUnreadableError("the database cannot be read", upstream=upstream) from None
    except (FileNotFoundError, SessionUnreadableError):
        if still and _moved(path, before):  # what was not found may be there all the same
            raise _torn("the database changed while it was read") from None
        raise
    if still and _moved(path, before):
        raise _torn("the database changed while it was read")


def reading(path: str, ask: Callable[[sqlite3.Connection], _T]) -> _T:
    """Ask once, or again while the database changes under the asking."""
    for _ in range(ATTEMPTS - 1):
        try:
            with opened(path) as db:
                return ask(db)
        except SessionUnreadableError as bad:
            if bad.upstream != TORN:
                raise
            time.sleep(PAUSE_SECONDS)
    with opened(path) as db:
        return ask(db)


def _meant(path: str) -> None:
    """Refuse a path of which a directory is a link by now (X4); SQLite itself follows links."""
    if os.path.realpath(path) != path:
        raise SessionUnreadableError("a directory on its path is a link")


def _still(found: Files) -> bool:
    """Whether nobody has it open, so that its main file is all there is and does not change."""
    if found.journal and found.journal[2]:
        raise _torn("the database is being written")
    if found.wal is None or (found.wal[2] == 0 and found.shm is None):
        return True
    if found.shm is None:  # a copy without it; or its owner, closing, removed this one first
        raise _torn(
            "the database has a write-ahead log without its index",
            hint="open and close it once with the program that wrote it",
        )
    return False


def _moved(path: str, before: Files) -> bool:
    try:
        now = files_of(path)
    except FileNotFoundError:
        return True
    return (now.content, now.journal, now.shm is None) != (
        before.content,
        before.journal,
        before.shm is None,
    )


# -- the thread that cannot write ----------------------------------------------------------------


def _connect(path: str, still: bool) -> sqlite3.Connection:
    """Open, and read once: it is then that SQLite opens the other files."""
    how = "mode=ro&" + ("immutable=1" if still else "readonly_shm=1")
    db = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{how}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.text_factory = _text
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_MAX)
        until = time.monotonic() + LOOK_SECONDS
        db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        for one in ("query_only=1", "trusted_schema=0", "temp_store=MEMORY"):
            db.execute(f"PRAGMA {one}")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """One thread a process (a forked child has none of its parent's)."""
    return ThreadPoolExecutor(1, "foreign-db", initializer=forbid_writing)


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on every architecture
_SET_NO_NEW_PRIVS = 38
_WRITE_FILE, _REMOVE_AND_MAKE, _TRUNCATE = 1 << 1, sum(1 << bit for bit in range(4, 13)), 1 << 14
_KNOWS_TRUNCATE = 3  # the version of Landlock


def forbid_writing() -> bool:
    """Take from the calling thread, for good, the right to open any file for writing.

    False where the system cannot do so. Files that are open stay as they are.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    denied = _WRITE_FILE | _REMOVE_AND_MAKE | (_TRUNCATE if version >= _KNOWS_TRUNCATE else 0)
    rules = _Ruleset(denied)
    size = ctypes.c_size_t(ctypes.sizeof(rules))
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), size, ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        done: bool = (
            libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            and libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0
        )
    finally:
        os.close(ruleset)
    return done

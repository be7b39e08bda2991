"""What counts as damage to a cache's SQLite file, and how silent damage is found.

SQLite notices much damage itself, but not a page that stands in another's place, or a byte within
a value. So after each checkpoint a checksum of the whole file is kept in `<name>.sum`, and compared
at each start. Only we make checkpoints, and between two of them SQLite writes to its log alone,
whose frames have checksums of their own. A file without a checksum is taken as it is.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import zlib
from contextlib import suppress
from pathlib import Path

from indexerd.disk import sync_names
from indexerd.errors import AccessError, DamagedError, IndexerdError, StateError, WriteError

_ACCESS = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})
_PLACE = _ACCESS | {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_PROTOCOL,
}
_SIDES = ("-wal", "-shm", ".sum")
_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO})  # of what cannot be opened as one
_CHUNK = 1 << 20  # bytes
_SUM_SIZE = 22
_WAIT_MS = 200  # for those who read while the log is brought into the file


def _code(bad: BaseException) -> int:
    """SQLite's primary code of an error; -1 for what has none."""
    found = getattr(bad, "sqlite_errorcode", None)
    return -1 if found is None else int(found) & 0xFF


def is_trouble(bad: BaseException) -> bool:
    """Whether the place is at fault (a full disk, a lock, a right), or we, and not the file."""
    if isinstance(bad, sqlite3.Error):
        return _code(bad) in _PLACE or isinstance(bad, sqlite3.ProgrammingError)
    ours = isinstance(bad, IndexerdError) and not isinstance(bad, DamagedError)
    return ours or isinstance(bad, OSError | MemoryError)


def named(bad: BaseException) -> str:
    """What an error is, without a word of what it was about: that may be a session's."""
    return str(getattr(bad, "sqlite_errorname", None) or type(bad).__name__)


def state_error(bad: BaseException) -> StateError:
    """What a failure of the store means to a user."""
    if isinstance(bad, StateError) and not isinstance(bad, DamagedError):
        return bad
    if not is_trouble(bad):
        hint = "the daemon makes it anew, and reads all sessions again"
        return DamagedError(f"the store is damaged: {named(bad)}", hint=hint)
    if isinstance(bad, OSError):
        return AccessError(f"the store cannot be opened: {bad.strerror}")
    kind = AccessError if _code(bad) in _ACCESS else WriteError
    return kind(f"the store cannot be used now: {bad}")


def beside(path: Path, suffix: str) -> Path:
    """The file of the same name with a suffix."""
    return path.with_name(path.name + suffix)


def set_aside(path: Path) -> None:
    """Keep a damaged file, or what is in its place, as `<name>.aside`; log and checksum go."""
    if os.path.lexists(path):
        remove(beside(path, ".aside"))
        path.replace(beside(path, ".aside"))
    for suffix in _SIDES:
        remove(beside(path, suffix))


def remove(path: Path) -> None:
    """Delete a file of ours, or what stands in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Checksum:
    """What one file was after its last checkpoint.

    Its own descriptor is opened before SQLite's and closed after it: closing any descriptor of a
    file ends all locks that a process has on it.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError where it can be neither opened nor made; DamagedError if it is no file."""
        self._sum, self._log = beside(path, ".sum"), beside(path, "-wal")
        if any(beside(path, suffix).is_dir() for suffix in _SIDES):
            raise DamagedError("a directory beside it")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._fd = os.open(path, flags, 0o600)  # SQLite gives its side files the same mode
        except OSError as bad:
            if bad.errno in _NO_FILE or (bad.errno == errno.ENOENT and path.is_symlink()):
                raise DamagedError("not a file") from bad
            raise
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise DamagedError("not a file")
        if not found.st_size:  # it was deleted, and what is beside it belongs to no file
            for suffix in _SIDES:
                beside(path, suffix).unlink(missing_ok=True)

    def check(self) -> None:
        """Raise DamagedError where the file is not as it was left."""
        with suppress(OSError):
            held = self._sum.read_text("ascii", "replace")
            whole = len(held) == _SUM_SIZE and held.endswith("\n")  # a power cut leaves less
            if whole and held != self._of_file():
                raise DamagedError("not as it was left")

    def drop(self) -> None:
        """Before anything is written to the file itself: durably, a crash may come in between."""
        if self._sum.exists():
            self._sum.unlink()
            sync_names(self._sum.parent)

    @property
    def logged(self) -> int:
        """Bytes of the log."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def checkpoint(self, db: sqlite3.Connection) -> bool:
        """Bring all of the log into the file; False where others read meanwhile, or it fails."""
        if not self.logged:
            return True
        try:
            self.drop()
            db.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
            busy = bool(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            if not busy:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                with os.fdopen(os.open(self._sum, flags, 0o600), "w") as file:
                    file.write(self._of_file())
        except (OSError, sqlite3.Error):
            return False
        return not busy

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _of_file(self) -> str:
        total, at = 0, 0
        while chunk := os.pread(self._fd, _CHUNK, at):
            total, at = zlib.crc32(chunk, total), at + len(chunk)
        return f"{total:08x} {at:012x}\n"

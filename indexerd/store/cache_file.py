"""The files of our caches, ledger and catalog: what is damage to one, and how it is put aside.

A cache is damaged when it raises anything but trouble of its place (a full disk, a lock, a missing
right): SQLite's own complaints, text that is no UTF-8, values that are not what was stored. Much
damage raises nothing, as a page that stands in another's place, or one byte within a word. So what
the file was when we wrote it last is kept beside it, in `<name>.seal`: a sum over its pages, to
which each checkpoint adds what it changed. Only we make checkpoints, and between two of them SQLite
writes to its log alone, whose own sums it checks itself. A file without a seal is taken as it is.

What is damaged is renamed to `<name>.aside` (one such file is kept, until something is to be
forgotten). Nothing of it is quoted: SQLite's words may hold a session's.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexerd.errors import DamagedError, IndexerdError
from indexerd.store.wal import emptied

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
_NO_CODE = -1  # Python's own word: a text that it cannot decode
_PAGE = 4096  # bytes, as SQLite has them unless it is told otherwise
_CHUNK = 256 * _PAGE
_LOG_HEAD, _FRAME_HEAD = 32, 24  # bytes
_WHOLE = (1 << 64) - 1
_SEAL_SIZE = 17  # a number of 64 bits in hexadecimal, and the line's end


def code(bad: BaseException) -> int:
    """SQLite's primary code of an error; -1 for what has none."""
    found = getattr(bad, "sqlite_errorcode", None)
    return _NO_CODE if found is None else int(found) & 0xFF


def is_access(bad: BaseException) -> bool:
    """Whether the file may not be opened, or is not there."""
    return code(bad) in _ACCESS


def is_trouble(bad: BaseException) -> bool:
    """Whether it is the place that is at fault, or we, and not what the file holds."""
    if isinstance(bad, sqlite3.Error):
        return code(bad) in _PLACE or isinstance(bad, sqlite3.ProgrammingError)
    ours = isinstance(bad, IndexerdError) and not isinstance(bad, DamagedError)
    return ours or isinstance(bad, OSError | MemoryError)


def named(bad: BaseException) -> str:
    """What an error is, without a word of what it was about."""
    return str(getattr(bad, "sqlite_errorname", None) or type(bad).__name__)


def set_aside(path: Path) -> None:
    """Keep a damaged file under another name; its log and its seal go."""
    with suppress(FileNotFoundError):
        path.replace(_beside(path, ".aside"))
    for suffix in ("-wal", "-shm", ".seal"):
        _beside(path, suffix).unlink(missing_ok=True)


def drop_aside(path: Path) -> None:
    """Let go of the file that was set aside: what is dropped now may be in it."""
    with suppress(OSError):
        _beside(path, ".aside").unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


class Seal:
    """What one file was when we wrote it last.

    To be made before SQLite opens the file, and closed after it let go of it: to close any
    descriptor of a file ends all locks that a process has on it.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError where the file can be neither opened nor made."""
        self._seal, self._log = _beside(path, ".seal"), _beside(path, "-wal")
        self._lock = threading.Lock()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)  # SQLite gives its side files the same mode
        self._sum = self._read()

    def check(self) -> None:
        """Raise DamagedError where the file is not as it was left; in any thread."""
        with self._lock:
            if self._fd < 0:
                return
            found = _summed(self._fd)
            if self._sum is not None and self._sum != found:
                raise DamagedError("not as it was left")
            if self._sum is None:
                self._sum = found
                self._write()

    def drop(self) -> None:
        """The file was written to in another way: it has no seal before the next checkpoint."""
        with self._lock:
            self._sum = None
            self._seal.unlink(missing_ok=True)

    def checkpoint(self, db: sqlite3.Connection) -> bool:
        """Bring the log into the file; False where others read meanwhile, or it fails."""
        with self._lock, suppress(OSError):
            pages = self._logged()
            if not pages or self._fd < 0:
                return emptied(db)
            before = self._of(pages)
            self._unseal()
            done = emptied(db)
            if self._sum is None:
                self._sum = _summed(self._fd)
            else:
                self._sum = self._sum - before + self._of(pages) & _WHOLE
            self._write()
            return done
        return False

    @property
    def logged(self) -> int:
        """Bytes of the log."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def close(self, *, done: bool = True) -> None:
        """Let go of the file; where not all was `done`, SQLite may have written to it since."""
        with self._lock:
            if not done:
                with suppress(OSError):
                    self._unseal()
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def _logged(self) -> set[int]:
        """The pages that a checkpoint may write, counted from 0; old ones among them do no harm."""
        if self.logged <= _LOG_HEAD:
            return set()
        with self._log.open("rb") as log:
            size = int.from_bytes(log.read(12)[8:])
            places = range(_LOG_HEAD, self.logged, _FRAME_HEAD + size)
            return {int.from_bytes(os.pread(log.fileno(), 4, at)) - 1 for at in places}

    def _of(self, pages: Iterable[int]) -> int:
        return sum(_mixed(one, os.pread(self._fd, _PAGE, one * _PAGE)) for one in pages)

    def _read(self) -> int | None:
        try:
            text = self._seal.read_text("ascii")
            return int(text, 16) if len(text) == _SEAL_SIZE else None
        except (OSError, ValueError):
            return None

    def _unseal(self) -> None:
        """From now on nobody can tell; on the disk before anything is written to the file."""
        if self._seal.exists():
            self._seal.unlink()
            folder = os.open(self._seal.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _write(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with suppress(OSError), os.fdopen(os.open(self._seal, flags, 0o600), "w") as file:
            file.write(f"{self._sum:016x}\n")


def _summed(fd: int) -> int:
    """The sum of a whole file."""
    total, at = 0, 0
    while chunk := os.pread(fd, _CHUNK, at * _PAGE):
        held = memoryview(chunk)
        for start in range(0, len(held), _PAGE):
            total += _mixed(at, held[start : start + _PAGE])
            at += 1
    return total & _WHOLE


def _mixed(number: int, page: bytes | memoryview) -> int:
    """A page's part of the sum: another for the same bytes in another place; 0 for no bytes."""
    if not page:
        return 0
    mixed = ((zlib.crc32(page) << 32 | number) * 0x9E3779B97F4A7C15) & _WHOLE
    mixed = ((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9) & _WHOLE
    return mixed ^ mixed >> 32

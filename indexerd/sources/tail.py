"""Read whole lines that were appended to a file; a torn last line waits until it is complete.

A file is opened read-only, without following a link or blocking on a FIFO, and closed after each
read: thousands of sessions cost no descriptors. One read takes at most 256 KB, so that a huge file
takes turns with the others.

Size alone lies (a migration rewrites in place and grows), an inode alone lies (ext4 reuses a freed
one at once), mtime alone lies (it can be set). So a cursor has all of these and two fingerprints,
of the first and of the last bytes that were read. They are computed from the bytes that were
returned: otherwise a file rewritten between two reads would vouch for lines that it lost.

A line ends at byte 0x0A and nowhere else: U+2028 and a bare carriage return are legal inside JSON
strings. Of a line longer than `LINE_MAX` only its two ends are kept, which have an entry's type, id
and parent. Whether a line is shortened depends only on its length, not on how its bytes arrived.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError

CHUNK = 1 << 18  # bytes of one read
LINE_MAX = 16 * 1024 * 1024  # bytes, without the newline: longer ones have no text
END_KEPT = 64 * 1024
HEAD_BYTES, LAST_BYTES = 4096, 1024  # that are fingerprinted
Lines = Callable[[int, int], bytes]  # reads a line by offset and length; other bytes if it is gone
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = (errno.ENOENT, errno.ELOOP, errno.ENXIO)  # nothing, a link, a socket


@dataclass(frozen=True, slots=True)
class Block:
    """One or more whole lines with their newlines, and the file offset of the first."""

    data: bytes
    offset: int


class LineBuffer:
    """Splits a stream at newlines."""

    __slots__ = ("_head", "_offset", "_parts", "_pending", "_tail")

    def __init__(self) -> None:
        self._offset = 0  # of the unfinished line
        self._pending = 0  # bytes of the unfinished line
        self._parts: list[bytes] = []  # of the unfinished line, unless it is too long
        self._head: bytes | None = None  # set once it is too long
        self._tail = b""

    def feed(self, data: bytes) -> list[Block | Oversize]:
        """Add the next bytes of the file; return the lines that they complete."""
        blocks, start = list[Block | Oversize](), 0
        while start < len(data):
            fits = self._pending + len(data) - start <= LINE_MAX  # no line here is too long
            end = (data.rfind(b"\n", start) if fits else data.find(b"\n", start)) + 1
            self._take(data[start : end or len(data)])
            if end:
                blocks.append(self._finish())
            start = end or len(data)
        return blocks

    def _take(self, data: bytes) -> None:
        self._pending += len(data)
        if self._head is not None:
            self._tail = (self._tail + data)[-END_KEPT:]
            return
        self._parts.append(data)
        if self._pending - data.endswith(b"\n") > LINE_MAX:
            line = b"".join(self._parts)
            self._head, self._tail, self._parts = line[:END_KEPT], line[-END_KEPT:], []

    def _finish(self) -> Block | Oversize:
        line: Block | Oversize = Block(b"".join(self._parts), self._offset)
        if self._head is not None:
            line = Oversize(self._offset, self._head, self._tail)
        self._offset += self._pending
        self._parts, self._pending, self._head, self._tail = [], 0, None, b""
        return line


def pieces(read: Lines, end: int) -> Iterator[Block | Oversize]:
    """Yield the lines before a position, in blocks; SessionUnreadableError if there are fewer."""
    buffer, position = LineBuffer(), 0
    while position < end:
        data = read(position, min(CHUNK, end - position))
        if not data:
            raise SessionUnreadableError("the session is shorter than it was")
        position += len(data)
        yield from buffer.feed(data)


class Verdict(Enum):
    """The result of comparing a file with its cursor."""

    SAME = "same"  # nothing to read
    CONTINUE = "continue"  # read from the cursor on
    RESTART = "restart"  # shortened, replaced or rewritten: read from the start


class Look(NamedTuple):
    """The fields of a file's stat that cursors use; for a session in a database, its signature."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


class Cursor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A position in a file. `size`: bytes read; for a file that is read whole, as in its `Look`."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    head_len: int = 0
    head_hash: bytes = b""
    last_hash: bytes = b""

    def matches(self, look: Look) -> bool:
        """Return whether the file was read to its end and its stat has not changed since."""
        return look == (self.dev, self.ino, self.size, self.mtime_ns)


@dataclass(slots=True)
class Read:
    """The result of one read. `more`: there is more to read. `whole`: `lines` are all lines."""

    verdict: Verdict
    lines: Iterable[Block | Oversize] = field(default_factory=list)
    more: bool = False
    bytes: int = 0
    whole: bool = False


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a regular file; FileNotFoundError if there is none, or SessionUnreadableError."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError as bad:
        if bad.errno in _NO_FILE:
            raise FileNotFoundError(path) from None
        raise SessionUnreadableError(f"cannot open: {bad.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(path)
        yield fd
    finally:
        os.close(fd)


def _pread(fd: int, length: int, offset: int) -> bytes:
    try:
        return os.pread(fd, length, offset)
    except OSError as bad:
        raise SessionUnreadableError(f"cannot read: {bad.strerror}") from None


def look(path: str) -> Look | None:
    """Stat a regular file, without following a link; None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return look_of(status) if stat.S_ISREG(status.st_mode) else None


def look_of(status: os.stat_result) -> Look:
    return Look(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Tail:
    """The reading position in a file, and the bytes of an unfinished line."""

    __slots__ = ("_head", "_last", "_lines", "cursor")

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self._lines, self._head, self._last = LineBuffer(), b"", b""

    def read(self, path: str) -> Read:
        """Read the next new bytes. FileNotFoundError if the file is gone.

        After RESTART the lines are those from the file's start. A read that fails changes nothing.
        """
        with opened(path) as fd:
            now, old = look_of(os.fstat(fd)), self.cursor
            verdict = _compare(fd, old, now) if old else Verdict.CONTINUE
            if verdict is Verdict.SAME:
                return Read(verdict)
            start = old.size if old and verdict is Verdict.CONTINUE else 0
            data = _pread(fd, min(CHUNK, now.size - start), start)
        if not start:
            self._lines, self._head, self._last = LineBuffer(), b"", b""
        if len(self._head) < HEAD_BYTES:
            self._head = (self._head + data[:HEAD_BYTES])[:HEAD_BYTES]
        self._last = (self._last + data[-LAST_BYTES:])[-LAST_BYTES:]
        end, head, last = start + len(data), _fingerprint(self._head), _fingerprint(self._last)
        self.cursor = Cursor(now.dev, now.ino, end, now.mtime_ns, len(self._head), head, last)
        return Read(verdict, self._lines.feed(data), bool(data) and end < now.size, len(data))


def compare(path: str, cursor: Cursor) -> Verdict:
    with opened(path) as fd:
        return _compare(fd, cursor, look_of(os.fstat(fd)))


def _compare(fd: int, old: Cursor, now: Look) -> Verdict:
    """Compare a file with its cursor; if its bytes agree, another inode means a moved file."""
    if old.matches(now):
        return Verdict.SAME
    if now.size < old.size or (now.size == old.size and now.mtime_ns != old.mtime_ns):
        return Verdict.RESTART
    start = max(0, old.size - LAST_BYTES)
    head, last = _pread(fd, old.head_len, 0), _pread(fd, old.size - start, start)
    alike = (_fingerprint(head), _fingerprint(last)) == (old.head_hash, old.last_hash)
    return Verdict.CONTINUE if alike else Verdict.RESTART


def _fingerprint(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


@contextmanager
def lines(path: str) -> Iterator[Lines]:
    """Open a file to read single lines; FileNotFoundError or SessionUnreadableError.

    A line is shorter if the file has shrunk.
    """
    with opened(path) as fd:
        yield lambda offset, length: _pread(fd, length, offset)

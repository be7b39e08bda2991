"""Reading what was appended to a file, as whole lines; a torn last line is kept until it ends.

A file is opened read-only, not if it is a link, never blocking on a FIFO, and closed again at once:
thousands of sessions cost no descriptors. One reading takes 256 KB at most, so that a huge file
takes turns with the others.

Size alone lies (a migration rewrites in place and grows), an inode alone lies (ext4 hands out a
freed one at once), mtime alone lies (it can be set). So a cursor holds all of these and two
fingerprints, of the first bytes and of the last ones that were read. They are made of the very
bytes that were handed out: a file rewritten between two reads would otherwise vouch for lines
that it no longer holds.

A line ends at byte 0x0A and nowhere else: U+2028 and a bare carriage return are legal inside JSON
strings. Of a line longer than `LINE_MAX` only its two ends are kept, where an entry's type, id
and parent are. Whether a line is shortened depends on its length alone, not on how its bytes came.
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

CHUNK = 1 << 18  # bytes of one reading
LINE_MAX = 8 * 1024 * 1024  # bytes, newline not counted
END_KEPT = 64 * 1024
HEAD_BYTES, LAST_BYTES = 4096, 1024  # of which fingerprints are taken
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = (errno.ENOENT, errno.ELOOP, errno.ENXIO)  # nothing, a link, a socket


@dataclass(frozen=True, slots=True)
class Block:
    """One or more whole lines, newline included, and the file offset of the first."""

    data: bytes
    offset: int


class LineBuffer:
    """Cuts a stream at newlines."""

    __slots__ = ("_head", "_offset", "_parts", "_pending", "_tail")

    def __init__(self) -> None:
        self._offset = 0  # of the unfinished line
        self._pending = 0  # bytes of it
        self._parts: list[bytes] = []  # the line itself, unless it is too long
        self._head: bytes | None = None  # set once it is
        self._tail = b""

    def feed(self, data: bytes) -> list[Block | Oversize]:
        """Take the next bytes of the file; return the lines that they complete."""
        found: list[Block | Oversize] = []
        start = 0
        while self._pending + len(data) - start > LINE_MAX:  # the next line may be too long
            end = data.find(b"\n", start) + 1
            self._take(data[start : end or len(data)], whole=end > 0)
            if not end:
                return found
            found.append(self._finish())
            start = end
        end = data.rfind(b"\n") + 1
        if end > start:
            self._take(data[start:end], whole=True)
            found.append(self._finish())
            start = end
        if start < len(data):
            self._take(data[start:], whole=False)
        return found

    def _take(self, data: bytes, *, whole: bool) -> None:
        self._pending += len(data)
        if self._head is not None:
            self._tail = (self._tail + data)[-END_KEPT:]
            return
        self._parts.append(data)
        if self._pending - whole > LINE_MAX:
            line = b"".join(self._parts)
            self._head, self._tail, self._parts = line[:END_KEPT], line[-END_KEPT:], []

    def _finish(self) -> Block | Oversize:
        line: Block | Oversize = Block(b"".join(self._parts), self._offset)
        if self._head is not None:
            line = Oversize(self._offset, self._pending, self._head, self._tail)
        self._offset += self._pending
        self._parts, self._pending, self._head, self._tail = [], 0, None, b""
        return line


class Verdict(Enum):
    """What a file is, compared with its cursor."""

    SAME = "same"  # nothing to read
    CONTINUE = "continue"  # read on
    RESTART = "restart"  # shortened, replaced or rewritten: read from the start


class Look(NamedTuple):
    """The part of a file's stat that cursors use; of a session in a database, its signature."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


class Cursor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A position in a file. `size` is what was read of it; of a file read whole, as in a `Look`."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    head_len: int = 0
    head_hash: bytes = b""
    last_hash: bytes = b""

    def matches(self, look: Look) -> bool:
        """Whether a file was read to its end, and its stat has not changed since."""
        return look == (self.dev, self.ino, self.size, self.mtime_ns)


@dataclass(slots=True)
class Read:
    """The result of one reading. `more`: there is more to read. `whole`: `lines` are all lines."""

    verdict: Verdict
    lines: Iterable[Block | Oversize] = field(default_factory=list)
    more: bool = False
    bytes: int = 0
    whole: bool = False


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a regular file; FileNotFoundError where there is none, or SessionUnreadableError."""
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
    """The stat of a regular file that is no link; None where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return look_of(found) if stat.S_ISREG(found.st_mode) else None


def look_of(found: os.stat_result) -> Look:
    return Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Tail:
    """One file's reading position, and the bytes of a line not yet finished."""

    __slots__ = ("_head", "_last", "_lines", "cursor")

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self._lines, self._head, self._last = LineBuffer(), b"", b""

    def read(self, path: str) -> Read:
        """Read what is new. FileNotFoundError when the file is gone.

        RESTART comes with the lines from the file's start. A reading that fails changes nothing.
        """
        with opened(path) as fd:
            now, held = look_of(os.fstat(fd)), self.cursor
            verdict = _compare(fd, held, now) if held else Verdict.CONTINUE
            if verdict is Verdict.SAME:
                return Read(verdict)
            start = held.size if held and verdict is Verdict.CONTINUE else 0
            data = _pread(fd, min(CHUNK, now.size - start), start)
        if not start:
            self._lines, self._head, self._last = LineBuffer(), b"", b""
        if len(self._head) < HEAD_BYTES:
            self._head = (self._head + data[:HEAD_BYTES])[:HEAD_BYTES]
        self._last = (self._last + data[-LAST_BYTES:])[-LAST_BYTES:]
        end, head, last = start + len(data), _fingerprint(self._head), _fingerprint(self._last)
        self.cursor = Cursor(now.dev, now.ino, end, now.mtime_ns, len(self._head), head, last)
        return Read(verdict, self._lines.feed(data), bool(data) and end < now.size, len(data))


def compare(path: str, held: Cursor) -> Verdict:
    with opened(path) as fd:
        return _compare(fd, held, look_of(os.fstat(fd)))


def _compare(fd: int, held: Cursor, now: Look) -> Verdict:
    """A file with another inode whose bytes agree is the same file, moved or restored."""
    if held.matches(now):
        return Verdict.SAME
    if now.size < held.size:
        return Verdict.RESTART
    start = max(0, held.size - LAST_BYTES)
    head, last = _pread(fd, held.head_len, 0), _pread(fd, held.size - start, start)
    alike = (_fingerprint(head), _fingerprint(last)) == (held.head_hash, held.last_hash)
    return Verdict.CONTINUE if alike else Verdict.RESTART


def _fingerprint(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


@contextmanager
def lines(path: str) -> Iterator[Callable[[int, int], bytes]]:
    """Open a session file to read single lines, by offset and length.

    A line comes shorter when the file shrank meanwhile. SessionUnreadableError when it is gone.
    """
    try:
        with opened(path) as fd:
            yield lambda offset, length: _pread(fd, length, offset)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None

"""Reading what was appended to a file, and nothing else.

The file is opened read-only, never through a symlink, be it the last name of the path or a
directory on the way, never blocking on a FIFO, and closed again at once: thousands of sessions
cost no descriptors. One reading takes a megabyte at most, so that a huge file takes turns with
the others; the cursor never points past a line that is not finished.

A cursor's fingerprints are taken from the very bytes that were handed out, never read a second
time: a file rewritten between two reads would otherwise vouch for lines that it no longer holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources.cursor import (
    HEAD_BYTES,
    TAIL_BYTES,
    Cursor,
    Look,
    Verdict,
    fingerprint,
    is_same,
    judge,
)
from indexerd.sources.line_buffer import Block, LineBuffer

CHUNK = 1 << 20  # bytes of one reading

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINKS = getattr(os, "O_NOFOLLOW_ANY", 0)  # macOS: one flag for all names of a path
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(slots=True)
class Read:
    """What one reading found. `more` says that the file goes on.

    `whole` says that the lines are all there are, although the session goes on: a database gives
    no others. Whoever keeps state makes it anew from them.
    """

    verdict: Verdict
    lines: Iterable[Block | Oversize] = field(default_factory=list)
    more: bool = False
    bytes: int = 0
    whole: bool = False


@contextmanager
def opened(path: str, *, own: bool = False) -> Iterator[int]:
    """A descriptor on a regular file; SessionUnreadableError for anything else.

    No name of the path may be a link; of a file of our `own` only the last may not, as our
    directories are where their user has put them.
    """
    try:
        fd = os.open(path, _FLAGS) if own else _open_without_links(path)
    except FileNotFoundError:
        raise
    except OSError as bad:
        raise unreadable("open", bad) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SessionUnreadableError("not a regular file")
        yield fd
    finally:
        os.close(fd)


def _open_without_links(path: str) -> int:
    """Open a path as it is meant, whatever its directories have become since it was found.

    Where the kernel says that the file is at that path, it is not reached by links. That costs
    less than going step by step, which settles it where the kernel says something else.
    """
    if _NO_LINKS:  # which the system refuses beside the flag for the last name alone
        return os.open(path, _FLAGS & ~os.O_NOFOLLOW | _NO_LINKS)
    fd = os.open(path, _FLAGS)
    try:
        if os.readlink(f"/proc/self/fd/{fd}") == path:  # noqa: PTH115 - text with surrogate escapes
            return fd
    except OSError:
        pass  # there is no /proc
    os.close(fd)
    *directories, name = path.split("/")
    held = os.open("/" if path.startswith("/") else ".", _STEP)
    try:
        for one in filter(None, directories):
            inner = os.open(one, _STEP, dir_fd=held)
            os.close(held)
            held = inner
        return os.open(name, _FLAGS, dir_fd=held)
    finally:
        os.close(held)


def unreadable(what: str, bad: OSError) -> SessionUnreadableError:
    """The error for a session whose file system refuses something."""
    why = os.strerror(bad.errno or 0)
    return SessionUnreadableError(f"cannot {what}: {bad.strerror}", upstream=why)


def look(path: str) -> Look | None:
    """The file's stat, not followed through a symlink; None where there is no regular file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return look_of(found) if stat.S_ISREG(found.st_mode) else None


def look_of(found: os.stat_result) -> Look:
    """The part of a stat that cursors care about."""
    return Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Tail:
    """One file's reading position: the cursor, and the bytes of a line not yet finished."""

    __slots__ = ("_lines", "cursor")

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor
        self._lines = LineBuffer(cursor.offset if cursor else 0)

    def read(self, path: str) -> Read:
        """Read what is new. FileNotFoundError when the file is gone.

        A verdict that restarts comes with the lines from the file's start: whoever keeps state
        must drop it before taking them in. A reading that fails has taken nothing.
        """
        with opened(path) as fd:
            now = look_of(os.fstat(fd))
            try:
                return self._read(fd, now)
            except OSError as bad:
                raise unreadable("read", bad) from None

    def _read(self, fd: int, now: Look) -> Read:
        verdict, head, before = self._compare(fd, now)
        if verdict is Verdict.SAME:
            return Read(verdict)
        lines, start = self._lines, self._lines.offset + self._lines.pending
        if verdict is not Verdict.CONTINUE:
            lines, start, head, before = LineBuffer(), 0, b"", b""
        data = os.pread(fd, max(0, min(CHUNK, now.size - start)), start)
        more = bool(data) and start + len(data) < now.size
        pieces = lines.feed(data)
        for one in pieces:
            first, last = (one.data, one.data) if isinstance(one, Block) else (one.head, one.tail)
            head = (head + first[: HEAD_BYTES - len(head)]) if len(head) < HEAD_BYTES else head
            before = (before + last[-TAIL_BYTES:])[-TAIL_BYTES:]
        whole = lines.offset + lines.pending >= now.size
        self._lines = lines
        self.cursor = Cursor(
            dev=now.dev,
            ino=now.ino,
            size=now.size,
            mtime_ns=now.mtime_ns if whole else -1,  # -1: the next comparison must look
            offset=lines.offset,
            head_len=len(head),
            head_hash=fingerprint(head),
            tail_hash=fingerprint(before),
        )
        return Read(verdict, pieces, more, len(data))

    def _compare(self, fd: int, now: Look) -> tuple[Verdict, bytes, bytes]:
        """The verdict, and the bytes that the cursor's fingerprints are of."""
        held = self.cursor
        if held is None:
            return Verdict.CONTINUE, b"", b""
        position = self._lines.offset + self._lines.pending
        if is_same(held, now) and position >= held.size:
            return Verdict.SAME, b"", b""
        verdict, head, before = compare(fd, held, now)
        if verdict is Verdict.CONTINUE and self._lines.pending:
            last = self._lines.last(TAIL_BYTES)
            if os.pread(fd, len(last), position - len(last)) != last:
                verdict = Verdict.REWRITTEN  # the unfinished line is not what it was
        return verdict, head, before


def compare(fd: int, held: Cursor, now: Look) -> tuple[Verdict, bytes, bytes]:
    """Compare an open file with a cursor; also the bytes that its fingerprints are of."""
    head = os.pread(fd, held.head_len, 0)
    start = max(0, held.offset - TAIL_BYTES)
    before = os.pread(fd, held.offset - start, start)
    return judge(held, now, head, before), head, before


class Lines:
    """Many lines of one open file, by offset: what a transcript reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def at(self, offset: int, length: int) -> bytes:
        """The bytes there; shorter when the file shrank meanwhile. SessionUnreadableError."""
        try:
            return os.pread(self._fd, length, offset)
        except OSError as bad:
            raise unreadable("read", bad) from None


@contextmanager
def lines_of(path: str) -> Iterator[Lines]:
    """Open a session file to read single lines; SessionUnreadableError when that fails."""
    try:
        with opened(path) as fd:
            yield Lines(fd)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None

"""Reading what was appended to a file, and nothing else.

In: a path and the cursor of the last time (or None). Out: a `Read` with whole lines and the
next cursor. The file is opened read-only, never through a symlink, be it the last name of the
path or a directory on the way, never blocking on a FIFO, and closed again at once: thousands of
sessions cost no descriptors. A reading is bounded, so that a huge file takes turns with the
others; the partial line at its end is kept in memory by the caller's LineBuffer, and the cursor
never points past a line that is not finished.

A cursor's fingerprints are taken from the very bytes that were handed out, never read a second
time: a file rewritten between two reads would otherwise vouch for lines that it no longer holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from indexerd.core.cursor import (
    HEAD_BYTES,
    TAIL_BYTES,
    Cursor,
    Look,
    Verdict,
    fingerprint,
    glance,
    judge,
    tail_start,
)
from indexerd.core.lines import Block, LineBuffer, Oversize
from indexerd.errors import SessionUnreadableError

CHUNK = 1 << 20  # large enough to be quick, small enough to stay in cache
PENDING_CHECKED = TAIL_BYTES  # of an unfinished line, before it is read on
BUDGET = 16 * CHUNK  # bytes one reading takes before others get their turn

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINKS = getattr(os, "O_NOFOLLOW_ANY", 0)  # macOS: one flag for all names of a path
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(slots=True)
class Read:
    """What one reading found. `more` says that the budget ended it, not the file.

    `whole` says that the lines are all there are, although the session goes on: a database gives
    no others. Whoever keeps state makes it anew from them.
    """

    verdict: Verdict
    lines: list[Block | Oversize] = field(default_factory=list)
    more: bool = False
    bytes: int = 0
    whole: bool = False


@contextmanager
def opened(path: str, *, own: bool = False) -> Iterator[int]:
    """A descriptor on a regular file; SessionUnreadableError for anything else.

    No name of the path may be a link (X4); of a file of our `own` only the last may not, as our
    directories are where their user has put them.
    """
    try:
        fd = os.open(path, _FLAGS) if own else _by_no_link(path)
    except FileNotFoundError:
        raise
    except OSError as bad:
        raise SessionUnreadableError(f"cannot open: {bad.strerror}", upstream=_errno(bad)) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SessionUnreadableError("not a regular file")
        yield fd
    finally:
        os.close(fd)


def _by_no_link(path: str) -> int:
    """Open a path as it is meant, whatever its directories have become since it was found.

    Where the kernel says that the file is at that path, it is not reached by links. That costs
    less than going step by step, which settles it where the kernel says something else.
    """
    if _NO_LINKS:
        return os.open(path, _FLAGS | _NO_LINKS)
    fd = os.open(path, _FLAGS)
    try:
        if os.readlink(f"/proc/self/fd/{fd}") == path:  # noqa: PTH115 - text with surrogate escapes
            return fd
    except OSError:
        pass  # there is no /proc
    os.close(fd)
    return _step_by_step(path)


def _step_by_step(path: str) -> int:
    *way, name = path.split("/")
    held = os.open("/" if path.startswith("/") else ".", _STEP)
    try:
        for one in filter(None, way):
            inner = os.open(one, _STEP, dir_fd=held)
            os.close(held)
            held = inner
        return os.open(name, _FLAGS, dir_fd=held)
    finally:
        os.close(held)


def _errno(bad: OSError) -> str:
    return os.strerror(bad.errno or 0)


def look(path: str) -> Look | None:
    """The file's stat, not followed through a symlink; None where there is no regular file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Tail:
    """One file's reading position: the cursor, and the bytes of a line not yet finished."""

    __slots__ = ("_lines", "cursor")

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor
        self._lines = LineBuffer(cursor.offset if cursor else 0)

    @property
    def pending(self) -> int:
        """Bytes of the unfinished last line that were read."""
        return self._lines.pending

    def read(self, path: str, budget: int = BUDGET) -> Read:
        """Read what is new. FileNotFoundError when the file is gone.

        A verdict that restarts comes with the lines from the file's start: whoever keeps state
        must drop it before taking them in. A reading that fails has taken nothing: the next one
        begins at the cursor again.
        """
        with opened(path) as fd:
            try:
                return self._read(fd, budget)
            except OSError as bad:
                self._lines = LineBuffer(self.cursor.offset if self.cursor else 0)
                raise SessionUnreadableError(
                    f"cannot read: {bad.strerror}", upstream=_errno(bad)
                ) from None

    def _read(self, fd: int, budget: int) -> Read:
        now = _look_at(fd)
        verdict, head, before = self._compare(fd, now)
        if verdict is Verdict.SAME:
            return Read(verdict)
        if verdict is not Verdict.CONTINUE:
            self._lines, head, before = LineBuffer(0), b"", b""
        found = Read(verdict)
        position = self._lines.offset + self._lines.pending
        while position < now.size and found.bytes < budget:
            data = os.pread(fd, min(CHUNK, now.size - position), position)
            if not data:
                break
            position += len(data)
            found.bytes += len(data)
            found.lines += self._lines.feed(data)
        found.more = position < now.size and found.bytes >= budget
        for piece in found.lines:
            first, last = _ends(piece)
            head = (head + first)[:HEAD_BYTES]
            before = (before + last)[-TAIL_BYTES:]
        self.cursor = Cursor(
            dev=now.dev,
            ino=now.ino,
            size=now.size,
            mtime_ns=-1 if position < now.size else now.mtime_ns,  # -1: the next glance must look
            offset=self._lines.offset,
            head_len=len(head),
            head_hash=fingerprint(head),
            tail_hash=fingerprint(before),
        )
        return found

    def _compare(self, fd: int, now: Look) -> tuple[Verdict, bytes, bytes]:
        """The verdict, and the bytes that the cursor's fingerprints are of."""
        held = self.cursor
        if held is None:
            return Verdict.CONTINUE, b"", b""
        reading_on = self._lines.offset + self._lines.pending < held.size
        if glance(held, now) is Verdict.SAME and not reading_on:
            return Verdict.SAME, b"", b""
        head = os.pread(fd, held.head_len, 0)
        start = tail_start(held.offset)
        before = os.pread(fd, held.offset - start, start)
        verdict = judge(held, now, head, before)
        if verdict is Verdict.CONTINUE and self._lines.pending:
            last = self._lines.last(PENDING_CHECKED)
            position = self._lines.offset + self._lines.pending
            if os.pread(fd, len(last), position - len(last)) != last:
                verdict = Verdict.REWRITTEN  # the unfinished line is not what it was
        return verdict, head, before


def _ends(piece: Block | Oversize) -> tuple[bytes, bytes]:
    """As much of a piece's beginning and end as fingerprints can need."""
    if isinstance(piece, Block):
        return piece.data[:HEAD_BYTES], piece.data[-TAIL_BYTES:]
    return piece.head[:HEAD_BYTES], piece.tail[-TAIL_BYTES:]


def _look_at(fd: int) -> Look:
    found = os.fstat(fd)
    return Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def read_span(path: str, offset: int, length: int) -> bytes:
    """One line's bytes, by where it stands."""
    with opened(path) as fd:
        return os.pread(fd, length, offset)


class Lines:
    """Many lines of one open file, by offset: what a transcript reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def at(self, offset: int, length: int) -> bytes:
        """The bytes there; shorter when the file shrank meanwhile. SessionUnreadableError."""
        try:
            return os.pread(self._fd, length, offset)
        except OSError as bad:
            raise SessionUnreadableError(
                f"cannot read: {bad.strerror}", upstream=_errno(bad)
            ) from None


@contextmanager
def lines_of(path: str) -> Iterator[Lines]:
    """Open a session file to read single lines; SessionUnreadableError when that fails."""
    try:
        with opened(path) as fd:
            yield Lines(fd)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None

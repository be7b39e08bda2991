"""Reading what was appended to a file, and nothing else.

In: a path and the cursor of the last time (or None). Out: a `Read` with whole lines and the
next cursor. The file is opened read-only, never through a symlink, be it the last name of the
path or a directory on the way, never blocking on a FIFO, and closed again at once: thousands of
sessions cost no descriptors. A reading is bounded, so that a huge file takes turns with the
others; the partial line at its end is kept in memory by the caller's LineBuffer, and the cursor
never points past a line that is not finished. A long reading goes on while its lines are taken,
so that no more than a chunk of it is in memory.

A cursor's fingerprints are taken from the very bytes that were handed out, never read a second
time: a file rewritten between two reads would otherwise vouch for lines that it no longer holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
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
    glance,
    judge,
    tail_start,
)
from indexerd.sources.lines import Block, LineBuffer

CHUNK = 1 << 20  # large enough to be quick, small enough to stay in cache
AT_ONCE = CHUNK  # bytes of a reading that are read before it is handed out
PENDING_CHECKED = TAIL_BYTES  # of an unfinished line, before it is read on
BUDGET = 16 * CHUNK  # bytes one reading takes before others get their turn

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINKS = getattr(os, "O_NOFOLLOW_ANY", 0)  # macOS: one flag for all names of a path
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


_Pieces = list[Block | Oversize]


class Rest:
    """Pieces of a long reading, read as they are taken. The first is there without a loop, too."""

    __slots__ = ("_held", "_more")

    def __init__(self, held: _Pieces, more: Iterator[_Pieces]) -> None:
        self._held, self._more = held, more

    def __iter__(self) -> Iterator[Block | Oversize]:
        """All that were not taken yet; one that was only looked at comes again."""
        while self._held or self._next():
            yield self._held[0]
            del self._held[0]

    def _next(self) -> bool:
        for found in self._more:
            if found:
                self._held = found
                return True
        return False


@dataclass(slots=True)
class Read:
    """What one reading found. `more` says that the budget ended it, not the file.

    What a long reading found is known when all its lines were taken. Before that the cursor is
    where it was: one that is left in the middle has taken nothing.

    `whole` says that the lines are all there are, although the session goes on: a database gives
    no others. Whoever keeps state makes it anew from them.
    """

    verdict: Verdict
    lines: _Pieces | Rest = field(default_factory=list)
    more: bool = False
    bytes: int = 0
    whole: bool = False


@contextmanager
def opened(path: str, *, own: bool = False) -> Iterator[int]:
    """A descriptor on a regular file; SessionUnreadableError for anything else.

    No name of the path may be a link (X4); of a file of our `own` only the last may not, as our
    directories are where their user has put them.
    """
    fd = _open(path, own=own)
    try:
        yield fd
    finally:
        os.close(fd)


def _open(path: str, *, own: bool = False) -> int:
    try:
        fd = os.open(path, _FLAGS) if own else _by_no_link(path)
    except FileNotFoundError:
        raise
    except OSError as bad:
        raise SessionUnreadableError(f"cannot open: {bad.strerror}", upstream=_errno(bad)) from None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise SessionUnreadableError("not a regular file")


def _by_no_link(path: str) -> int:
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


class _Ends:
    """The bytes that a cursor's fingerprints are of."""

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head, self.tail = head, tail

    def note(self, pieces: _Pieces) -> None:
        """These were handed out."""
        for one in pieces:
            first, last = (one.data, one.data) if isinstance(one, Block) else (one.head, one.tail)
            if len(self.head) < HEAD_BYTES:
                self.head = (self.head + first[:HEAD_BYTES])[:HEAD_BYTES]
            self.tail = (self.tail + last[-TAIL_BYTES:])[-TAIL_BYTES:]


class Tail:
    """One file's reading position: the cursor, and the bytes of a line not yet finished."""

    __slots__ = ("_going", "_lines", "cursor")

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor
        self._lines = LineBuffer(cursor.offset if cursor else 0)
        self._going: Generator[_Pieces, None, None] | None = None  # a long reading

    @property
    def pending(self) -> int:
        """Bytes of the unfinished last line that were read."""
        return self._lines.pending

    def read(self, path: str, budget: int = BUDGET) -> Read:
        """Read what is new. FileNotFoundError when the file is gone.

        A verdict that restarts comes with the lines from the file's start: whoever keeps state
        must drop it before taking them in. A reading that fails has taken nothing: the next one
        begins at the cursor again. A long one that fails later ends there, with `more`.
        """
        if self._going is not None:
            self._going.close()  # it may have been left in the middle
        found = Read(Verdict.SAME)
        self._going = self._read(_open(path), found, budget)
        try:
            pieces = next(self._going, None)
        except OSError as bad:
            raise SessionUnreadableError(
                f"cannot read: {bad.strerror}", upstream=_errno(bad)
            ) from None
        if pieces is not None:
            found.lines = Rest(pieces, self._going)
        return found

    def _read(self, fd: int, found: Read, budget: int) -> Generator[_Pieces, None, None]:
        """Read; what is more than `AT_ONCE` comes in turns, and the file stays open meanwhile."""
        done = False
        try:
            now = _look_at(fd)
            found.verdict, head, before = self._compare(fd, now)
            if found.verdict is not Verdict.SAME:
                if found.verdict is not Verdict.CONTINUE:
                    self._lines, head, before = LineBuffer(0), b"", b""
                ends = _Ends(head, before)
                yield from self._turns(fd, now, found, ends, budget)
                self._stand(now, ends)
            done = True
        finally:
            os.close(fd)
            if not done:
                self._lines = LineBuffer(self.cursor.offset if self.cursor else 0)

    def _turns(
        self, fd: int, now: Look, found: Read, ends: _Ends, budget: int
    ) -> Iterator[_Pieces]:
        pieces: _Pieces = []
        position, due = self._lines.offset + self._lines.pending, AT_ONCE
        while position < now.size and found.bytes < budget:
            if found.bytes >= due:
                yield pieces
                pieces, due = [], 0
            try:
                data = os.pread(fd, min(CHUNK, now.size - position), position)
            except OSError:
                if due:
                    raise
                found.more = True  # the next reading fails
                break
            if not data:
                break
            position += len(data)
            found.bytes += len(data)
            made = self._lines.feed(data)
            ends.note(made)
            pieces += made
        found.more = found.more or (position < now.size and found.bytes >= budget)
        if due:
            found.lines = pieces
        else:
            yield pieces

    def _stand(self, now: Look, ends: _Ends) -> None:
        """What was handed out is taken: the cursor goes behind it."""
        whole = self._lines.offset + self._lines.pending >= now.size
        self.cursor = Cursor(
            dev=now.dev,
            ino=now.ino,
            size=now.size,
            mtime_ns=now.mtime_ns if whole else -1,  # -1: the next glance must look
            offset=self._lines.offset,
            head_len=len(ends.head),
            head_hash=fingerprint(ends.head),
            tail_hash=fingerprint(ends.tail),
        )

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

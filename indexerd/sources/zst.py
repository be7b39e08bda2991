"""Compressed sessions (`*.jsonl.zst`): the same lines, at their places in the decompressed stream.

Whoever compresses a session writes a new file, so nothing is ever appended to one. A file whose
stat is another than the cursor's is decompressed from its start: as far as the cursor's offset
only to compare, from there on to hand out lines; if what was read before is not there any more,
all of it is handed out again. A cursor's device, inode, size and time are the compressed file's,
its offset and fingerprints the decompressed stream's.

A few bytes can stand for endless ones. So the window, the stream and what is held at a time are
bounded, whatever a file claims. The decoder is an extra (`indexerd[zst]`): without it these
sessions are listed as unreadable, with the cure.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

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
)
from indexerd.sources.cursor import judge as judge_bytes
from indexerd.sources.lines import Block, LineBuffer
from indexerd.sources.tail import CHUNK, Read, look, opened

__all__ = ["ZstLines", "ZstTail", "lines", "look", "tail"]

BUDGET = 64 * CHUNK  # of decompressed bytes; going on costs the way back to where it stopped
TOTAL_MAX = 1 << 30  # decompressed bytes of one session
WINDOW_MAX = 1 << 26  # what the decoder may have to hold; codex's own files need 2 MiB
KEPT_MAX = 64 * CHUNK  # decompressed bytes that random access holds


def tail(cursor: Cursor | None = None) -> ZstTail:
    """A reading position."""
    return ZstTail(cursor)


@contextmanager
def lines(path: str) -> Iterator[ZstLines]:
    """Open a session to read single lines; SessionUnreadableError when that fails."""
    try:
        with opened(path) as fd:
            yield ZstLines(fd)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None


class ZstTail:
    """One compressed session's reading position."""

    __slots__ = ("cursor", "pending")

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor
        self.pending = 0  # bytes of an unfinished last line; they are read again

    def read(self, path: str, budget: int = BUDGET) -> Read:
        """Read what is new, at least a line. FileNotFoundError when the file is gone.

        A reading that fails with SessionUnreadableError has taken nothing.
        """
        with opened(path) as fd:
            found = os.fstat(fd)
            now = Look(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if self.cursor is not None and glance(self.cursor, now) is Verdict.SAME:
                return Read(Verdict.SAME)
            stream = _Stream(fd)
            verdict, head, before = self._compare(stream, now)
            if verdict.restart:
                stream = _Stream(fd)
            return self._take(stream, now, Read(verdict), (head, before), budget)

    def _compare(self, stream: _Stream, now: Look) -> tuple[Verdict, bytes, bytes]:
        """Go to the cursor's offset; the verdict, and the bytes its fingerprints are of."""
        held = self.cursor
        if held is None:
            return Verdict.CONTINUE, b"", b""
        head = before = b""
        while stream.position < held.offset:
            data = stream.read(held.offset - stream.position)
            if not data:
                break
            head = (head + data)[:HEAD_BYTES]
            before = (before + data)[-TAIL_BYTES:]
        there = Look(now.dev, now.ino, stream.position, now.mtime_ns)
        verdict = judge_bytes(held, there, head[: held.head_len], before)
        return (verdict, b"", b"") if verdict.restart else (verdict, head, before)

    def _take(
        self, stream: _Stream, now: Look, found: Read, ends: tuple[bytes, bytes], budget: int
    ) -> Read:
        buffer = LineBuffer(stream.position)
        data, pieces = b"-", list[Block | Oversize]()
        while found.bytes < budget or not pieces:  # never stop within the first line
            data = stream.read(CHUNK)
            if not data:
                break
            found.bytes += len(data)
            pieces += buffer.feed(data)
        found.lines, found.more = pieces, bool(data)
        head, before = ends
        for piece in pieces:
            first, last = _ends(piece)
            head = (head + first)[:HEAD_BYTES]
            before = (before + last)[-TAIL_BYTES:]
        self.pending = buffer.pending
        self.cursor = Cursor(
            dev=now.dev,
            ino=now.ino,
            size=now.size,
            mtime_ns=-1 if found.more else now.mtime_ns,  # -1: the next glance must look
            offset=buffer.offset,
            head_len=len(head),
            head_hash=fingerprint(head),
            tail_hash=fingerprint(before),
        )
        return found


class ZstLines:
    """Single lines of one open session. Holds a stretch of the stream, around the last line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = b""
        self._start = 0

    def at(self, offset: int, length: int) -> bytes:
        """The bytes there; shorter when the stream ends before."""
        length = min(length, TOTAL_MAX)
        within = offset - self._start
        if within < 0 or within + length > len(self._held):
            self._hold(offset, length)
            within = offset - self._start
        return self._held[within : within + length]

    def _hold(self, offset: int, length: int) -> None:
        """Hold what is before a place as well as after it: transcripts are read backwards."""
        start = max(0, offset - KEPT_MAX // 2)
        wanted = max(KEPT_MAX, offset - start + length)
        stream = _Stream(self._fd)
        while stream.position < start and stream.read(start - stream.position):
            pass
        self._start, held = stream.position, bytearray()
        while len(held) < wanted:
            data = stream.read(wanted - len(held))
            if not data:
                break
            held += data
        self._held = bytes(held)


class _Stream:
    """A file's decompressed bytes from the start; SessionUnreadableError for what is none."""

    def __init__(self, fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        self._read, self._fault = _decoder(io.FileIO(fd, closefd=False))
        self.position = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes more, and no more than a chunk; nothing at the end."""
        try:
            data = self._read(min(size, CHUNK))
        except self._fault as bad:
            raise SessionUnreadableError("zstd cannot decompress it", upstream=str(bad)) from None
        except OSError as bad:
            raise SessionUnreadableError(f"cannot read: {bad.strerror}") from None
        self.position += len(data)
        if self.position > TOTAL_MAX:
            raise SessionUnreadableError(
                f"more than {TOTAL_MAX >> 20} MiB when decompressed", hint="decompress it yourself"
            )
        return data


def _decoder(source: IO[bytes]) -> tuple[Callable[[int], bytes], type[Exception]]:
    try:
        import zstandard  # noqa: PLC0415 - an extra, and only compressed sessions need it
    except ImportError:
        raise SessionUnreadableError(
            "a compressed session, and the decoder is not installed",
            hint="install indexerd[zst]",
        ) from None
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX)
    reader = decoder.stream_reader(source, read_size=CHUNK, read_across_frames=True)
    return reader.read, zstandard.ZstdError


def _ends(piece: Block | Oversize) -> tuple[bytes, bytes]:
    """As much of a piece's beginning and end as fingerprints can need."""
    if isinstance(piece, Block):
        return piece.data[:HEAD_BYTES], piece.data[-TAIL_BYTES:]
    return piece.head[:HEAD_BYTES], piece.tail[-TAIL_BYTES:]

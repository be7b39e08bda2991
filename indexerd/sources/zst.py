"""Compressed sessions (`*.jsonl.zst`): the same lines, at their places in the decompressed stream.

Nothing is ever appended to a compressed session: a file with another stat is read from its start.
A few bytes can stand for endless ones, so the window, the stream and what is kept at a time are
bounded. The decoder is an extra (`indexerd[zst]`).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources.cursor import Cursor, Look, is_same
from indexerd.sources.line_buffer import Block, LineBuffer
from indexerd.sources.tail import CHUNK, look_of, opened

TOTAL_MAX = 1 << 30  # decompressed bytes of one session
WINDOW_MAX = 1 << 26  # what the decoder may have to keep; codex's own files need 2 MiB
KEPT_MAX = 64 * CHUNK  # decompressed bytes that random access keeps


def load(path: str, held: Cursor | None) -> tuple[Look, Iterator[Block | Oversize] | None]:
    """A file's stat, and its lines, as they are decompressed, if it is another.

    FileNotFoundError when the file is gone. SessionUnreadableError may come between lines.
    """
    with opened(path) as fd:
        now = look_of(os.fstat(fd))
        if held is not None and is_same(held, now):
            return now, None
        _Stream(fd)  # raises where there is no decoder
    return now, _blocks(path)


def _blocks(path: str) -> Iterator[Block | Oversize]:
    buffer = LineBuffer()
    with opened(path) as fd:
        stream = _Stream(fd)
        while data := stream.read(CHUNK):
            yield from buffer.feed(data)


@contextmanager
def lines(path: str) -> Iterator[Callable[[int, int], bytes]]:
    """Open a session to read single lines, by offset and length; as of `tail.lines`."""
    start, kept = 0, b""

    def at(offset: int, length: int) -> bytes:
        nonlocal start, kept
        length = min(length, TOTAL_MAX)
        if not start <= offset <= offset + length <= start + len(kept):
            # What is before a place is kept as well: transcripts are read backwards.
            start = max(0, offset - KEPT_MAX // 2)
            stream = _Stream(fd)
            while stream.position < start and stream.read(start - stream.position):
                pass
            end, parts = max(start + KEPT_MAX, offset + length), list[bytes]()
            while data := stream.read(end - stream.position):
                parts.append(data)
            kept = b"".join(parts)
        return kept[offset - start : offset - start + length]

    try:
        with opened(path) as fd:
            yield at
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None


class _Stream:
    """A file's decompressed bytes from the start; SessionUnreadableError for what is none."""

    def __init__(self, fd: int) -> None:
        try:
            import zstandard  # noqa: PLC0415 - an extra, and only compressed sessions need it
        except ImportError:
            message = "a compressed session, and the decoder is not installed"
            raise SessionUnreadableError(message, hint="install indexerd[zst]") from None
        os.lseek(fd, 0, os.SEEK_SET)
        self._reader = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX).stream_reader(
            io.FileIO(fd, closefd=False), read_size=CHUNK, read_across_frames=True
        )
        self._fault = zstandard.ZstdError
        self.position = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes more, and no more than a chunk; nothing at the end."""
        try:
            data = self._reader.read(min(size, CHUNK))
        except (self._fault, OSError) as bad:
            raise SessionUnreadableError(f"cannot be decompressed: {bad}") from None
        self.position += len(data)
        if self.position > TOTAL_MAX:
            message = f"more than {TOTAL_MAX >> 20} MiB when decompressed"
            raise SessionUnreadableError(message, hint="decompress it yourself")
        return data

"""Compressed sessions (`*.jsonl.zst`): the same lines, at their places in the decompressed stream.

Whoever compresses a session writes a new file, so nothing is ever appended to one: a file whose
stat is another than the cursor's is read from its start. A few bytes can stand for endless ones,
so the window, the stream and what is held at a time are bounded, whatever a file claims. The
decoder is an extra (`indexerd[zst]`): without it these sessions are listed as unreadable, with
the cure.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources.cursor import Cursor, Look, is_same
from indexerd.sources.line_buffer import Block, LineBuffer
from indexerd.sources.tail import CHUNK, look_of, opened, unreadable

TOTAL_MAX = 1 << 30  # decompressed bytes of one session
WINDOW_MAX = 1 << 26  # what the decoder may have to hold; codex's own files need 2 MiB
KEPT_MAX = 64 * CHUNK  # decompressed bytes that random access holds


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
def lines(path: str) -> Iterator[ZstLines]:
    """Open a session to read single lines; SessionUnreadableError when that fails."""
    try:
        with opened(path) as fd:
            yield ZstLines(fd)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None


class ZstLines:
    """Single lines of one open session. Holds a stretch of the stream, around the last line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = b""
        self._start = 0

    def at(self, offset: int, length: int) -> bytes:
        """The bytes there; shorter when the stream ends before."""
        length = min(length, TOTAL_MAX)
        if not self._start <= offset <= offset + length <= self._start + len(self._held):
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
        while len(held) < wanted and (data := stream.read(wanted - len(held))):
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
            raise unreadable("read", bad) from None
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

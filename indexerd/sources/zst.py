"""Compressed sessions (`*.jsonl.zst`): the same lines, at their places in the decompressed stream.

Nothing is ever appended to a compressed session: a file with another stat is read from its start.
A few bytes can stand for endless ones, so what they are decompressed to is bounded. The decoder is
an extra (`indexerd[zst]`).
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

TOTAL_MAX = 1 << 28  # decompressed bytes of one session
WINDOW_MAX = 1 << 26  # what the decoder may have to keep; codex's own files need 2 MiB


def load(path: str, held: Cursor | None) -> tuple[Look, Iterator[Block | Oversize] | None]:
    """A file's stat, and its lines if that changed. FileNotFoundError if the file is gone."""
    with opened(path) as fd:
        now = look_of(os.fstat(fd))
        if held is not None and is_same(held, now):
            return now, None
        data = _decompressed(fd)
    buffer, starts = LineBuffer(), range(0, len(data), CHUNK)
    return now, (piece for at in starts for piece in buffer.feed(bytes(data[at : at + CHUNK])))


@contextmanager
def lines(path: str) -> Iterator[Callable[[int, int], bytes]]:
    """Open a session to read single lines, as of `tail.lines`."""
    try:
        with opened(path) as fd:
            data = _decompressed(fd)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None
    yield lambda offset, length: bytes(data[offset : offset + length])


def _decompressed(fd: int) -> memoryview:
    try:
        import zstandard  # noqa: PLC0415 - an extra, and only compressed sessions need it
    except ImportError:
        message = "a compressed session, and the decoder is not installed"
        raise SessionUnreadableError(message, hint="install indexerd[zst]") from None
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX)
    whole = bytearray()
    try:
        reader = decoder.stream_reader(io.FileIO(fd, closefd=False), read_across_frames=True)
        while len(whole) <= TOTAL_MAX and (data := reader.read(CHUNK)):
            whole += data
    except (zstandard.ZstdError, OSError) as bad:
        raise SessionUnreadableError(f"cannot be decompressed: {bad}") from None
    if len(whole) > TOTAL_MAX:
        message = f"more than {TOTAL_MAX >> 20} MiB when decompressed"
        raise SessionUnreadableError(message, hint="decompress it yourself")
    return memoryview(whole)

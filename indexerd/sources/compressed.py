"""Read a compressed session (`*.zst`); an offset is a position in the decompressed stream."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources.tail import CHUNK, Block, Lines, opened, pieces

TOTAL_MAX = 1 << 28  # decompressed bytes of one session: a few bytes can expand without end
WINDOW_MAX = 1 << 26  # bytes that the decoder may keep; codex's own files need 2 MiB


def decompressed(path: str) -> memoryview:
    """Return a file's content. FileNotFoundError or SessionUnreadableError."""
    import zstandard  # noqa: PLC0415 - only compressed sessions need it

    decoder, whole = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX), bytearray()
    with opened(path) as fd:
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


def in_compressed(path: str) -> AbstractContextManager[Lines]:
    """Open a file to read single lines; FileNotFoundError or SessionUnreadableError."""
    data = decompressed(path)
    return nullcontext(lambda offset, length: bytes(data[offset : offset + length]))


def lines_in_compressed(path: str) -> Iterator[Block | Oversize]:
    """Return all lines of a file; FileNotFoundError or SessionUnreadableError."""
    data = decompressed(path)
    return pieces(lambda offset, length: bytes(data[offset : offset + length]), len(data))

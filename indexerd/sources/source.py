"""The kinds of storage: a plain file, a compressed file, a database, a tree of files.

Every session has a path; in a database it is the database's path, then the session's id. All kinds
yield JSON lines at offsets, which stay valid until a `Read` says otherwise; an offset need not be a
position in a file. In a compressed session (`*.jsonl.zst`) it is the position in the decompressed
stream; the decoder is an extra (`indexerd[zst]`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.sources import tail
from indexerd.sources.opencode import (
    Records,
    TreeRecords,
    in_database,
    look_at_tree,
    look_in_database,
)
from indexerd.sources.tail import (
    CHUNK,
    Block,
    Cursor,
    LineBuffer,
    Look,
    Read,
    Tail,
    Verdict,
    opened,
)

TOTAL_MAX = 1 << 28  # decompressed bytes of one session: a few bytes can expand without end
WINDOW_MAX = 1 << 26  # bytes that the decoder may keep; codex's own files need 2 MiB

# Reads a line by offset and length; if it is gone: SessionUnreadableError, or other bytes.
Lines = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of storage."""

    look: Callable[[str], Look | None]  # changes when the session does; None if there is none
    lines: Callable[[str], AbstractContextManager[Lines]]  # SessionUnreadableError if that fails
    # Reads all lines, if sessions are read whole at every change; FileNotFoundError if gone.
    load: Callable[[str], list[Block] | Iterator[Block | Oversize]] | None = None

    def tail(self) -> Tail:
        return _Whole(self) if self.load else Tail()

    def compare(self, path: str, cursor: Cursor) -> Verdict:
        """Compare a session with a cursor; the errors are those of `Tail.read`."""
        if self.load is None:
            return tail.compare(path, cursor)
        now = self.look(path)
        return Verdict.SAME if now and cursor.matches(now) else Verdict.CONTINUE


class _Whole(Tail):
    """Reads a session whole whenever it has changed."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source

    def read(self, path: str) -> Read:
        now = self._source.look(path)
        if now is None:
            raise FileNotFoundError(path)
        if self._source.load is None or (self.cursor and self.cursor.matches(now)):
            return Read(Verdict.SAME)
        lines = self._source.load(path)
        self.cursor = Cursor(*now)
        size = sum(len(one.data) for one in lines) if isinstance(lines, list) else now.size
        return Read(Verdict.CONTINUE, lines, bytes=size, whole=True)


def _opencode(
    look: Callable[[str], Look | None], open_: Callable[[str], AbstractContextManager[Records]]
) -> Source:
    def load(path: str) -> list[Block]:
        with open_(path) as records:
            return records.brief_lines()

    @contextmanager
    def lines(path: str) -> Iterator[Lines]:
        try:
            with open_(path) as records:
                yield records.full_line
        except FileNotFoundError:
            raise SessionUnreadableError("the session is gone") from None

    return Source(look, lines, load)


def _decompressed(path: str) -> memoryview:
    try:
        import zstandard  # noqa: PLC0415 - an extra, and only compressed sessions need it
    except ImportError:
        message = "the session is compressed, and the decoder is not installed"
        raise SessionUnreadableError(message, hint="install indexerd[zst]") from None
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


def _load_compressed(path: str) -> Iterator[Block | Oversize]:
    data, buffer = _decompressed(path), LineBuffer()
    starts = range(0, len(data), CHUNK)
    return (piece for at in starts for piece in buffer.feed(bytes(data[at : at + CHUNK])))


@contextmanager
def _compressed_lines(path: str) -> Iterator[Lines]:
    try:
        data = _decompressed(path)
    except FileNotFoundError:
        raise SessionUnreadableError("the session file is gone") from None
    yield lambda offset, length: bytes(data[offset : offset + length])


PLAIN = Source(tail.look, tail.lines)
ZST = Source(tail.look, _compressed_lines, _load_compressed)
DATABASE = _opencode(look_in_database, in_database)
TREE = _opencode(look_at_tree, lambda path: nullcontext(TreeRecords(path)))


def source_of(agent: str, path: str) -> Source:
    if agent == "opencode":
        return TREE if path.endswith(".json") else DATABASE
    return ZST if path.endswith(".zst") else PLAIN

"""Bytes of a growing file in, blocks of whole lines out.

Goals: every byte is looked at once, a partial line is never handed out, and memory is bounded
whatever a line's length. A line ends at byte 0x0A and nowhere else: U+2028 and a bare carriage
return are legal inside JSON strings. A line longer than `LINE_MAX` is not kept: its two ends
are (that is where an entry's type, id and parent stand), and its text is lost to us.

Operations: `feed(data)` returns what became complete; `offset` is the file position just after
the last newline handed out, the only position worth remembering across a restart.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_MAX = 8 * 1024 * 1024
END_KEPT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """One or more whole lines, newline included, and the file offset of the first."""

    data: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line too long to hold: where it is, and its two ends."""

    offset: int
    length: int  # bytes, newline included
    head: bytes
    tail: bytes


class LineBuffer:
    """Cuts a stream at newlines. `offset` starts at the file position of the first byte fed."""

    __slots__ = ("_head", "_parts", "_size", "_tail", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._parts: list[bytes] = []  # the partial line, unless it is oversized
        self._size = 0  # of the partial line, in bytes
        self._head: bytes | None = None  # set once the partial line is oversized
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes fed after the last newline."""
        return self._size

    def last(self, count: int) -> bytes:
        """The last bytes, at most `count`, of the line not yet finished."""
        return (self._tail if self._head is not None else b"".join(self._parts[-1:]))[-count:]

    def feed(self, data: bytes) -> list[Block | Oversize]:
        """Take the next bytes of the file; return the lines that they complete."""
        found: list[Block | Oversize] = []
        if self._head is not None:
            end = data.find(b"\n") + 1
            if not end:
                self._stretch(data)
                return found
            self._stretch(data[:end])
            found.append(Oversize(self.offset, self._size, self._head, self._tail))
            self._restart(self.offset + self._size)
            data = data[end:]
        end = data.rfind(b"\n") + 1
        if end:
            whole = b"".join((*self._parts, data[:end])) if self._parts else data[:end]
            found.append(Block(whole, self.offset))
            self._restart(self.offset + len(whole))
            data = data[end:]
        if data:
            self._parts.append(data)
            self._size += len(data)
            if self._size > LINE_MAX:
                self._overflow()
        return found

    def _restart(self, offset: int) -> None:
        self.offset = offset
        self._parts = []
        self._size = 0
        self._head = None
        self._tail = b""

    def _overflow(self) -> None:
        whole = b"".join(self._parts)
        self._head = whole[:END_KEPT]
        self._tail = whole[-END_KEPT:]
        self._parts = []

    def _stretch(self, data: bytes) -> None:
        self._size += len(data)
        self._tail = (self._tail + data)[-END_KEPT:]

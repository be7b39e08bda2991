"""Bytes of a growing file in, blocks of whole lines out.

Goals: every byte is looked at once, a partial line is never handed out, and memory is bounded
whatever a line's length. A line ends at byte 0x0A and nowhere else: U+2028 and a bare carriage
return are legal inside JSON strings. A line longer than `LINE_MAX` is not kept: its two ends
are (that is where an entry's type, id and parent stand). Whoever needs its words reads that one
line later, by its place in the file, up to `READ_MAX`; beyond that its text is lost to us. Which
lines that befalls depends on their length alone, never on how the bytes were dealt out.

Operations: `feed(data)` returns what became complete; `offset` is the file position just after
the last newline handed out, the only position worth remembering across a restart.
"""

from __future__ import annotations

from dataclasses import dataclass

from indexerd.agents.base import Oversize

LINE_MAX = 8 * 1024 * 1024  # bytes, newline not counted
END_KEPT = 64 * 1024  # more than a cursor's fingerprints need


@dataclass(frozen=True, slots=True)
class Block:
    """One or more whole lines, newline included, and the file offset of the first."""

    data: bytes
    offset: int


class LineBuffer:
    """Cuts a stream at newlines. `offset` starts at the file position of the first byte fed."""

    __slots__ = ("_head", "_parts", "_size", "_tail", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._parts: list[bytes | memoryview] = []  # the partial line, unless it is oversized
        self._size = 0  # of the partial line, in bytes
        self._head: bytes | None = None  # set once the partial line is oversized
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes fed after the last newline."""
        return self._size

    def last(self, count: int) -> bytes:
        """The last bytes, at most `count`, of the line not yet finished."""
        if self._head is not None:
            return self._tail[-count:]
        held = b""
        for part in reversed(self._parts):
            if len(held) >= count:
                break
            held = bytes(part[-count:]) + held
        return held[-count:]

    def feed(self, data: bytes) -> list[Block | Oversize]:
        """Take the next bytes of the file; return the lines that they complete."""
        found: list[Block | Oversize] = []
        start = 0
        while self._size + len(data) - start > LINE_MAX:  # the next line may be too long
            end = data.find(b"\n", start) + 1
            self._take(data[start : end or len(data)], whole=end > 0)
            if not end:
                return found
            found.append(self._finish())
            start = end
        end = data.rfind(b"\n") + 1
        if end > start:
            self._take(memoryview(data)[start:end], whole=True)  # it is copied once, when joined
            found.append(self._finish())
            start = end
        if start < len(data):
            self._take(data[start:], whole=False)
        return found

    def _take(self, data: bytes | memoryview, *, whole: bool) -> None:
        self._size += len(data)
        if self._head is None:
            self._parts.append(data)
            if self._size - whole > LINE_MAX:
                self._overflow()
        else:
            self._tail = (self._tail + data)[-END_KEPT:]

    def _overflow(self) -> None:
        line = b"".join(self._parts)
        self._head, self._tail, self._parts = line[:END_KEPT], line[-END_KEPT:], []

    def _finish(self) -> Block | Oversize:
        """Hand out what is held: it ends with a newline."""
        held: Block | Oversize
        if self._head is not None:
            held = Oversize(self.offset, self._size, self._head, self._tail)
        else:
            held = Block(b"".join(self._parts), self.offset)
        self.offset += self._size
        self._parts, self._size, self._head, self._tail = [], 0, None, b""
        return held

"""Bytes of a growing file in, blocks of whole lines out; a torn last line is kept until it ends.

A line ends at byte 0x0A and nowhere else: U+2028 and a bare carriage return are legal inside JSON
strings. Of a line longer than `LINE_MAX` only its two ends are kept, where an entry's type, id
and parent are. Whether a line is shortened depends on its length alone, not on how its bytes came.
"""

from __future__ import annotations

from dataclasses import dataclass

from indexerd.agents.base import Oversize

LINE_MAX = 8 * 1024 * 1024  # bytes, newline not counted
END_KEPT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """One or more whole lines, newline included, and the file offset of the first."""

    data: bytes
    offset: int


class LineBuffer:
    """Cuts a stream at newlines."""

    __slots__ = ("_head", "_offset", "_parts", "_pending", "_tail")

    def __init__(self) -> None:
        self._offset = 0  # of the unfinished line
        self._pending = 0  # bytes of it
        self._parts: list[bytes] = []  # the line itself, unless it is too long
        self._head: bytes | None = None  # set once it is
        self._tail = b""

    def feed(self, data: bytes) -> list[Block | Oversize]:
        """Take the next bytes of the file; return the lines that they complete."""
        found: list[Block | Oversize] = []
        start = 0
        while self._pending + len(data) - start > LINE_MAX:  # the next line may be too long
            end = data.find(b"\n", start) + 1
            self._take(data[start : end or len(data)], whole=end > 0)
            if not end:
                return found
            found.append(self._finish())
            start = end
        end = data.rfind(b"\n") + 1
        if end > start:
            self._take(data[start:end], whole=True)
            found.append(self._finish())
            start = end
        if start < len(data):
            self._take(data[start:], whole=False)
        return found

    def _take(self, data: bytes, *, whole: bool) -> None:
        self._pending += len(data)
        if self._head is not None:
            self._tail = (self._tail + data)[-END_KEPT:]
            return
        self._parts.append(data)
        if self._pending - whole > LINE_MAX:
            line = b"".join(self._parts)
            self._head, self._tail, self._parts = line[:END_KEPT], line[-END_KEPT:], []

    def _finish(self) -> Block | Oversize:
        line: Block | Oversize = Block(b"".join(self._parts), self._offset)
        if self._head is not None:
            line = Oversize(self._offset, self._pending, self._head, self._tail)
        self._offset += self._pending
        self._parts, self._pending, self._head, self._tail = [], 0, None, b""
        return line

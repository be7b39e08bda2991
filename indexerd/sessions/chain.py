"""Messages of a session file that are a chain: what an adapter gathers, and adds at once.

Most lines of a session stand below the line before. To add them one by one takes longer than to
find them; `SessionState.extend` takes them as lists. Nothing here is looked into twice.
"""

from __future__ import annotations


class Chain:
    """Messages that stand one after the other in the file, each below the one before."""

    __slots__ = ("codes", "end", "ids", "opened", "parent", "starts")

    def __init__(self, parent: bytes) -> None:
        """`parent`: the id that the first of them names."""
        self.parent = parent
        self.ids: list[bytes] = []  # none of them empty
        self.starts: list[int] = []  # of their lines, in the block
        self.codes = bytearray()  # packed
        self.end = 0  # just after the newline of the last
        self.opened = False  # a human message before them was read

    def newest(self) -> dict[int, tuple[int, int]]:
        """Of each packed code the newest line: where it begins and ends."""
        stops = [*self.starts[1:], self.end]
        rows = {packed: self.codes.rindex(packed) for packed in set(self.codes)}
        return {packed: (self.starts[row], stops[row] - 1) for packed, row in rows.items()}

    def drop_last(self) -> None:
        """Without the last of them, which may not be what it looks like."""
        self.end = self.starts[-1]
        del self.ids[-1], self.starts[-1], self.codes[-1]

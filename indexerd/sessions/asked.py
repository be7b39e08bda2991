"""What humans asked along the paths of a session's tree: how often, and first of all.

In: a tree. Out: of any row the human messages from the root down to it, and the words of the
first of them. Sums are kept row by row, and built only as far as they are asked for, so that an
answer costs what was added since. Where ids repeat or parents come late there are no sums: a
count is a walk, and the first words are the file's, whatever the path.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Protocol

from indexerd.events import KIND_MASK, Kind

NONE = -1  # nobody asked yet
KEPT = 64  # first messages of one tree that are remembered
STRETCH, FEW = 64, 8  # rows that are looked at together, and those for which that is too dear

_ASKS = bytes(packed & KIND_MASK == Kind.USER for packed in range(256))  # of each packed code


class _Tree(Protocol):
    """What is needed of a `SessionState`."""

    index: dict[bytes, int]
    parents: array[int]
    codes: bytearray
    leaf: int
    openings: dict[int, str]  # row of a path's first message -> its words

    @property
    def orderly(self) -> bool: ...

    def up(self, row: int) -> Iterator[int]: ...


class Asked:
    """Running sums over one tree's rows."""

    def __init__(self) -> None:
        self._sums = array("I")
        self._firsts = array("i")

    def cut(self, row: int) -> None:
        """From this row on the tree is not what it was."""
        del self._sums[row:], self._firsts[row:]

    def count(self, tree: _Tree, row: int) -> int:
        """Human messages from the root to a row."""
        if row < 0:
            return 0
        if not tree.orderly:
            return sum(1 for one in tree.up(row) if tree.codes[one] & KIND_MASK == Kind.USER)
        self._reach(tree, row)
        return self._sums[row]

    def words(self, tree: _Tree, row: int) -> str:
        """The words of the first of them; "" while they are not known."""
        if not tree.orderly:
            return next(iter(tree.openings.values()), "")
        return tree.openings.get(self._first(tree, row), "")

    def note(self, tree: _Tree, words: str) -> None:
        """The first message on the path to the leaf says this. Of too many one is forgotten."""
        if not words:
            tree.openings.clear()
            return
        tree.openings[self._first(tree, tree.leaf) if tree.orderly else NONE] = words
        if len(tree.openings) > KEPT:  # the file's first stays
            del tree.openings[next(islice(tree.openings, 1, None))]

    def _first(self, tree: _Tree, row: int) -> int:
        if row < 0:
            return NONE
        self._reach(tree, row)
        return self._firsts[row]

    def _reach(self, tree: _Tree, row: int) -> None:
        """Bring the sums as far as a row. Where rows are a chain, many are summed at once."""
        done = len(self._sums)
        while done <= row:
            end = min(done + STRETCH, row + 1)
            if end - done > FEW and tree.parents[done:end] == array("i", range(done - 1, end - 1)):
                self._chain(tree, done, end)
            else:
                self._any(tree, done, end)
            done = end

    def _chain(self, tree: _Tree, start: int, end: int) -> None:
        """Rows of which each stands below the one before."""
        before, first = (self._sums[-1], self._firsts[-1]) if start else (0, NONE)
        asks = tree.codes[start:end].translate(_ASKS)
        sums = accumulate(asks, initial=before)
        self._sums.extend(islice(sums, 1, None))
        if first == NONE and 1 in asks:
            unasked = asks.index(1)
            self._firsts += array("i", [NONE]) * unasked
            self._firsts += array("i", [start + unasked]) * (len(asks) - unasked)
        else:
            self._firsts += array("i", [first]) * len(asks)

    def _any(self, tree: _Tree, start: int, end: int) -> None:
        """Rows that stand anywhere below earlier ones."""
        sums, firsts = self._sums, self._firsts
        for one in range(start, end):
            above = tree.parents[one]
            before, first = (sums[above], firsts[above]) if above >= 0 else (0, NONE)
            asks = _ASKS[tree.codes[one]]
            sums.append(before + asks)
            firsts.append(one if asks and first == NONE else first)

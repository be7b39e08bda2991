"""Sessions in the order of their last change, for completions of nothing typed yet.

In: numbers, each with a time, and what becomes of these. Out: the numbers, newest first, of two of
one time the smaller first. Kept from when somebody first asks: sorting 30,000 takes 10 ms, and
moving one 10 µs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator


class Recent:
    """Who asks gets the order; who changes something tells."""

    def __init__(self) -> None:
        self._held: list[tuple[int, int]] | None = None  # time, and the number below nought

    def newest(self, held: Iterable[tuple[int, int]]) -> Iterator[int]:
        """The numbers; `held` are all of them with their times, and read for the first who asks."""
        if self._held is None:
            self._held = sorted((at, -number) for number, at in held)
        for _, number in reversed(self._held):
            yield -number

    def moved(self, number: int, was: int | None, now: int | None) -> None:
        """A number's time is another; None stands for no number."""
        if self._held is None or was == now:
            return
        if was is not None:
            del self._held[bisect_left(self._held, (was, -number))]
        if now is not None:
            insort(self._held, (now, -number))

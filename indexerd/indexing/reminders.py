"""Keys to be looked at again at some moment: one reminder a key, the earliest asked for.

A session that is written to every second asks for a later moment each time. It keeps its first
reminder; when that falls due, whoever looks decides again and asks anew. So the heap holds no
more than there are keys, whatever is asked.

A clock that is set back would have every key wait for as long again. So time that runs backwards
from one look to the next makes all keys due: whoever looks decides again, by the new time (V8).
Looks that come at least every so often bound what a smaller step can cost to that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator


class Reminders:
    """Ask, and be told. Moments are numbers of any one clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}
        self._now = -math.inf  # at the last look

    def __len__(self) -> int:
        return len(self._at)

    @property
    def next_at(self) -> float | None:
        """The earliest moment; None when nothing waits."""
        return self._heap[0][0] if self._heap else None

    def remind(self, key: str, when: float) -> bool:
        """Ask for a look at `key` not later than `when`; says whether it is the earliest of all."""
        held = self._at.get(key)
        if held is not None and held <= when:
            return False
        self._at[key] = when
        heapq.heappush(self._heap, (when, key))
        return self._heap[0] == (when, key)

    def due(self, now: float) -> Iterator[str]:
        """Take out every key whose moment has come, earliest first; all, where time ran back."""
        back, self._now = now < self._now, now
        if back:
            waiting, self._at, self._heap = sorted(self._at, key=self._at.__getitem__), {}, []
            yield from waiting
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._at.get(key) == when:  # else an earlier reminder was told already
                del self._at[key]
                yield key

"""Keys to be looked at again at some moment: one reminder a key, the earliest asked for.

A session that is written to every second asks for a later moment each time. It keeps its first
reminder; when that falls due, whoever looks decides again and asks anew. So the heap holds no
more than there are keys, whatever is asked.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Reminders:
    """Ask, and be told. Moments are numbers of any one clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

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
        """Take out every key whose moment has come, earliest first."""
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._at.get(key) == when:  # else an earlier reminder was told already
                del self._at[key]
                yield key

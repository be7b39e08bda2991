"""The queue of sessions to index, and the reminders to decide on a session again.

Both are derived, so neither is stored. Whether a session is still due is decided again when its
turn comes.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A session to index."""

    session_id: str
    why: str
    active_ms: int  # newest activity: a first run names today's work before last year's
    forced: bool = False


class JobQueue:
    """Jobs that wait, one a session."""

    def __init__(self) -> None:
        self._waiting: dict[str, Job] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, job: Job) -> None:
        """Queue a job; the newest offer for a session counts, but forced stays forced."""
        held = self._waiting.get(job.session_id)
        if held is None or job.forced or not held.forced:
            self._waiting[job.session_id] = job

    def withdraw(self, session_id: str) -> None:
        self._waiting.pop(session_id, None)

    def take(self) -> Job | None:
        """Take the next job out, forced ones first; None when there is none."""
        if not self._waiting:
            return None
        job = max(self._waiting.values(), key=lambda one: (one.forced, one.active_ms))
        return self._waiting.pop(job.session_id)


class Reminders:
    """Keys to be looked at again at some moment: one reminder a key, the earliest asked for.

    A session that is written to every second asks for a later moment each time. It keeps its first
    reminder; when that is due, whoever looks decides again and asks anew.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    @property
    def next_at(self) -> float | None:
        """The earliest moment; None when nothing waits."""
        return self._heap[0][0] if self._heap else None

    def remind(self, key: str, when: float) -> bool:
        """Ask for a look at `key` not later than `when`; True if it is the earliest of all."""
        if self._at.get(key, math.inf) <= when:
            return False
        self._at[key] = when
        heapq.heappush(self._heap, (when, key))
        return self._heap[0] == (when, key)

    def due(self, now: float) -> list[str]:
        """Take out every key whose moment has come, earliest first."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._at.get(key) == when:  # else an earlier reminder was taken already
                del self._at[key]
                found.append(key)
        return found

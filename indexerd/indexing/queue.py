"""The queue of sessions to index, and the reminders to decide on a session again.

Both are derived, so neither is stored. One job a session however often it is offered (S0.11);
forced ones first, then the session active last, so that a first run names today's work before
last year's. Whether a session is still due is decided again when its turn comes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A session to index."""

    session_id: str
    why: str
    active_ms: int  # newest activity: later goes first
    forced: bool = False


class JobQueue:
    """Waiting and running jobs; at most `concurrency` run at once."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._waiting: dict[str, Job] = {}
        self._running: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> frozenset[str]:
        """Sessions being indexed now."""
        return frozenset(self._running)

    def offer(self, job: Job) -> bool:
        """Queue a job unless its session runs now; the newest offer for a session counts."""
        if job.session_id in self._running:
            return False
        held = self._waiting.get(job.session_id)
        if held is None or job.forced or not held.forced:
            self._waiting[job.session_id] = job
        return True

    def withdraw(self, session_id: str) -> None:
        """Take a waiting job back."""
        self._waiting.pop(session_id, None)

    def take(self) -> Job | None:
        """Start the next job; None when there is none or no room."""
        if not self._waiting or len(self._running) >= self.concurrency:
            return None
        job = max(self._waiting.values(), key=lambda one: (one.forced, one.active_ms))
        del self._waiting[job.session_id]
        self._running.add(job.session_id)
        return job

    def done(self, session_id: str) -> None:
        """A job has ended, however."""
        self._running.discard(session_id)


class Reminders:
    """Keys to be looked at again at some moment: one reminder a key, the earliest asked for.

    A session that is written to every second asks for a later moment each time. It keeps its first
    reminder; when that is due, whoever looks decides again and asks anew. So there are never more
    entries than keys. Time that runs backwards from one look to the next makes all keys due: after
    a clock was set back every key would else wait for as long again (V8).
    """

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
        """Ask for a look at `key` not later than `when`; True if it is the earliest of all."""
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
            if self._at.get(key) == when:  # else an earlier reminder was taken already
                del self._at[key]
                yield key

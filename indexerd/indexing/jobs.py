"""The queue of sessions to index: derived, so it is never stored.

One job a session however often it is offered (S0.11); forced ones first, then the session
active last, so that a first run names today's work before last year's. At most `concurrency`
run at once. Whether a session is still due is asked again when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A session whose turn has come, or will."""

    session_id: str
    why: str
    active_ms: int  # newest activity: later goes first
    forced: bool = False


class Jobs:
    """Offer, take, finish."""

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
        """The next job, now running; None when there is none or no room."""
        if not self._waiting or len(self._running) >= self.concurrency:
            return None
        job = max(self._waiting.values(), key=lambda one: (one.forced, one.active_ms))
        del self._waiting[job.session_id]
        self._running.add(job.session_id)
        return job

    def done(self, session_id: str) -> None:
        """A job has ended, however."""
        self._running.discard(session_id)

"""The queue of sessions to index. It is derived, so it is not stored."""

from __future__ import annotations

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

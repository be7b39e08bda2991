"""The queue of sessions to index. It is computed from them at each start, never stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A session to index, and why."""

    session_id: str
    why: str
    active_ms: int  # time of the newest activity; the newest session goes first
    forced: bool = False


class JobQueue:
    """Waiting jobs, at most one for each session."""

    def __init__(self) -> None:
        self._waiting: dict[str, Job] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, job: Job) -> None:
        """Queue a job in place of the session's earlier one, unless only that one is forced."""
        held = self._waiting.get(job.session_id)
        if held is None or job.forced or not held.forced:
            self._waiting[job.session_id] = job

    def withdraw(self, session_id: str) -> None:
        self._waiting.pop(session_id, None)

    def take(self) -> Job | None:
        """Remove and return the next job, forced ones first; None if none waits."""
        if not self._waiting:
            return None
        job = max(self._waiting.values(), key=lambda one: (one.forced, one.active_ms))
        return self._waiting.pop(job.session_id)

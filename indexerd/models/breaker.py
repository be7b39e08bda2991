"""The circuit breaker of a provider: after failures it is not asked for a while.

Five failures in a row, or one throttled call (429), open it: for the provider's own time, else for
a minute, doubled with each further failure up to two hours. One success closes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from indexerd.errors import ProviderError

FAILURES = 5
FIRST_PAUSE = 60.0  # seconds
LONGEST_PAUSE = 2 * 3600.0


@dataclass(slots=True)
class Breaker:
    """The state of one provider; `until` is in seconds since the epoch, 0 while it is closed."""

    failures: int = 0  # in a row
    until: float = 0.0

    def succeeded(self) -> bool:
        """Record an answered call; True if that closed the breaker."""
        closed = bool(self.until)
        self.failures, self.until = 0, 0.0
        return closed

    def failed(self, error: ProviderError, now: float) -> bool:
        """Record a failed call; True if that opened the breaker (again)."""
        if self.until > now:  # the call was under way when it opened
            return False
        self.failures += 1
        if not error.throttled and self.failures < FAILURES:
            return False
        pause = min(FIRST_PAUSE * 2.0 ** min(max(0, self.failures - FAILURES), 8), LONGEST_PAUSE)
        if error.retry_after is not None:  # a wish for no pause at all is granted once
            pause = max(error.retry_after, pause if self.failures > 1 else 0.0)
        self.until = now + pause
        return True

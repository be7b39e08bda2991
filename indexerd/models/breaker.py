"""The circuit breaker of a provider: after failures no calls for a while, then a single one.

    closed     --5 failures in a row-->  open
    closed     --throttled (429)----->   open until the provider's own time
    open       --time passed--------->   half-open: one trial call
    half-open  --success------------->   closed
    half-open  --failure------------->   open, twice as long (at most two hours)

Failures of calls that were under way when it opened change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from indexerd.errors import ProviderError

FAILURES = 5
FIRST_PAUSE = 60.0  # seconds
LONGEST_PAUSE = 2 * 3600.0


@dataclass(slots=True)
class Breaker:
    """The state of one provider; times are in seconds since the epoch."""

    failures: int = 0
    opened: int = 0  # times in a row
    until: float = 0.0
    trial: bool = False  # the one call of the half-open state is under way

    def refusal(self, now: float) -> ProviderError | None:
        """Why no call is let through; None where one is."""
        if self.until > now:
            return ProviderError("the provider is paused", retry_after=self.until - now)
        if self.trial:
            return ProviderError("the provider is being tried", retry_after=FIRST_PAUSE)
        return None

    def begin(self) -> None:
        """Count a call that is let through."""
        self.trial = bool(self.until)

    def succeeded(self) -> bool:
        """Record an answered call; True if that closed the breaker."""
        closed = self.trial
        if closed or not self.until:
            self.failures = self.opened = 0
            self.until, self.trial = 0.0, False
        return closed

    def failed(self, error: ProviderError, now: float) -> bool:
        """Record a failed call; True if that opened the breaker (again)."""
        if self.until > now:
            return False
        self.failures += 1
        trial, self.trial = self.trial, False
        if not (error.throttled or trial or self.failures >= FAILURES):
            return False
        self.opened += 1
        pause = min(FIRST_PAUSE * 2.0 ** min(self.opened - 1, 8), LONGEST_PAUSE)
        if error.retry_after is not None:
            pause = max(pause if trial else 0.0, error.retry_after)
        self.until = now + pause
        return True

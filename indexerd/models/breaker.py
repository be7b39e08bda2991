"""The circuit breaker of a provider: after failures no calls for a while, then a single one.

    closed     --5 failures in a row-->  open
    closed     --throttled (429)----->   open until the provider's own time
    open       --time passed--------->   half-open: one trial call
    half-open  --success------------->   closed
    half-open  --failure------------->   open, twice as long (at most two hours)

Calls that were under way when it opened neither close it, nor shorten the pause, nor double it.
Pure: `now` is seconds since the epoch, `jitter` a number in [0, 1).
"""

from __future__ import annotations

import msgspec

from indexerd.errors import ProviderError

FAILURES = 5
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 2 * 3600.0
LONGEST_WISH = 3600.0  # a longer Retry-After is treated as this one
_AHEAD = 1.2 * LONGEST_PAUSE  # `until` is never further ahead, unless the clock was set back


class Breaker(msgspec.Struct):
    """The state of one provider."""

    failures: int = 0
    opened: int = 0  # times in a row
    until: float = 0.0
    trial: bool = False  # the one call of the half-open state is under way

    def refusal(self, now: float) -> ProviderError | None:
        """Why no call is let through; None where one is."""
        if self._pauses(now):
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

    def failed(self, error: ProviderError, now: float, jitter: float) -> bool:
        """Record a failed call; True if that opened the breaker (again)."""
        self.failures += 1
        trial, self.trial = self.trial, False
        if not (error.throttled or trial or self.failures >= FAILURES):
            return False
        late = not trial and self._pauses(now)
        self.opened += not late
        pause = min(FIRST_PAUSE * 2.0 ** min(self.opened - 1, 16), LONGEST_PAUSE)
        if error.retry_after is not None:
            pause = max(pause if trial else 0.0, min(error.retry_after, LONGEST_WISH))
        until = now + pause * (1.0 + 0.1 * jitter)
        self.until = max(self.until, until) if late else until
        return not late

    def _pauses(self, now: float) -> bool:
        return 0 < self.until - now <= _AHEAD

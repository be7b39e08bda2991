"""Unavailable providers: reported once, not once for each session that waits."""

from __future__ import annotations

from indexerd.errors import (
    BudgetError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    ProviderDeniedError,
    ProviderError,
)

_THEIRS = (ProviderError, ProviderDeniedError, ModelUnavailableError, DeadlineError)
BUDGET_SECONDS = 3600.0


class Outages:
    """What is down, and who waits for it. A spent budget is an outage that ends by itself."""

    def __init__(self) -> None:
        self._down: set[str] = set()  # providers, or single models of one
        self._waiting: set[str] = set()  # sessions
        self._told = False  # of one session's failure in this outage
        self._budget_told = 0.0

    def begin(self, model: str) -> bool:
        """A provider, or one model of it, fails or refuses us; True if that is news."""
        if self._down & {model, model.partition("/")[0]}:
            return False
        self._down.add(model)
        self._told = False
        return True

    def end(self, model: str) -> int:
        """A provider answers, or is asked, again; return how many sessions' failures it cost."""
        provider = model.partition("/")[0]
        self._down = {one for one in self._down if one.partition("/")[0] != provider}
        count = len(self._waiting)
        if not self._down:
            self._waiting, self._told = set(), False
        return count

    def holds(self, session_id: str, error: IndexerdError, now: float) -> bool:
        """Whether a session's failure is of an outage that was told of, and no news of its own."""
        if isinstance(error, BudgetError):
            held = 0 <= now - self._budget_told < BUDGET_SECONDS
            self._budget_told = self._budget_told if held else now
            return held
        if not self._down or not isinstance(error, _THEIRS):
            return False
        self._waiting.add(session_id)
        held, self._told = self._told, True
        return held

"""When a session is tried again: what a failure means for it, and when no run is worth a try.

A run that would come to no call is not begun: while a provider is down, refuses us, or a minute
is full, a thousand sessions would else be read, made a prompt of and sent away again at each of
its trials, with two lines in the log for each. A session is sent away once, so that its status
says what it waits for; from then on it only waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from indexerd.errors import (
    BudgetError,
    IndexerdError,
    ModelError,
    ModelUnavailableError,
    NotFoundError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
    SessionUnreadableError,
    WriteError,
)
from indexerd.indexing.policy import back_off
from indexerd.models.attempts import refusals
from indexerd.models.base import Model
from indexerd.models.breaker import FIRST_PAUSE
from indexerd.models.budget import Budget

SOON = 2.0  # seconds
NO_MODEL_PAUSE = 3600.0  # seconds; a reload of the configuration ends it sooner
_UNTIL_RELOAD = frozenset({"model_unavailable", "budget_exhausted"})


class RetryState(msgspec.Struct, array_like=True, frozen=True):
    """Failures in a row, and what is waited for; stored over restarts."""

    failures: int = 0
    retry_at: float = 0.0
    refused_at: int | None = None  # new user messages when a model declined
    why: str = ""

    @property
    def ends_with_reload(self) -> bool:
        """Whether a reload ends it. That a model declined the content is not forgotten."""
        return self.why in _UNTIL_RELOAD and self.refused_at is None


NO_FAILURE = RetryState()  # as nearly all sessions have


def after_failure(
    state: RetryState, error: IndexerdError, new_users: int, now: float
) -> RetryState:
    """Return the state after one more failure."""
    failures, refused = state.failures, None
    if isinstance(error, RefusedError | SessionEmptyError | NotFoundError):
        refused, pause = new_users, 0.0
    elif isinstance(error, ModelUnavailableError | ProviderDeniedError):
        pause = NO_MODEL_PAUSE
    elif isinstance(error, BudgetError):
        pause = error.retry_after
    elif isinstance(error, ProviderError) and error.retry_after is not None:
        pause = error.retry_after  # the provider's wish burns no attempt of the job (M3)
    elif isinstance(error, ProviderError) and error.throttled:
        pause = FIRST_PAUSE  # nor does a wish that was not put into seconds
    elif isinstance(error, WriteError | SessionUnreadableError):
        failures += 1  # nothing was paid, or what was paid is kept: soon again
        pause = min(SOON * 2.0 ** min(failures - 1, 10), back_off(1) * 5)
    else:
        failures += 1
        pause = back_off(failures)
    return RetryState(failures, now + pause, refused, error.kind)


def wait_for_models(budget: Budget, models: Sequence[Model], state: RetryState) -> float:
    """Return the seconds until a run of a session is worth a try; 0 where it is now."""
    refused = refusals(models, budget)
    told = state.why in {one.kind for one in refused}
    passing = all(isinstance(one, BudgetError) and one.passing for one in refused)
    return min(map(_pause, refused)) if refused and (told or passing) else 0.0


def _pause(refused: ModelError) -> float:
    if isinstance(refused, BudgetError | ProviderError) and refused.retry_after:
        return refused.retry_after
    return NO_MODEL_PAUSE

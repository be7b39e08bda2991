"""Whether a run would come to a call at all: asked before a session is read for it.

In: the books, the models that may take a session, and how its last run went. Out: seconds to wait.
While a provider is down, refuses us, or a minute is full, a thousand sessions would else be read,
made a prompt of and sent away again at each of its trials, with two lines in the log for each. A
session is sent away once, so that it is told what it waits for; from then on it only waits. The
rules are those of `Treasury.admit`, of which nothing is begun here.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from indexerd.errors import BudgetError, ModelError, ModelUnavailableError, ProviderError
from indexerd.indexing.known import NO_MODEL_PAUSE, Setback
from indexerd.models.base import Model
from indexerd.models.treasury import Treasury


def rest(treasury: Treasury, models: Sequence[Model], setback: Setback, now: float) -> float:
    """Seconds until a run of a session is worth a try; 0 where it is now."""
    refusals = _met(treasury, models, now)
    told = setback.why in {one.kind for one in refusals}
    passing = all(isinstance(one, BudgetError) and one.passing for one in refusals)
    return min(map(_pause, refusals)) if refusals and (told or passing) else 0.0


def _met(treasury: Treasury, models: Sequence[Model], now: float) -> list[ModelError]:
    """The refusals that a run would end with; none where some model would be asked.

    One after the other, as `calls.first_of` goes: who rests, or is full for a minute, is waited
    for, whatever model comes next; a day that is spent leaves the local ones.
    """
    met: list[ModelError] = []
    left = list(models)
    while left:
        refused = _refusal(treasury, left.pop(0), now)
        if refused is None:
            return []
        met.append(refused)
        if isinstance(refused, ProviderError):
            return met
        if isinstance(refused, BudgetError):
            if refused.passing:
                return met
            left = [one for one in left if not one.remote]
    return met


def _refusal(treasury: Treasury, model: Model, now: float) -> ModelError | None:
    """Why a model would not be asked."""
    if not model.remote:
        return None
    if model.key in treasury.denied:
        return ModelUnavailableError(treasury.denied[model.key])
    breaker = treasury.breakers.get(model.key.partition("/")[0])
    try:
        treasury.purse.check(now, None, treasury.caps())
        if breaker is not None:
            copy(breaker).admit(now)  # of a copy: no trial is begun
    except (BudgetError, ModelUnavailableError, ProviderError) as refused:
        return refused
    return None


def _pause(refused: ModelError) -> float:
    """Seconds until it may be another; a reload that lifts a refusal has all decided on anew."""
    if isinstance(refused, BudgetError | ProviderError) and refused.retry_after:
        return refused.retry_after
    return NO_MODEL_PAUSE

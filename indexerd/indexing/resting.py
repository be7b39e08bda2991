"""Whether a run would come to a call at all: asked before a session is read for it.

While a provider is down, refuses us, or a minute is full, a thousand sessions would else be read,
made a prompt of and sent away again at each of its trials, with two lines in the log for each. A
session is sent away once, so that its status says what it waits for; from then on it only waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from indexerd.errors import BudgetError, ModelError, ProviderError
from indexerd.indexing.known import NO_MODEL_PAUSE, Setback
from indexerd.models.attempts import refusals
from indexerd.models.base import Model
from indexerd.models.budget import Budget


def rest(budget: Budget, models: Sequence[Model], setback: Setback) -> float:
    """Return the seconds until a run of a session is worth a try; 0 where it is now."""
    refused = refusals(models, budget)
    told = setback.why in {one.kind for one in refused}
    passing = all(isinstance(one, BudgetError) and one.passing for one in refused)
    return min(map(_pause, refused)) if refused and (told or passing) else 0.0


def _pause(refused: ModelError) -> float:
    if isinstance(refused, BudgetError | ProviderError) and refused.retry_after:
        return refused.retry_after
    return NO_MODEL_PAUSE  # a reload ends it sooner

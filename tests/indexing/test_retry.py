"""When a session is tried again, and that asking about it begins no trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexerd.errors import (
    BudgetError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    NotFoundError,
    OutputInvalidError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
    SessionUnreadableError,
    WriteError,
)
from indexerd.indexing.retry import (
    NO_MODEL_PAUSE,
    SOON,
    RetryState,
    after_failure,
    wait_for_models,
)
from indexerd.models.base import Model
from indexerd.models.breaker import FIRST_PAUSE, Breaker
from indexerd.models.budget import Budget, Reserved
from indexerd.models.scripted import Scripted
from indexerd.settings import Budget as Limits
from indexerd.settings import Settings

NOW = 1_700_000_000.0
FIRST, OTHER = Scripted(key="one/a"), Scripted(key="two/b")
LOCAL = Scripted(key="local/c", remote=False)
NEW, DOWN = RetryState(), RetryState(why="provider_unavailable")
DENIED, SPENT = RetryState(why="model_unavailable"), RetryState(why="budget_exhausted")


@pytest.fixture
def budget(tmp_path: Path) -> Budget:
    """Books with two calls a minute, and three a day."""
    settings = Settings(budget=Limits(requests_per_minute=2, daily_calls=3))
    return Budget(tmp_path / "b.jsonl", lambda: settings, lambda: NOW, lambda *_: None)


def spent(budget: Budget, *ages: float) -> None:
    """Calls were made so many seconds ago."""
    for number, age in enumerate(ages):
        budget.account.apply(Reserved(str(number), NOW - age, 0.0, "one/a"))


@pytest.mark.parametrize(
    ("breaker", "setback", "seconds"),
    [
        (Breaker(), DOWN, 0.0),
        (Breaker(5, 1, NOW + 40), NEW, 0.0),  # it is told first what it waits for
        (Breaker(5, 1, NOW + 40), SPENT, 0.0),
        (Breaker(5, 1, NOW + 40), DOWN, 40.0),
        (Breaker(5, 1, NOW - 1), DOWN, 0.0),
        (Breaker(5, 1, NOW - 1, trial=True), DOWN, FIRST_PAUSE),
        (Breaker(denied="401"), NEW, 0.0),
        (Breaker(denied="401"), DENIED, NO_MODEL_PAUSE),
        (Breaker(5, 1, NOW + 1e6), DOWN, 0.0),  # V8: the clock was set back
    ],
)
def test_a_provider_that_is_not_asked(
    budget: Budget, breaker: Breaker, setback: RetryState, seconds: float
) -> None:
    """M4, M5, M16: who was told waits; whoever was not is told; a trial is not taken away."""
    budget.breakers["one"] = breaker
    trial = breaker.trial
    assert wait_for_models(budget, [FIRST], setback) == seconds
    others = 0.0 if breaker.denied else seconds  # who rests is waited for, and nobody else asked
    assert wait_for_models(budget, [FIRST, OTHER], setback) == others
    assert wait_for_models(budget, [FIRST, LOCAL], setback) == others
    assert breaker.trial is trial


def test_the_first_that_rests_is_waited_for(budget: Budget) -> None:
    """M16: two providers are down; a run would ask the first one first."""
    budget.breakers |= {"one": Breaker(5, 1, NOW + 40), "two": Breaker(5, 1, NOW + 30)}
    both: list[Model] = [FIRST, OTHER]
    assert wait_for_models(budget, both, DOWN) == 40.0
    budget.breakers["one"] = Breaker(denied="401")  # which is passed over
    assert wait_for_models(budget, both, DOWN) == 30.0
    assert wait_for_models(budget, [], DOWN) == 0.0


def test_a_model_that_is_not_served_is_waited_for_until_a_reload(budget: Budget) -> None:
    """M5: one model of a provider is refused, and the other is not."""
    budget.denied["one/a"] = "404"
    assert wait_for_models(budget, [FIRST], DENIED) == NO_MODEL_PAUSE
    assert wait_for_models(budget, [Scripted(key="one/z")], DENIED) == 0.0


def test_a_full_minute_is_waited_for_and_told_nobody(budget: Budget) -> None:
    """M15, M16: that passes, and is no failure of any session."""
    spent(budget, 50.0, 20.0)
    assert wait_for_models(budget, [FIRST], NEW) == pytest.approx(10.0)


def test_a_day_that_is_spent_is_told_of_once(budget: Budget) -> None:
    """M16: a session is told, and then waits until tomorrow."""
    spent(budget, 300.0, 200.0, 100.0)
    assert wait_for_models(budget, [FIRST], NEW) == 0.0
    assert wait_for_models(budget, [FIRST], SPENT) == 86_400.0 - NOW % 86_400.0


BUSY = ProviderError("429", retry_after=37.0, throttled=True)
RESTS = ProviderError("the provider is resting", retry_after=9.0)


@pytest.mark.parametrize(
    ("error", "pauses", "failures"),
    [
        (BUSY, [37, 37, 37], 0),
        (RESTS, [9, 9, 9], 0),
        (ProviderError("429", throttled=True), [FIRST_PAUSE] * 3, 0),
        (ProviderError("503"), [60, 120, 240], 3),
        (DeadlineError("late"), [60, 120, 240], 3),
        (OutputInvalidError("prose"), [60, 120, 240], 3),
        (BudgetError("full", retry_after=500.0), [500, 500, 500], 0),
        (ModelUnavailableError("no key"), [NO_MODEL_PAUSE] * 3, 0),
        (ProviderDeniedError("401"), [NO_MODEL_PAUSE] * 3, 0),
        (WriteError("full disk"), [SOON, 2 * SOON, 4 * SOON], 3),
        (SessionUnreadableError("EIO"), [SOON, 2 * SOON, 4 * SOON], 3),
        (RefusedError("declined"), [0, 0, 0], 0),
        (SessionEmptyError("empty"), [0, 0, 0], 0),
        (NotFoundError("gone"), [0, 0, 0], 0),
    ],
    ids=lambda value: f"{type(value).__name__}" if isinstance(value, Exception) else "",
)
def test_what_a_failure_means(error: IndexerdError, pauses: list[float], failures: int) -> None:
    """M3, M5, M11, M13, M15: how long a session waits, and whether that cost it an attempt."""
    setback = RetryState()
    for pause in pauses:
        setback = after_failure(setback, error, 7, NOW)
        assert setback.retry_at - NOW == pytest.approx(pause)
        assert setback.why == error.kind
    assert setback.failures == failures
    declined = isinstance(error, RefusedError | SessionEmptyError | NotFoundError)
    assert setback.refused_at == (7 if declined else None)


def test_a_wish_keeps_the_attempts_that_were_burnt_before() -> None:
    """M3, M13: a 429 between malformed answers neither adds to them nor forgives them."""
    setback = after_failure(RetryState(), OutputInvalidError("prose"), 1, NOW)
    setback = after_failure(setback, BUSY, 1, NOW)
    assert setback.failures == 1
    assert after_failure(setback, OutputInvalidError("prose"), 1, NOW).retry_at == NOW + 120

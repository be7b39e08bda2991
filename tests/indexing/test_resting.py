"""Which sessions wait without a run, and for how long: no trial is begun by asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexerd.indexing.known import NO_MODEL_PAUSE, Setback
from indexerd.indexing.resting import rest
from indexerd.models.base import Model
from indexerd.models.breaker import FIRST_PAUSE, Breaker
from indexerd.models.budget import Budget, Reserved
from indexerd.models.scripted import Scripted
from indexerd.settings import Budget as Limits
from indexerd.settings import Settings

NOW = 1_700_000_000.0
FIRST, OTHER = Scripted(key="one/a"), Scripted(key="two/b")
LOCAL = Scripted(key="local/c", remote=False)
NEW, DOWN = Setback(), Setback(why="provider_unavailable")
DENIED, SPENT = Setback(why="model_unavailable"), Setback(why="budget_exhausted")


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
    budget: Budget, breaker: Breaker, setback: Setback, seconds: float
) -> None:
    """M4, M5, M16: who was told waits; whoever was not is told; a trial is not taken away."""
    budget.breakers["one"] = breaker
    trial = breaker.trial
    assert rest(budget, [FIRST], setback) == seconds
    others = 0.0 if breaker.denied else seconds  # who rests is waited for, and nobody else asked
    assert rest(budget, [FIRST, OTHER], setback) == others
    assert rest(budget, [FIRST, LOCAL], setback) == others
    assert breaker.trial is trial


def test_the_first_that_rests_is_waited_for(budget: Budget) -> None:
    """M16: two providers are down; a run would ask the first one first."""
    budget.breakers |= {"one": Breaker(5, 1, NOW + 40), "two": Breaker(5, 1, NOW + 30)}
    both: list[Model] = [FIRST, OTHER]
    assert rest(budget, both, DOWN) == 40.0
    budget.breakers["one"] = Breaker(denied="401")  # which is passed over
    assert rest(budget, both, DOWN) == 30.0
    assert rest(budget, [], DOWN) == 0.0


def test_a_model_that_is_not_served_is_waited_for_until_a_reload(budget: Budget) -> None:
    """M5: one model of a provider is refused, and the other is not."""
    budget.denied["one/a"] = "404"
    assert rest(budget, [FIRST], DENIED) == NO_MODEL_PAUSE
    assert rest(budget, [Scripted(key="one/z")], DENIED) == 0.0


def test_a_full_minute_is_waited_for_and_told_nobody(budget: Budget) -> None:
    """M15, M16: that passes, and is no failure of any session."""
    spent(budget, 50.0, 20.0)
    assert rest(budget, [FIRST], NEW) == pytest.approx(10.0)


def test_a_day_that_is_spent_is_told_of_once(budget: Budget) -> None:
    """M16: a session is told, and then waits until tomorrow."""
    spent(budget, 300.0, 200.0, 100.0)
    assert rest(budget, [FIRST], NEW) == 0.0
    assert rest(budget, [FIRST], SPENT) == 86_400.0 - NOW % 86_400.0

"""When a session is indexed, and when it is tried again after a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd import errors
from indexerd.events import Turn
from indexerd.indexing.indexer import Indexer
from indexerd.indexing.policy import (
    NO_MODEL_PAUSE,
    RETRY_MAX,
    SOON,
    Forced,
    Index,
    RetryState,
    SessionRuntime,
    Skip,
    Wait,
    after_failure,
    back_off,
    decide,
)
from indexerd.models.base import Model
from indexerd.models.breaker import FIRST_PAUSE, Breaker
from indexerd.models.budget import Budget
from indexerd.sessions.info import SessionInfo
from indexerd.settings import Budget as Limits
from indexerd.settings import Settings
from tests.fakes.scripted import Scripted

T0 = 1_000_000.0
SETTINGS = Settings()
OPEN, FAILED = Turn.OPEN, Turn.FAILED


def session(
    users: int = 5,
    turn: Turn = Turn.ENDED,
    *,
    answered: bool = True,
    forced: bool = False,
    changed: float = T0,
    since: float = T0 - 60,
    retry_at: float = 0.0,
    refused_at: int | None = None,
) -> SessionRuntime:
    """A session whose turn ended at T0, with new questions that began to wait a minute before."""
    info = SessionInfo(
        *("pi", "/s.jsonl", "s", "/w", "", None, 3, 0, 0, "a", int(turn), None, "", 0, users),
        answered=answered,
        compacted=False,
        rows=0,
        bad_lines=0,
        oversized=0,
        new_users=users,
    )
    made = SessionRuntime(info, None, changed, since, RetryState(0, retry_at, refused_at))
    made.forced = Forced(0.0, asyncio.Future(loop=_LOOP)) if forced else None
    return made


_LOOP = asyncio.new_event_loop()
_LOOP.close()


@pytest.mark.parametrize(
    ("view", "after", "decision"),
    [
        # S0.1: the end of the turn, and the quiet time after it
        ({}, 1.999, Wait(T0 + 2.0, "due")),
        ({}, 2.0, Index("due")),
        ({"turn": OPEN}, 839.9, Wait(T0 + 840.0, "max_wait")),
        ({"turn": OPEN}, 840.0, Index("max_wait")),  # W10: without an end
        ({"since": T0 - 899.0}, 1.0, Index("max_wait")),  # W10: without a pause
        # S0.2: a failed turn waits longer, for the retry that may follow
        ({"turn": FAILED}, 2.0, Wait(T0 + 15.0, "due")),
        ({"turn": FAILED}, 15.0, Index("due")),
        # S0.5, S0.6: nothing to describe, or not enough
        ({"answered": False}, 99.0, Skip("no_answer")),
        ({"answered": False, "forced": True}, 99.0, Skip("no_answer")),
        ({"users": 4}, 99.0, Skip("below_threshold")),
        ({"users": 4, "turn": OPEN}, 999.0, Skip("below_threshold")),
        ({"users": 6}, 99.0, Index("due")),
        # S0.3, S0.4: forced
        ({"users": 0, "forced": True}, 2.0, Index("forced")),
        ({"forced": True}, 1.0, Wait(T0 + 2.0, "due")),
        ({"turn": OPEN, "forced": True}, 99.0, Wait(T0 + 840.0, "max_wait")),
        ({"turn": FAILED, "forced": True}, 2.0, Wait(T0 + 15.0, "due")),
        # M11: declined content is asked about again only after new messages
        ({"refused_at": 5}, 99.0, Skip("refused")),
        ({"refused_at": 6}, 99.0, Skip("refused")),
        ({"refused_at": 4}, 99.0, Index("due")),
        ({"refused_at": 5, "forced": True}, 99.0, Index("forced")),
        # M13: a retry delay is waited for, unless somebody asks
        ({"retry_at": T0 + 60}, 59.9, Wait(T0 + 60, "back_off")),
        ({"retry_at": T0 + 60}, 60.0, Index("due")),
        ({"retry_at": T0 + 60, "forced": True}, 2.0, Index("forced")),
        ({"retry_at": T0 + 60, "users": 4}, 2.0, Skip("below_threshold")),
        # V8: the clock was set back after these were noted
        ({}, -3600.0, Index("due")),
        ({}, -0.5, Wait(T0 + 2.0, "due")),
        ({"retry_at": T0 + RETRY_MAX + 6}, 5.0, Index("due")),
        ({"retry_at": T0 + RETRY_MAX}, 5.0, Wait(T0 + RETRY_MAX, "back_off")),
    ],
    ids=str,
)
def test_the_table(view: dict[str, Any], after: float, decision: Index | Wait | Skip) -> None:
    """S0.1 to S0.6, F17, M11, M13, V8, W10: one row each; `after` is seconds since T0."""
    assert decide(session(**view), SETTINGS, T0 + after) == decision


views = st.builds(
    session,
    users=st.integers(0, 8),
    turn=st.sampled_from(Turn),
    answered=st.booleans(),
    forced=st.booleans(),
    changed=st.floats(T0 - 2000, T0 + 2000),
    since=st.floats(T0 - 2000, T0 + 2000),
    retry_at=st.just(0.0) | st.floats(T0 - 2000, T0 + 90_000),
    refused_at=st.none() | st.integers(0, 8),
)


@given(views, st.floats(T0 - 1000, T0 + 3000))
def test_a_wait_ends_and_at_its_end_something_else_is_decided(
    view: SessionRuntime, now: float
) -> None:
    """V8: `until` lies ahead, the decision there is no earlier wait: no spin, no stall."""
    for _ in range(4):
        decision = decide(view, SETTINGS, now)
        if not isinstance(decision, Wait):
            break
        assert decision.until > now
        now = decision.until
    assert not isinstance(decision, Wait)


@given(st.integers(-5, 10**9))
def test_a_back_off_doubles_from_a_minute_to_six_hours(failures: int) -> None:
    """M13: whatever the count, also one that a float cannot double that often."""
    assert 60.0 <= back_off(failures) <= 6 * 3600.0
    assert back_off(failures) <= back_off(failures + 1) <= 2 * back_off(failures)
    assert [back_off(n) / 60 for n in range(1, 5)] == [1, 2, 4, 8]


# -- after a failure -------------------------------------------------------------------------------

BUSY = errors.ProviderError("429", retry_after=37.0, throttled=True)


@pytest.mark.parametrize(
    ("error", "pauses", "failures"),
    [
        (BUSY, [37, 37, 37], 0),
        (errors.ProviderError("429", throttled=True), [FIRST_PAUSE] * 3, 0),
        (errors.ProviderError("503"), [60, 120, 240], 3),
        (errors.DeadlineError("late"), [60, 120, 240], 3),
        (errors.OutputInvalidError("prose"), [60, 120, 240], 3),
        (errors.BudgetError("full", retry_after=500.0), [500, 500, 500], 0),
        (errors.ModelUnavailableError("no key"), [NO_MODEL_PAUSE] * 3, 0),
        (errors.ProviderDeniedError("401"), [NO_MODEL_PAUSE] * 3, 0),
        (errors.WriteError("full disk"), [SOON, 2 * SOON, 4 * SOON], 3),
        (errors.SessionUnreadableError("EIO"), [SOON, 2 * SOON, 4 * SOON], 3),
        (errors.RefusedError("declined"), [0, 0, 0], 0),
        (errors.SessionEmptyError("empty"), [0, 0, 0], 0),
        (errors.NotFoundError("gone"), [0, 0, 0], 0),
    ],
    ids=str,
)
def test_what_a_failure_means(
    error: errors.IndexerdError, pauses: list[float], failures: int
) -> None:
    """M3, M5, M11, M13, M15: how long a session waits, and whether that cost it an attempt."""
    state = RetryState()
    for pause in pauses:
        state = after_failure(state, error, 7, T0)
        assert state.retry_at - T0 == pytest.approx(pause)
        assert state.why == error.kind
    assert state.failures == failures
    assert state.refused_at == (7 if pauses == [0, 0, 0] else None)


# -- while no model is asked -----------------------------------------------------------------------

FIRST, OTHER = Scripted(key="one/a"), Scripted(key="two/b")
LOCAL = Scripted(key="local/c", remote=False)
NEW, DOWN, DENIED, SPENT = "", "provider_unavailable", "model_unavailable", "budget_exhausted"


@pytest.fixture
def budget(tmp_path: Path) -> Budget:
    """Books with two calls a minute, and three a day."""
    settings = Settings(budget=Limits(requests_per_minute=2, daily_calls=3))
    return Budget(tmp_path / "b.jsonl", lambda: settings, lambda: T0, lambda *_: None)


def wait(budget: Budget, models: list[Model], why: str) -> float:
    """Seconds that a session waits whose last failure was of that kind."""
    unused: Any = None
    indexer = Indexer(
        *[unused],
        read=unused,
        budget=budget,
        telemetry=unused,
        writer=unused,
        events=unused,
        clock=lambda: T0,
    )
    waiting = session()
    waiting.retry = RetryState(why=why)
    return indexer.wait(waiting, models)


@pytest.mark.parametrize(
    ("breaker", "why", "seconds"),
    [
        (Breaker(), DOWN, 0.0),
        (Breaker(5, 1, T0 + 40), NEW, 0.0),  # it is told first what it waits for
        (Breaker(5, 1, T0 + 40), SPENT, 0.0),
        (Breaker(5, 1, T0 + 40), DOWN, 40.0),
        (Breaker(5, 1, T0 - 1, trial=True), DOWN, FIRST_PAUSE),
        (None, NEW, 0.0),
        (None, DENIED, NO_MODEL_PAUSE),
        (Breaker(5, 1, T0 + 1e6), DOWN, 0.0),  # V8: the clock was set back
    ],
)
def test_a_provider_that_is_not_asked(
    budget: Budget, breaker: Breaker | None, why: str, seconds: float
) -> None:
    """M4, M5, M16: who was told waits; whoever was not is told; a trial is not taken away."""
    trial = breaker is not None and breaker.trial
    if breaker is None:
        budget.denied["one"] = "401"
    else:
        budget.breakers["one"] = breaker
    assert wait(budget, [FIRST], why) == seconds
    others = seconds if breaker else 0.0  # who rests is waited for, and nobody else asked
    assert wait(budget, [FIRST, OTHER], why) == wait(budget, [FIRST, LOCAL], why) == others
    assert breaker is None or breaker.trial is trial

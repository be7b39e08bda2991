"""When a session is indexed, and when a failed run is retried."""

import asyncio
import math
from typing import Any

import pytest

from indexerd import errors
from indexerd.entries import Turn
from indexerd.indexing.policy import (
    NO_MODEL_PAUSE,
    Forced,
    RetryState,
    SessionRuntime,
    after_failure,
    decide,
)
from indexerd.settings import Settings
from tests.store.rows import info

T0 = 1_000_000.0
SETTINGS = Settings()
OPEN, FAILED = Turn.OPEN, Turn.FAILED


def session(
    users: int = 5,
    turn: Turn = Turn.ENDED,
    *,
    answered: bool = True,
    forced: bool = False,
    since: float = T0 - 60,
    retry_at: float = 0.0,
    refused_at: int | None = None,
) -> SessionRuntime:
    """A session whose turn ended at T0, with new prompts that began to wait a minute before."""
    known = info(turn=turn, users=users, new_users=users, answered=answered)
    made = SessionRuntime(known, T0, since, RetryState(0, retry_at, refused_at))
    made.forced = Forced(0.0, asyncio.Future(loop=_LOOP)) if forced else None
    return made


_LOOP = asyncio.new_event_loop()
_LOOP.close()


@pytest.mark.parametrize(
    ("view", "after", "when", "why"),
    [
        # S0.1: the turn has ended and the quiet time is over
        ({}, 1.999, 2.0, "due"),
        ({}, 2.0, 2.0, "due"),
        ({"turn": OPEN}, 9.0, 840.0, "max_wait"),  # the turn is open
        ({"since": T0 - 899.0}, 1.0, 1.0, "max_wait"),  # the session never pauses
        # S0.2: a failed turn waits longer, because a retry may follow
        ({"turn": FAILED}, 2.0, 15.0, "due"),
        # S0.5, S0.6: no answer, or too few messages
        ({"answered": False}, 99.0, math.inf, "no_answer"),
        ({"answered": False, "forced": True}, 99.0, math.inf, "no_answer"),
        ({"users": 4}, 99.0, math.inf, "below_threshold"),
        ({"users": 4, "turn": OPEN}, 999.0, math.inf, "below_threshold"),
        ({"users": 6}, 99.0, 2.0, "due"),
        # S0.3, S0.4: forced
        ({"users": 0, "forced": True}, 2.0, 2.0, "forced"),
        ({"forced": True}, 1.0, 2.0, "due"),
        ({"turn": OPEN, "forced": True}, 99.0, 840.0, "max_wait"),
        ({"turn": OPEN, "forced": True, "since": T0 + 800}, 900.0, 900.0, "forced"),  # was run
        # refused content is sent again only with new messages
        ({"refused_at": 5}, 99.0, math.inf, "refused"),
        ({"refused_at": 4}, 99.0, 2.0, "due"),
        ({"refused_at": 5, "forced": True}, 99.0, 2.0, "forced"),
        # a retry delay applies unless the run is forced
        ({"retry_at": T0 + 60}, 59.9, 60.0, "back_off"),
        ({"retry_at": T0 + 60}, 60.0, 2.0, "due"),
        ({"retry_at": T0 + 60, "forced": True}, 2.0, 2.0, "forced"),
        ({"retry_at": T0 + 60, "users": 4}, 2.0, math.inf, "below_threshold"),
    ],
    ids=str,
)
def test_the_table(view: dict[str, Any], after: float, when: float, why: str) -> None:
    """S0.1 to S0.6: one row each; times are seconds since T0."""
    assert decide(session(**view), SETTINGS, T0 + after) == (T0 + when, why)


BUSY = errors.ProviderError("429", retry_after=37.0, throttled=True)
DOUBLING = [60, 120, 240]


@pytest.mark.parametrize(
    ("error", "pauses", "failures"),
    [
        (BUSY, [37, 37, 37], 0),
        (errors.ProviderError("503"), DOUBLING, 3),
        (errors.DeadlineError("late"), DOUBLING, 3),
        (errors.OutputInvalidError("prose"), DOUBLING, 3),
        (errors.WriteError("full disk"), DOUBLING, 3),
        (errors.SessionUnreadableError("EIO"), DOUBLING, 3),
        (errors.BudgetError("full", retry_after=500.0), [500, 500, 500], 0),
        (errors.ModelUnavailableError("no key"), [NO_MODEL_PAUSE] * 3, 0),
        (errors.ProviderDeniedError("401"), [NO_MODEL_PAUSE] * 3, 0),
        (errors.RefusedError("declined"), [0, 0, 0], 0),
        (errors.SessionEmptyError("empty"), [0, 0, 0], 0),
        (errors.NotFoundError("gone"), [0, 0, 0], 0),
    ],
    ids=str,
)
def test_what_a_failure_means(
    error: errors.IndexerdError, pauses: list[float], failures: int
) -> None:
    """How long a session waits, and whether an attempt is counted; at most six hours."""
    state = RetryState()
    for pause in pauses:
        state = after_failure(state, error, 7, T0)
        assert state.retry_at - T0 == pytest.approx(pause)
        assert state.why == error.kind
    assert state.failures == failures
    assert state.refused_at == (7 if pauses == [0, 0, 0] else None)
    for _ in range(2000):
        state = after_failure(state, error, 7, T0)
    assert state.retry_at - T0 <= 6 * 3600

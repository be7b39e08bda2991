"""The breaker: after failures nobody knocks for a while, then exactly one does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import ProviderError
from indexerd.models.breaker import (
    FAILURES,
    FIRST_PAUSE,
    LONGEST_WISH,
    Breaker,
)

T0 = 1_000_000.0
DAY = 86_400.0
DOWN = ProviderError("503")


def throttled(wish: float | None) -> ProviderError:
    """A 429."""
    return ProviderError("429", retry_after=wish, throttled=True)


def admits(breaker: Breaker, now: float) -> bool:
    """Whether a call is let through now; asking takes the half-open state's one trial."""
    if breaker.refusal(now) is not None:
        return False
    breaker.begin()
    return True


def opened(*, opened_at: float = T0) -> Breaker:
    """A breaker that has just opened, after five failures."""
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(DOWN, opened_at, 0.0)
    return breaker


@pytest.mark.parametrize(
    ("wish", "pause"),
    [
        (37.0, 37.0),
        (0.0, 0.0),
        (1e9, LONGEST_WISH),
        (None, FIRST_PAUSE),
        (math.inf, LONGEST_WISH),
        (-5.0, 0.0),
    ],
)
@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_a_429_rests_for_as_long_as_the_provider_wishes(
    wish: float | None, pause: float, jitter: float
) -> None:
    """M3: one is enough; no request before min(wish, 1 h), and at most a tenth more of jitter."""
    breaker = Breaker()
    assert breaker.failed(throttled(wish), T0, jitter)

    for now in (T0, T0 + pause / 2, T0 + pause - 0.001):
        assert now >= T0 + pause or not admits(breaker, now)
    assert admits(breaker, T0 + pause * 1.1)


@pytest.mark.parametrize("end", ["success", "failure", "cancelled"])
def test_half_open_lets_exactly_one_through(end: str) -> None:
    """M4: of a hundred that ask, one is admitted until its outcome is known."""
    breaker = opened()
    now = T0 + FIRST_PAUSE
    assert sum(admits(breaker, now) for _ in range(100)) == 1

    if end == "success":
        assert breaker.succeeded()
        assert sum(admits(breaker, now) for _ in range(100)) == 100
    elif end == "failure":
        assert breaker.failed(DOWN, now, 0.0)
        assert sum(admits(breaker, now + 2 * FIRST_PAUSE - 1) for _ in range(100)) == 0
        assert sum(admits(breaker, now + 2 * FIRST_PAUSE) for _ in range(100)) == 1
    else:
        breaker.trial = False
        assert sum(admits(breaker, now) for _ in range(100)) == 1


@pytest.mark.parametrize("late", [throttled(1.0), throttled(None), DOWN])
def test_a_late_failure_neither_shortens_nor_escalates_the_rest(late: ProviderError) -> None:
    """M3: calls were under way when the provider asked for an hour; they change nothing."""
    breaker = Breaker()
    assert breaker.failed(throttled(3600.0), T0, 0.0)
    for _ in range(16):
        assert not breaker.failed(late, T0 + 1, 0.0)

    assert breaker.until == T0 + 3600
    assert breaker.opened == 1


def test_a_clock_set_back_does_not_keep_it_open() -> None:
    """V8: `until` was noted under a clock a day ahead; the next pause is of the usual length."""
    breaker = opened(opened_at=T0 + DAY)

    assert admits(breaker, T0)
    assert not admits(breaker, T0)
    breaker.failed(DOWN, T0, 0.0)
    assert not admits(breaker, T0 + 1)
    assert admits(breaker, T0 + 2 * FIRST_PAUSE)


errors = st.sampled_from([DOWN, throttled(None), throttled(0.0), throttled(37.0), throttled(1e9)])


@given(st.lists(errors, min_size=1, max_size=5), st.integers(1, 4), st.floats(0, 0.999))
def test_a_day_of_failures_costs_at_most_30_calls(
    pattern: list[ProviderError], concurrency: int, jitter: float
) -> None:
    """M16: a provider that always fails, asked whenever it is allowed, by several jobs at once.

    Nothing but times drives it: after each refusal the next one asks when it was told to.
    """
    breaker, now, made = Breaker(), T0, 0
    for turn in range(10_000):
        sent = 0
        while sent < concurrency and admits(breaker, now):
            sent += 1
        for n in range(sent):
            breaker.failed(pattern[(turn + n) % len(pattern)], now + 1, jitter)
        made += sent
        now = max(now + 2, breaker.until)
        if now >= T0 + DAY:
            break
    assert now >= T0 + DAY
    assert made <= 30

"""The breaker: after failures nobody is let through for a while, then exactly one call is."""

from __future__ import annotations

import pytest

from indexerd.errors import ProviderError
from indexerd.models.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Breaker

T0 = 1_000_000.0
DOWN = ProviderError("503")


def throttled(wish: float | None) -> ProviderError:
    return ProviderError("429", retry_after=wish, throttled=True)


def admits(breaker: Breaker, now: float) -> bool:
    """Whether a call is let through now; asking takes the half-open state's one trial."""
    if breaker.refusal(now) is not None:
        return False
    breaker.begin()
    return True


@pytest.mark.parametrize(("wish", "pause"), [(37.0, 37.0), (0.0, 0.0), (None, FIRST_PAUSE)])
def test_a_429_rests_for_as_long_as_the_provider_wishes(wish: float | None, pause: float) -> None:
    """M3: one is enough; what fails late changes nothing."""
    breaker = Breaker()
    assert breaker.failed(throttled(wish), T0)
    assert pause == 0.0 or not admits(breaker, T0 + pause - 0.001)
    assert pause == 0.0 or not breaker.failed(throttled(1.0), T0 + 1)
    assert admits(breaker, T0 + pause)


@pytest.mark.parametrize("end", ["success", "failure", "cancelled"])
def test_half_open_lets_exactly_one_through(end: str) -> None:
    """M4: of a hundred that ask, one is admitted until its outcome is known."""
    breaker = Breaker()
    opened = [breaker.failed(DOWN, T0) for _ in range(FAILURES)]
    assert opened == [False] * (FAILURES - 1) + [True]
    now = T0 + FIRST_PAUSE
    assert sum(admits(breaker, now) for _ in range(100)) == 1
    if end == "success":
        assert breaker.succeeded()
        assert sum(admits(breaker, now) for _ in range(100)) == 100
    elif end == "failure":
        for _ in range(20):
            assert breaker.failed(DOWN, now)
            assert not admits(breaker, now + FIRST_PAUSE)
            now = breaker.until
            assert admits(breaker, now)
        assert breaker.failed(DOWN, now)
        assert breaker.until == now + LONGEST_PAUSE
    else:
        breaker.trial = False
        assert sum(admits(breaker, now) for _ in range(100)) == 1

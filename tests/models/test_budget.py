"""The books of a day: reserved before, settled after, never less than was spent."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import BudgetError
from indexerd.models.budget import Caps, Purse, day_of

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
CAPS = Caps(daily_usd=1.0, daily_calls=500, requests_per_minute=30)


def reserve(ticket: str, when: float, usd: float | None) -> dict[str, Any]:
    """The row that is stored before a request leaves."""
    return {"op": "reserve", "id": ticket, "t": when, "usd": usd, "model": "m", "tokens": 9}


def settle(ticket: str, when: float, usd: float | None) -> dict[str, Any]:
    """The row that is stored when the reply was counted."""
    row = {"op": "settle", "id": ticket, "t": when, "usd": usd}
    return row | {"inputTokens": 1, "outputTokens": None}


def sums(purse: Purse) -> tuple[str, int, float, int]:
    """What the books say."""
    return purse.day, purse.calls, round(purse.usd, 9), purse.unpriced


def allowed(purse: Purse, now: float, usd: float | None, caps: Caps = CAPS) -> bool:
    """Whether one more call is."""
    try:
        purse.check(now, usd, caps)
    except BudgetError:
        return False
    return True


def test_a_reservation_is_replaced_by_what_it_cost() -> None:
    """M15: booked at the most, settled at what it was; a second settling changes nothing."""
    purse = Purse()
    purse.apply(reserve("a", NOON, 0.5))
    assert sums(purse)[1:] == (1, 0.5, 0)
    purse.apply(settle("a", NOON + 1, 0.125))
    assert sums(purse)[1:] == (1, 0.125, 0)
    purse.apply(settle("a", NOON + 2, 0.0))
    assert sums(purse)[1:] == (1, 0.125, 0)


def test_a_reply_without_usage_costs_what_was_reserved() -> None:
    """M20: an unknown amount is charged at the upper bound, never 0."""
    purse = Purse.of([reserve("a", NOON, 0.5), settle("a", NOON + 1, None)])

    assert purse.usd == 0.5


def test_an_unknown_price_counts_as_a_call_and_is_shown() -> None:
    """M20: where no price is known the call cap binds; what is learnt later is booked."""
    purse = Purse.of([reserve("a", NOON, None)])
    assert sums(purse)[1:] == (1, 0.0, 1)
    assert not allowed(purse, NOON + 61, None, Caps(1.0, 1, 30))

    purse.apply(settle("a", NOON + 1, 0.25))
    assert purse.usd == 0.25


calls = st.lists(
    st.tuples(
        st.floats(0.0, 0.5),  # the most it may cost
        st.none() | st.floats(0.0, 1.0),  # what it cost, of that; None: not said
        st.booleans(),  # whether it was settled before the crash
    ),
    max_size=12,
)


@given(calls)
def test_never_under_counted_over_a_crash(made: list[tuple[float, float | None, bool]]) -> None:
    """M15: with any settlings missing, the rebuilt books hold at least what was spent."""
    rows, spent = list[dict[str, Any]](), 0.0
    for n, (most, share, settled) in enumerate(made):
        cost = most if share is None else most * share
        spent += cost
        rows.append(reserve(str(n), NOON + n, most))
        if settled:
            rows.append(settle(str(n), NOON + n + 0.5, None if share is None else cost))
    alive = Purse()
    for row in rows:
        alive.apply(row)
    rebuilt = Purse.of(rows)

    assert sums(rebuilt) == sums(alive)
    assert rebuilt.calls == len(made)
    assert rebuilt.usd >= spent - 1e-9
    if all(settled for _, _, settled in made):
        assert rebuilt.usd == pytest.approx(spent)


def test_the_dollar_cap_counts_what_the_next_call_may_cost() -> None:
    """M15: refused before it is made, when at its most it would pass the cap."""
    purse = Purse.of([reserve("a", NOON, 0.75)])

    assert allowed(purse, NOON + 1, 0.25)
    assert not allowed(purse, NOON + 1, 0.26)
    with pytest.raises(BudgetError) as caught:
        purse.check(NOON + 1, 0.26, CAPS)
    assert caught.value.retry_after == DAY / 2 - 1  # until midnight, UTC


def test_the_call_cap() -> None:
    """M15: as many calls as allowed, then none until tomorrow."""
    caps = Caps(1.0, 3, 30)
    purse = Purse()
    made = 0
    for n in range(10):
        if allowed(purse, NOON + n, 0.0, caps):
            purse.apply(reserve(str(n), NOON + n, 0.0))
            made += 1
    assert made == 3
    assert not allowed(purse, NOON + DAY / 2 - 1, 0.0, caps)
    assert allowed(purse, NOON + DAY / 2, 0.0, caps)


def test_requests_per_minute() -> None:
    """M15: any sixty seconds hold no more than allowed; the wait is said exactly."""
    caps = Caps(1.0, 500, 3)
    purse = Purse.of([reserve(str(n), NOON + 10 * n, 0.0) for n in range(3)])

    with pytest.raises(BudgetError) as caught:
        purse.check(NOON + 25, 0.0, caps)
    assert caught.value.retry_after == 35.0
    assert not allowed(purse, NOON + 59.9, 0.0, caps)
    assert allowed(purse, NOON + 60, 0.0, caps)


@given(st.lists(st.floats(0, 400), min_size=1, max_size=40), st.integers(1, 5))
def test_no_minute_holds_more_requests_than_allowed(gaps: list[float], limit: int) -> None:
    """M15: however they come, and also when the books are rebuilt each time."""
    caps, rows, made = Caps(1e6, 10**6, limit), list[dict[str, Any]](), list[float]()
    now = NOON
    for n, gap in enumerate(gaps):
        now += gap / 20
        if allowed(Purse.of(rows), now, 0.0, caps):
            rows.append(reserve(str(n), now, 0.0))
            made.append(now)
    for start in made:
        assert sum(start <= one < start + 60 for one in made) <= limit


def test_a_new_day_opens_a_new_account() -> None:
    """The day is UTC's; a reservation of yesterday that is settled today is not today's."""
    purse = Purse.of([reserve("a", NOON, 0.5)])
    assert purse.day == day_of(NOON) == "2024-10-04"

    purse.apply(settle("a", NOON + DAY, 0.25))

    assert sums(purse) == ("2024-10-05", 0, 0.0, 0)


@pytest.mark.parametrize("step", [DAY, -DAY])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_clock_step_of_a_day_resets_the_count_at_most_once(step: float, *, rebuilt: bool) -> None:
    """M15: a day ahead and back, or a day back and ahead again; also over a restart."""
    purse, rows, resets = Purse(), list[dict[str, Any]](), 0
    moments = [NOON, NOON + step + 1, NOON + 2, NOON + step + 3, NOON + 4]
    for n, now in enumerate(moments):
        before = purse.calls
        rows.append(reserve(str(n), now, 0.1))
        if rebuilt:
            purse = Purse.of(rows)
        else:
            purse.apply(rows[-1])
        resets += purse.calls <= before
    assert resets == (1 if step > 0 else 0)
    assert purse.calls == (4 if step > 0 else 5)


def test_a_clock_that_was_years_ahead_does_not_keep_the_books_open() -> None:
    """V8: the count made under the wrong date stays, and the next real midnight ends it."""
    far = NOON + 27_000 * DAY
    rows = [reserve("a", NOON, 0.5), reserve("b", far, 0.25), reserve("c", NOON + 1, 0.25)]
    for purse in (Purse.of(rows), Purse.of(rows)):
        assert sums(purse) == (day_of(NOON), 2, 0.5, 0)
        assert allowed(purse, NOON + 61, 0.5)
        assert not allowed(purse, NOON + 61, 0.51)
        purse.turn_page(NOON + DAY)
        assert sums(purse) == (day_of(NOON + DAY), 0, 0.0, 0)


def test_a_page_can_be_turned_without_a_call() -> None:
    """`status` shows today's account, not the last one that was used."""
    purse = Purse.of([reserve("a", NOON, 0.5)])
    purse.turn_page(NOON + DAY)

    assert sums(purse) == (day_of(NOON + DAY), 0, 0.0, 0)


GOOD = reserve("good", NOON, 0.5)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"t": NOON, "id": "x"},
        {"op": "reserve", "t": NOON},
        {"op": "reserve", "id": "x"},
        {"op": "steal", "id": "x", "t": NOON, "usd": 1.0},
        {"op": ["reserve"], "id": "x", "t": NOON, "usd": 1.0},
        reserve("x", math.nan, 0.1),
        reserve("x", math.inf, 0.1),
        reserve("x", -math.inf, 0.1),
        reserve("x", -1.0, 0.1),
        reserve("x", 1e18, 0.1),
        reserve("x", 10**400, 0.1),
        {**reserve("x", NOON, 0.1), "t": True},
        reserve("x", NOON, math.nan),
        reserve("x", NOON, math.inf),
        reserve("x", NOON, -5.0),
        reserve("x", NOON, 10**400),
        {**reserve("x", NOON, 0.1), "usd": True},
        settle("good", NOON, -5.0),
        settle("good", NOON, math.nan),
        {**reserve("x", NOON, 0.1), "usd": "0.1"},
        {**reserve("x", NOON, 0.1), "usd": [0.1]},
        {**reserve("x", NOON, 0.1), "id": 7},
        {**reserve("x", NOON, 0.1), "t": "now"},
    ],
    ids=repr,
)
def test_a_row_of_a_wrong_shape_is_passed_over(bad: dict[str, Any]) -> None:
    """M15: a damaged journal neither stops the daemon nor opens a cap (NaN is under any cap)."""
    purse = Purse.of([GOOD, bad])

    assert sums(purse) == sums(Purse.of([GOOD]))
    assert not allowed(purse, NOON + 61, 0.51)


def test_a_settling_without_its_reservation_gives_nothing_back() -> None:
    """M15: the journal's beginning may be cut off."""
    purse = Purse.of([settle("lost", NOON, 0.25), GOOD, settle("lost", NOON, 0.0)])

    assert purse.usd == 0.5


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["op", "id", "t", "usd"]),
            st.sampled_from(["reserve", "settle", "a", "b", None, 0, NOON, 0.1, -1, math.nan, True])
            | st.floats()
            | st.integers(),
        ),
        max_size=20,
    )
)
def test_no_row_raises_and_no_cap_opens(rows: list[dict[str, Any]]) -> None:
    """M15: whatever the journal holds, the sums are amounts."""
    purse = Purse.of(rows)

    assert purse.calls >= 0
    assert purse.usd >= -1e-9
    assert math.isfinite(purse.usd)
    purse.turn_page(NOON + 10**6 * DAY)
    assert allowed(purse, NOON + 10**6 * DAY, 0.5)

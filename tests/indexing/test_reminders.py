"""One reminder a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexerd.indexing.reminders import Reminders


def test_a_key_keeps_its_earliest_reminder() -> None:
    """Later wishes add nothing; an earlier one replaces; each key is told once."""
    reminders = Reminders()
    assert reminders.remind("a", 5)
    assert not reminders.remind("a", 9)
    assert not reminders.remind("b", 7)
    assert reminders.remind("a", 3)
    assert list(reminders.due(2)) == []
    assert list(reminders.due(10)) == ["a", "b"]
    assert (len(reminders), reminders.next_at) == (0, None)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=200))
def test_each_key_is_told_at_its_earliest_moment(wishes: list[tuple[str, int]]) -> None:
    """Whatever is asked, a key is told exactly at the earliest moment asked for."""
    reminders = Reminders()
    for key, when in wishes:
        reminders.remind(key, when)
    told = {}
    for now in range(51):
        for key in reminders.due(now):
            assert key not in told
            told[key] = now
    earliest: dict[str, int] = {}
    for key, when in wishes:
        earliest[key] = min(when, earliest.get(key, when))
    assert earliest == told


def test_a_clock_that_is_set_back_makes_all_due() -> None:
    """V8: what waits is decided on again by the new time, once; what then asks anew waits."""
    reminders = Reminders()
    reminders.remind("b", 1004)
    reminders.remind("a", 1003)
    assert list(reminders.due(1000)) == []
    told = []
    for key in reminders.due(-2600):
        told.append(key)
        reminders.remind(key, -2596)
    assert told == ["a", "b"]
    assert list(reminders.due(-2597)) == []
    assert list(reminders.due(-2596)) == ["a", "b"]
    assert (len(reminders), reminders.next_at) == (0, None)


def test_a_busy_key_does_not_pile_up() -> None:
    """A session appended to all the time holds one place, however often it asks."""
    reminders = Reminders()
    for second in range(10_000):
        reminders.remind("busy", second + 2.0)
        list(reminders.due(second))
    assert len(reminders) == 1
    assert len(reminders._heap) <= 2

"""Which session is indexed next, and when one is looked at again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexerd.indexing.queue import Job, JobQueue, Reminders

JOBS = st.builds(Job, st.sampled_from("abcde"), st.just("why"), st.integers(0, 5), st.booleans())


@given(st.lists(JOBS, max_size=20), st.sampled_from("abcde"))
def test_one_job_a_session_forced_first_then_the_newest(offers: list[Job], gone: str) -> None:
    """S0.3, S0.11, M16: the newest offer counts, but takes nothing from what somebody asked for."""
    jobs, wanted = JobQueue(), dict[str, Job]()
    for one in offers:
        jobs.offer(one)
        held = wanted.get(one.session_id)
        if held is None or one.forced or not held.forced:
            wanted[one.session_id] = one
    jobs.withdraw(gone)
    wanted.pop(gone, None)
    assert len(jobs) == len(wanted)
    taken = list(iter(jobs.take, None))
    ranks = [(one.forced, one.active_ms) for one in taken]
    assert ranks == sorted(ranks, reverse=True)
    assert {one.session_id: one for one in taken} == wanted
    assert len(taken) == len(wanted)


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

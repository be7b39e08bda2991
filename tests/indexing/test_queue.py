"""The queue of sessions: one job each, the right one first, never two of one session."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from indexerd.indexing.queue import Job, JobQueue, Reminders


class Queue(RuleBasedStateMachine):
    """Any order of offers, takes and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = JobQueue(2)
        self.waiting: dict[str, Job] = {}
        self.running: set[str] = set()

    @rule(name=st.sampled_from("abcde"), active=st.integers(0, 5), forced=st.booleans())
    def offer(self, name: str, active: int, *, forced: bool) -> None:
        """Queued unless it runs; forced stays forced."""
        job = Job(name, "why", active, forced)
        assert self.jobs.offer(job) == (name not in self.running)
        held = self.waiting.get(name)
        if name not in self.running and (forced or held is None or not held.forced):
            self.waiting[name] = job

    @rule(name=st.sampled_from("abcde"))
    def withdraw(self, name: str) -> None:
        """Out of the queue; a running job goes on."""
        self.jobs.withdraw(name)
        self.waiting.pop(name, None)

    @rule(concurrency=st.integers(1, 4))
    def reconfigure(self, concurrency: int) -> None:
        """A reload may change how many run."""
        self.jobs.concurrency = concurrency

    @rule()
    def take(self) -> None:
        """The best that waits, if there is room."""
        job = self.jobs.take()
        if not self.waiting or len(self.running) >= self.jobs.concurrency:
            assert job is None
            return
        assert job is not None
        assert job == self.waiting.pop(job.session_id)
        rank = (job.forced, job.active_ms)
        assert all(rank >= (one.forced, one.active_ms) for one in self.waiting.values())
        assert job.session_id not in self.running
        self.running.add(job.session_id)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """One of them ends."""
        name = data.draw(st.sampled_from(sorted(self.running)))
        self.jobs.done(name)
        self.running.discard(name)

    @invariant()
    def agrees(self) -> None:
        """Never two of one session, and nothing lost."""
        assert self.jobs.running == self.running
        assert len(self.jobs) == len(self.waiting)
        assert not self.running & set(self.waiting)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# -- reminders ---------------------------------------------------------------------------------


def test_a_key_keeps_its_earliest_reminder() -> None:
    """Later wishes add nothing; an earlier one replaces; each key is told once."""
    reminders = Reminders()
    assert reminders.remind("a", 5)
    assert not reminders.remind("a", 9)
    assert not reminders.remind("b", 7)
    assert reminders.remind("a", 3)
    assert reminders.due(2) == []
    assert reminders.due(10) == ["a", "b"]
    assert reminders.next_at is None


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
    assert reminders.due(1000) == []
    told = []
    for key in reminders.due(-2600):
        told.append(key)
        reminders.remind(key, -2596)
    assert told == ["a", "b"]
    assert reminders.due(-2597) == []
    assert reminders.due(-2596) == ["a", "b"]
    assert reminders.next_at is None


def test_a_busy_key_does_not_pile_up() -> None:
    """A session appended to all the time holds one place, however often it asks."""
    reminders = Reminders()
    for second in range(10_000):
        reminders.remind("busy", second + 2.0)
        reminders.due(second)
    assert len(reminders._heap) <= 2

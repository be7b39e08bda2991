"""When a session is indexed: the table of decisions, the moments between them, and their text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.events import Kind, Turn, code
from indexerd.indexing.policy import (
    PAUSE_MAX,
    Decision,
    Index,
    Limits,
    Skip,
    View,
    Wait,
    back_off,
    decide,
)
from indexerd.sessions.state import SessionState

LIMITS = Limits(
    min_new_user_messages=5, quiet_seconds=2.0, error_quiet_seconds=15.0, max_wait_seconds=900.0
)
T0 = 1_000_000.0
# A session whose turn ended at T0, with five new questions that began to wait then.
DUE = View(
    has_answer=True, new_user_messages=5, turn=Turn.ENDED, changed_at=T0, open_since=T0 - 60.0
)
LONG_OPEN = replace(DUE, turn=Turn.OPEN, changed_at=T0, open_since=T0 - 900.0)


@pytest.mark.parametrize(
    ("view", "after", "decision"),
    [
        # S0.1: the end of the turn, and the quiet time after it
        pytest.param(DUE, 0.0, Wait(T0 + 2.0, "due"), id="just ended"),
        pytest.param(DUE, 1.999, Wait(T0 + 2.0, "due"), id="not quiet yet"),
        pytest.param(DUE, 2.0, Index("due"), id="S0.1 quiet"),
        pytest.param(DUE, 1e6, Index("due"), id="long quiet"),
        pytest.param(
            replace(DUE, turn=Turn.OPEN), 839.9, Wait(T0 + 840.0, "max_wait"), id="S0.1 tool loop"
        ),
        pytest.param(replace(DUE, turn=Turn.OPEN), 840.0, Index("max_wait"), id="W10 no end"),
        pytest.param(LONG_OPEN, 0.0, Index("max_wait"), id="W10 long without an end"),
        pytest.param(
            replace(DUE, open_since=T0 - 899.0), 1.0, Index("max_wait"), id="W10 without a pause"
        ),
        # S0.2: a failed turn waits longer, for the retry that may follow
        pytest.param(replace(DUE, turn=Turn.FAILED), 2.0, Wait(T0 + 15.0, "due"), id="S0.2 failed"),
        pytest.param(replace(DUE, turn=Turn.FAILED), 15.0, Index("due"), id="S0.2 no retry came"),
        # S0.5, S0.6: nothing to describe, or not enough
        pytest.param(replace(DUE, has_answer=False), 99.0, Skip("no_answer"), id="S0.5 no answer"),
        pytest.param(
            replace(DUE, has_answer=False, forced=True), 99.0, Skip("no_answer"), id="S0.5 forced"
        ),
        pytest.param(
            replace(DUE, new_user_messages=4), 99.0, Skip("below_threshold"), id="S0.6 four"
        ),
        pytest.param(
            replace(LONG_OPEN, new_user_messages=4), 99.0, Skip("below_threshold"), id="S0.6 long"
        ),
        pytest.param(replace(DUE, new_user_messages=6), 99.0, Index("due"), id="S0.6 six"),
        # S0.3, S0.4: forced
        pytest.param(
            replace(DUE, new_user_messages=0, forced=True), 2.0, Index("forced"), id="S0.3 forced"
        ),
        pytest.param(
            replace(DUE, forced=True), 1.0, Wait(T0 + 2.0, "due"), id="S0.4 forced, not quiet"
        ),
        pytest.param(
            replace(DUE, turn=Turn.OPEN, forced=True),
            99.0,
            Wait(T0 + 840.0, "max_wait"),
            id="S0.4 forced in a turn",
        ),
        pytest.param(
            replace(DUE, turn=Turn.FAILED, forced=True),
            2.0,
            Wait(T0 + 15.0, "due"),
            id="S0.4 forced after an error",
        ),
        # M11: declined content is asked about again only after new messages
        pytest.param(replace(DUE, refused_at=5), 99.0, Skip("refused"), id="M11 refused"),
        pytest.param(replace(DUE, refused_at=6), 99.0, Skip("refused"), id="M11 fewer since"),
        pytest.param(replace(DUE, refused_at=4), 99.0, Index("due"), id="M11 one more"),
        pytest.param(
            replace(DUE, refused_at=5, forced=True), 99.0, Index("forced"), id="M11 forced"
        ),
        # M13: a back-off is waited for, unless somebody asks
        pytest.param(
            replace(DUE, retry_at=T0 + 60), 59.9, Wait(T0 + 60, "back_off"), id="M13 backs off"
        ),
        pytest.param(replace(DUE, retry_at=T0 + 60), 60.0, Index("due"), id="M13 tries again"),
        pytest.param(
            replace(DUE, retry_at=T0 + 60, forced=True), 2.0, Index("forced"), id="M13 forced"
        ),
        pytest.param(
            replace(DUE, retry_at=T0 + 60, new_user_messages=4),
            2.0,
            Skip("below_threshold"),
            id="M13 below the threshold nothing is waited for",
        ),
        # V8: the clock was set back after these were noted
        pytest.param(DUE, -3600.0, Index("due"), id="V8 one hour back"),
        pytest.param(DUE, -0.5, Wait(T0 + 2.0, "due"), id="V8 a slewing clock"),
        pytest.param(
            replace(DUE, retry_at=T0 + PAUSE_MAX + 6), 5.0, Index("due"), id="V8 absurd back-off"
        ),
        pytest.param(
            replace(DUE, retry_at=T0 + PAUSE_MAX),
            5.0,
            Wait(T0 + PAUSE_MAX, "back_off"),
            id="V8 the longest back-off",
        ),
    ],
)
def test_the_table(view: View, after: float, decision: Decision) -> None:
    """S0.1 to S0.6, F17, M11, M13, V8, W10: one row each; `after` is seconds since T0."""
    assert decide(view, T0 + after, LIMITS) == decision


views = st.builds(
    View,
    has_answer=st.booleans(),
    new_user_messages=st.integers(0, 8),
    turn=st.sampled_from(Turn),
    changed_at=st.floats(T0 - 2000, T0 + 2000),
    open_since=st.floats(T0 - 2000, T0 + 2000),
    retry_at=st.just(0.0) | st.floats(T0 - 2000, T0 + 90_000),
    refused_at=st.none() | st.integers(0, 8),
    forced=st.booleans(),
)


@given(views, st.floats(T0 - 1000, T0 + 3000))
def test_a_wait_ends_and_at_its_end_something_else_is_decided(view: View, now: float) -> None:
    """V8: `until` lies ahead, the decision there is no earlier wait: no spin, no stall."""
    for _ in range(4):
        decision = decide(view, now, LIMITS)
        if not isinstance(decision, Wait):
            break
        assert decision.until > now
        now = decision.until
    assert not isinstance(decision, Wait)


@given(views, st.floats(T0, T0 + 3000), st.floats(0, 10_000))
def test_what_is_due_stays_due_while_nothing_happens(view: View, now: float, later: float) -> None:
    """S0.1: a decision to index does not lapse, and a skip is not undone, by waiting."""
    decision = decide(view, now, LIMITS)
    if isinstance(decision, Index) and view.changed_at <= now:
        assert isinstance(decide(view, now + later, LIMITS), Index)
    if isinstance(decision, Skip):
        assert decide(view, now + later, LIMITS) == decision


def test_the_fifth_question_since_the_last_run_is_the_one() -> None:
    """S0.6, S0.8: counted by the session's state from the leaf that was indexed."""
    state = SessionState()
    state.add("u0", None, code(Kind.USER, message=True), 0, 1)
    state.add("a0", "u0", code(Kind.ASSISTANT, turn=Turn.ENDED, message=True), 1, 1)
    since, last, found = "a0", b"a0", []
    for n in range(1, 6):
        state.add(f"u{n}", last, code(Kind.USER, message=True), n, 1)
        last = f"a{n}"
        state.add(last, f"u{n}", code(Kind.ASSISTANT, turn=Turn.ENDED, message=True), n, 1)
        view = replace(DUE, new_user_messages=state.new_user_messages(since), turn=state.turn)
        found.append(decide(view, T0 + 10, LIMITS))

    assert found == [Skip("below_threshold")] * 4 + [Index("due")]


@given(st.integers(-5, 10**9))
def test_a_back_off_is_between_a_minute_and_six_hours(failures: int) -> None:
    """M13: whatever the count, also one that a float cannot double that often."""
    assert 60.0 <= back_off(failures) <= 6 * 3600.0
    assert back_off(failures) <= back_off(failures + 1) <= 2 * back_off(failures)


def test_a_back_off_doubles_from_a_minute() -> None:
    """M13: 1, 2, 4 … minutes, six hours from the tenth failure on."""
    minutes = [back_off(n) / 60 for n in range(1, 12)]
    assert minutes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360]


# -- moments as text (core.times) -------------------------------------------------------------

"""The first human message of the current path, and how many there are, after any leaf move."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.agents import pi
from indexerd.events import Kind, code
from indexerd.sessions.asked import KEPT
from indexerd.sessions.state import SessionState
from tests.sessions.tree_sessions import entry, said, session, state_of

USER, ANSWER = code(Kind.USER, message=True), code(Kind.ASSISTANT, message=True)


def grown(state: SessionState, parent: bytes | None, kind: int) -> None:
    """An entry below another, taken in as adapters do it."""
    name = b"%d" % len(state)
    state.add(name, parent, kind, 0, 1)
    if kind == USER and not state.first_user:
        state.first_user = name.decode()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("aumr"), st.integers(0, 40), st.sampled_from([USER, ANSWER])),
        max_size=40,
    )
)
def test_what_was_asked_is_what_a_walk_finds(steps: list[tuple[str, int, int]]) -> None:
    """S1.12: whatever is added, taken back or said anew, and wherever the leaf moves."""
    state, before = SessionState(), ""
    for what, place, kind in steps:
        at = place % (len(state) + 1) - 1
        name = state.ids[at] if at >= 0 else None
        if what == "a":
            grown(state, name, kind)
        elif what == "u" and before == "a":
            state.take_back()
        elif what == "m":
            state.move_leaf(name)
        elif what == "r" and at >= 0:
            state.recode(at, ANSWER)
        before = what
        asked = [row for row in state.path() if state.kind(row) is Kind.USER]
        assert state.user_messages() == len(asked)
        if asked and not any(one[0] == "r" for one in steps):
            assert state.first_user == state.id(asked[0])
        elif not asked:
            assert state.first_user == ""
        assert SessionState.decode(state.encode()).first_user == state.first_user


def test_the_message_taken_back_is_not_the_first_any_more() -> None:
    """L3: after a rollback of everything, the next prompt is the first one."""
    state = SessionState()
    grown(state, None, USER)
    grown(state, b"0", ANSWER)
    state.move_leaf(None)
    assert state.first_user == ""
    grown(state, None, USER)
    assert state.first_user == "2"
    state.move_leaf(b"1")
    assert state.first_user == "0"


def test_pi_reads_the_first_message_of_a_second_beginning() -> None:
    """S1.12: pi's plain lines are not parsed, but for the one that a new path begins with."""
    lines = [
        said("a", None, "user", "First try"),
        said("b", "a", "assistant", "1", stopReason="stop"),
        said("c", None, "user", "Second try"),
        said("d", "c", "user", "More of it"),
    ]
    state = state_of(session(*lines))
    assert state.first_user == "Second try"
    pi.skim(state, entry("leaf", "e", "d", targetId="b"), 5000)
    assert state.first_user == "First try"


def test_where_ids_repeat_the_first_of_the_file_is_shown() -> None:
    """S1.7: no walk for every message of a file that runs in circles."""
    state = SessionState()
    for parent in (None, b"0", b"late"):
        grown(state, parent, USER)
    assert not state.orderly
    assert state.first_user == "0"


def test_few_beginnings_are_remembered() -> None:
    """A file of nothing but beginnings fills no memory."""
    state = SessionState()
    for _ in range(3 * KEPT):
        grown(state, None, USER)
    assert len(state.openings) == KEPT
    assert state.first_user == state.id(len(state) - 1)

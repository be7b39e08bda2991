"""The order, parents and tips of trees of any shape."""

from hypothesis import given
from hypothesis import strategies as st

from indexerd.entries import Kind, code
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sessions.tree_answers import outline, tips
from tests.sessions.tree_sessions import entry, said, session, state_of

WORDS = st.sampled_from("abcdefgh")
DATES = st.sampled_from([1, 2, 3, 0])  # 0 means no date
RECORDS = st.lists(st.tuples(WORDS, st.none() | WORDS | st.just("zz"), DATES), max_size=12)


def built(records: list[tuple[str, str | None, int]]) -> SessionState:
    state = SessionState()
    for at, (entry_id, above, _) in enumerate(records):
        parent = above or None
        state.add(entry_id, parent, code(Kind.USER, message=True), at, 1)
    return state


@given(RECORDS)
def test_every_entry_is_shown_below_its_parent(records: list[tuple[str, str | None, int]]) -> None:
    """S1.6, S1.7: with any dates no entry is lost, and each is listed below its parent."""
    state = built(records)
    trail: list[int] = []
    for row, above, depth in outline(state, lambda row: records[row][2]):
        del trail[depth:]
        assert (trail[-1] if trail else ROOT) == above
        assert row not in trail
        trail.append(row)
    shown = sorted(row for row, _, _ in outline(state, lambda row: records[row][2]))
    assert shown == [*range(len(records))]


def test_a_branch_ends_at_bookkeeping_entries_below_its_leaf() -> None:
    """S1.14: labels and leaf changes below the leaf are no branch of their own."""
    moved = entry("leaf", "l", "d", targetId="b")
    talk = [said("a", None, "user"), said("b", "a", "user"), said("c", "b", "user")]
    lines = [*talk, entry("label", "k", "b", targetId="b", label="x"), said("d", "c", "user")]
    state = state_of(session(*lines, moved))
    found = tips(state, {})
    assert [state.ids[tip.row] for tip in found] == ["l", "b"]
    assert [tip.entries for tip in found] == [5, 2]

"""The state of a session against a plain model of parents, and its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexerd.events import Kind, Turn, code
from indexerd.sessions.state import SessionState

USER, TOOL = code(Kind.USER, message=True), code(Kind.TOOL)
ANSWER = code(Kind.ASSISTANT, turn=Turn.ENDED, message=True)
IDS = st.sampled_from("abcdefg")
ENTRIES = st.lists(st.tuples(IDS, st.none() | IDS, st.sampled_from([USER, TOOL, ANSWER])))


def built(entries: list[tuple[str, str | None, int]]) -> SessionState:
    """A state of entries: id, parent, code."""
    state = SessionState("/s.jsonl")
    for at, (one, above, packed) in enumerate(entries):
        state.add(one, above, packed, at * 10, 9)
    return state


def model_path(entries: list[tuple[str, str | None, int]], leaf: str) -> list[int]:
    """Rows from the root to a leaf, by asking for each parent's last line anew."""
    last = {one: at for at, (one, _, _) in enumerate(entries)}
    rows: list[int] = []
    row: int | None = last[leaf]
    while row is not None and row not in rows:
        rows.append(row)
        above = entries[row][1]
        own = above == entries[row][0] or above is None
        row = None if own or above is None else last.get(above)
    return rows[::-1]


@given(ENTRIES)
def test_paths_and_counts_are_those_of_the_model(
    entries: list[tuple[str, str | None, int]],
) -> None:
    """S1.7: ids that repeat, parents that come late or never, circles."""
    state = built(entries)
    for leaf in {one for one, _, _ in entries}:
        state.move_leaf(leaf)
        path = model_path(entries, leaf)
        assert state.path() == path
        assert state.user_messages() == sum(entries[row][2] == USER for row in path)
        for row in path:
            name = state.id(row)
            if state.row(name) == row:
                after = path[path.index(row) + 1 :]
                assert state.new_user_messages(name) == sum(entries[x][2] == USER for x in after)
    assert state.messages == sum(packed != TOOL for _, _, packed in entries)


def test_a_count_falls_when_the_leaf_moves_back() -> None:
    """S0.9, S1.14: what is not on the path does not count."""
    state = built([("a", None, USER), ("b", "a", ANSWER), ("c", "b", USER), ("d", "a", ANSWER)])
    assert (state.leaf_id, state.user_messages(), state.turn) == ("d", 1, Turn.ENDED)
    assert (state.left("c"), state.tips()) == (True, [2, 3])
    assert state.new_user_messages("c") == 1
    state.move_leaf(None)
    assert (state.leaf_id, state.path(), state.turn) == (None, [], Turn.OPEN)

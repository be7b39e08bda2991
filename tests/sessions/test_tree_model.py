"""The order, parents and tips of trees, compared with a naive model."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from indexerd.entries import Kind, code
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sessions.tree_answers import outline, tips
from tests.sessions.tree_sessions import entry, said, session, state_of

WORDS = st.sampled_from("abcdefgh")
DATES = st.sampled_from([1, 2, 3, 0])  # 0 means no date
RECORDS = st.lists(st.tuples(WORDS, st.none() | WORDS | st.just("zz"), DATES), max_size=12)
Record = tuple[str, str | None, int]


def built(records: list[Record]) -> SessionState:
    state = SessionState()
    for at, (entry_id, above, _) in enumerate(records):
        parent = above or None
        state.add(entry_id, parent, code(Kind.USER, message=True), at, 1)
    return state


def naive(records: list[Record]) -> list[tuple[str, int]]:
    last = {entry_id: at for at, (entry_id, _, _) in enumerate(records)}
    below: dict[str | None, list[str]] = {None: []}
    for entry_id, above, _ in records:
        top = above is None or above == entry_id or above not in last
        below.setdefault(None if top else above, []).append(entry_id)
    shown: list[tuple[str, int]] = []

    def show(entry_id: str, trail: tuple[str, ...]) -> None:
        if entry_id not in trail:
            shown.append((entry_id, len(trail)))
            children = below.get(entry_id, [])
            if all(records[last[child]][2] for child in children):
                children = sorted(children, key=lambda child: records[last[child]][2])
            for child in children:
                show(child, (*trail, entry_id))

    for entry_id in below[None]:
        show(entry_id, ())
    return shown


@given(RECORDS.filter(lambda them: not any(date == 0 for _, _, date in them)))
def test_the_order_equals_a_naive_models(records: list[Record]) -> None:
    """S1.6: for known, unknown, late, repeated and cyclic parents."""
    state = built(records)
    found = [
        (state.id(row), depth) for row, _, depth in outline(state, lambda row: records[row][2])
    ]
    model = naive(records)
    if len(model) <= 2 * len(records):
        assert model == found[: len(model)]
    assert {entry_id for entry_id, _, _ in records} == {entry_id for entry_id, _ in found}
    assert len(found) <= 3 * len(records)


@given(RECORDS)
def test_every_entry_is_shown_below_its_parent(records: list[Record]) -> None:
    """S1.6, S1.7: with any dates no entry is lost, and each is listed below its parent."""
    state = built(records)
    trail: list[int] = []
    for row, above, depth in outline(state, lambda row: records[row][2]):
        del trail[depth:]
        assert (trail[-1] if trail else ROOT) == above
        assert row not in trail
        trail.append(row)
    shown = Counter(row for row, _, _ in outline(state, lambda row: records[row][2]))
    assert set(shown) == {state.row(entry_id) for entry_id, _, _ in records}


@given(RECORDS)
@example([("a", "c", 1), ("c", "b", 1), ("b", "c", 1)])
def test_tips_equal_a_naive_models(records: list[Record]) -> None:
    """S1.14: entries, user messages and branch point of every tip; a cycle has no root."""
    state = built(records)
    children = Counter(state.parent(row) for row in range(len(state)))
    found = tips(state, {})
    assert {*state.tips(), *([state.leaf] if records else [])} == {tip.row for tip in found}
    for tip in found:
        path = list(state.up(tip.row))
        partings = [row for row in path[1:] if children[row] > 1]
        assert (tip.users, tip.last) == (tip.entries, tip.row)
        if state.parent(path[-1]) == ROOT:  # not part of a cycle
            assert (tip.entries, tip.parting) == (len(path), partings[0] if partings else ROOT)
        assert 0 < tip.entries <= len(path)


def test_a_branch_ends_at_bookkeeping_entries_below_its_leaf() -> None:
    """S1.14: labels and leaf changes below the leaf are no branch of their own."""
    moved = entry("leaf", "l", "d", targetId="b")
    talk = [said("a", None, "user"), said("b", "a", "user"), said("c", "b", "user")]
    lines = [*talk, entry("label", "k", "b", targetId="b", label="x"), said("d", "c", "user")]
    state = state_of(session(*lines, moved))
    found = tips(state, {})
    assert [state.id(tip.row) for tip in found] == ["l", "b"]
    assert [tip.entries for tip in found] == [5, 2]

"""The tree as a list, against a naive model: order, parents, tips."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from indexerd.events import Kind, code
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sessions.tree_answers import outline, tips
from tests.sessions.tree_sessions import entry, said, session, state_of

WORDS = st.sampled_from("abcdefgh")
DATES = st.sampled_from([1, 2, 3, 0])  # 0: no date
RECORDS = st.lists(st.tuples(WORDS, st.none() | WORDS | st.just("zz"), DATES), max_size=12)
Record = tuple[str, str | None, int]


def built(records: list[Record]) -> SessionState:
    state = SessionState()
    for at, (one, above, _) in enumerate(records):
        parent = above or None
        state.add(one, parent, code(Kind.USER, message=True), at, 1)
    return state


def naive(records: list[Record]) -> list[tuple[str, int]]:
    last = {one: at for at, (one, _, _) in enumerate(records)}
    below: dict[str | None, list[str]] = {None: []}
    for one, above, _ in records:
        top = above is None or above == one or above not in last
        below.setdefault(None if top else above, []).append(one)
    shown: list[tuple[str, int]] = []

    def show(one: str, trail: tuple[str, ...]) -> None:
        if one not in trail:
            shown.append((one, len(trail)))
            mine = below.get(one, [])
            if all(records[last[each]][2] for each in mine):
                mine = sorted(mine, key=lambda each: records[last[each]][2])
            for each in mine:
                show(each, (*trail, one))

    for one in below[None]:
        show(one, ())
    return shown


@given(RECORDS.filter(lambda them: not any(date == 0 for _, _, date in them)))
def test_the_order_is_that_of_a_naive_model(records: list[Record]) -> None:
    """S1.6: for any parents, known, unknown, late, repeated or in a circle."""
    state = built(records)
    found = [
        (state.id(row), depth) for row, _, depth in outline(state, lambda one: records[one][2])
    ]
    model = naive(records)
    if len(model) <= 2 * len(records):
        assert model == found[: len(model)]
    assert {one for one, _, _ in records} == {one for one, _ in found}
    assert len(found) <= 3 * len(records)


@given(RECORDS)
def test_every_entry_is_shown_below_its_parent(records: list[Record]) -> None:
    """S1.6, S1.7: whatever the dates: nothing is lost, and a place's parent is the one before."""
    state = built(records)
    trail: list[int] = []
    for row, above, depth in outline(state, lambda one: records[one][2]):
        del trail[depth:]
        assert (trail[-1] if trail else ROOT) == above
        assert row not in trail
        trail.append(row)
    shown = Counter(row for row, _, _ in outline(state, lambda one: records[one][2]))
    assert set(shown) == {state.row(one) for one, _, _ in records}


@given(RECORDS)
def test_tips_are_those_of_a_naive_model(records: list[Record]) -> None:
    """S1.14: counts and parting points of every tip, by walking up from each."""
    state = built(records)
    children = Counter(state.parent(row) for row in range(len(state)))
    found = tips(state, {})
    assert {*state.tips(), *([state.leaf] if records else [])} == {tip.row for tip in found}
    for tip in found:
        path = list(state.up(tip.row))
        partings = [row for row in path[1:] if children[row] > 1]
        assert (tip.entries, tip.users, tip.last) == (len(path), len(path), tip.row)
        if state.parent(path[-1]) == ROOT:  # not on a circle
            assert tip.parting == (partings[0] if partings else ROOT)


def test_a_leaf_that_bookkeeping_follows_is_the_branchs_tip() -> None:
    """S1.14: entries below the leaf that nobody said are no branch; a conversation is one."""
    moved = entry("leaf", "l", "d", targetId="b")
    talk = [said("a", None, "user"), said("b", "a", "user"), said("c", "b", "user")]
    lines = [*talk, entry("label", "k", "b", targetId="b", label="x"), said("d", "c", "user")]
    state = state_of(session(*lines, moved))
    found = tips(state, {})
    assert [state.id(tip.row) for tip in found] == ["l", "b"]
    assert [tip.entries for tip in found] == [5, 2]

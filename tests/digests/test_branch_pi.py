"""What pi sums up of a branch that was left."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.branch_pi import BUDGET, branch_rows, prepare_branch
from indexerd.digests.compact_pi import RESERVE, estimate_tokens
from indexerd.sessions.context import ContextEntry, entries_of
from indexerd.sessions.history import FileLists
from tests.digests.talk_steps import OLD, TALKS, call, chained, compaction, did, steps
from tests.sessions.tree_sessions import entry, reader, said, session, state_of


def test_a_branch_goes_back_to_what_it_shares() -> None:
    """S1.27: the deepest common entry, compactions included; all of it without a target."""
    lines = [
        *chained("", "b", "c"),
        compaction("d", "c", "b"),
        *chained("d", "e"),
        said("x", "c", "user", "other"),
        said("r", None, "user", "another root"),
    ]
    state = state_of(session(said("a", None, "user", "one"), *lines))

    def rows(leaf: str, target: str | None) -> list[str]:
        found = branch_rows(state, state.row(leaf) or 0, state.row(target) if target else None)
        return [state.id(row) for row in found]

    assert rows("e", "x") == ["d", "e"]
    assert rows("e", "e") == rows("c", "e") == []
    assert rows("x", "e") == ["x"]
    assert rows("e", None) == rows("e", "r") == ["b", "c", "d", "e"]
    assert branch_rows(state, -1, None) == []


BRANCH = [
    said("a", None, "user", "x" * 40),
    entry("branch_summary", "b", "a", summary="x" * 40, details=OLD),
    did("c", "b", call("read", "r1")),
    said("d", "c", "toolResult", "x" * 4000),
    did("e", "d", call("write", "w2")),
]


def raw(*lines: bytes) -> list[ContextEntry]:
    """All rows of a small session."""
    data = session(*lines)
    state = state_of(data)
    return entries_of(state, reader(state, data), state.path(), edits=False)


def test_a_branch_is_told_newest_first_within_a_budget() -> None:
    """S1.28: results are not told; the message that breaks the budget ends it, files and all."""
    whole = prepare_branch(raw(*BRANCH), 0)
    assert [one.entry.id for one in whole.speeches] == ["a", "b", "c", "e"]
    assert whole.tokens == 10 + 10 + 5 + 5
    assert whole.files == FileLists(("r0", "r1", "w1"), ("m0", "w2"))
    assert prepare_branch(raw(*BRANCH), 30) == whole
    # The summary fits while less than nine tenths are used; what is before it is not looked at.
    told = [one.entry.id for one in prepare_branch(raw(*BRANCH), 12).speeches]
    assert told == ["b", "c", "e"]
    assert [one.entry.id for one in prepare_branch(raw(*BRANCH), 11).speeches] == ["c", "e"]
    broken = prepare_branch(raw(*BRANCH), 6)
    assert ([one.entry.id for one in broken.speeches], broken.tokens) == (["e"], 5)
    assert broken.files == FileLists(("r0", "r1", "w1"), ("m0", "w2"))
    assert BUDGET == 128_000 - RESERVE


def test_a_branch_without_words_has_nothing_to_sum_up() -> None:
    """S1.28: then there is no content to summarize."""
    found = prepare_branch(raw(said("a", None, "toolResult", "x")))
    assert (found.speeches, found.tokens) == ((), 0)


@settings(max_examples=60, deadline=None)
@given(TALKS, st.integers(1, 120))
def test_any_branch_is_told_from_its_end(talk: list[tuple[str, int]], budget: int) -> None:
    """S1.28: a suffix without results, within the budget but for one summary at its beginning."""
    context = steps(*talk)
    found = prepare_branch(context, budget)
    told = [one for step in context for one in step.speeches if one.role != "toolResult"]
    assert list(found.speeches) == told[len(told) - len(found.speeches) :]
    assert found.tokens == sum(map(estimate_tokens, found.speeches))
    if found.tokens > budget:
        assert found.speeches[0].role in ("branchSummary", "compactionSummary")
        assert found.tokens - estimate_tokens(found.speeches[0]) < 0.9 * budget

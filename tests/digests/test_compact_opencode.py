"""Pruning and compaction as opencode does them (formats.md 4.6); pruning serves all (S3.22)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from indexerd.digests.compact_opencode import (
    IMAGE_UNITS,
    INTERRUPTED,
    PRUNE_MINIMUM,
    PRUNE_PROTECT,
    Pruned,
    estimate,
    history_of,
    model_view,
    prune,
    pruned,
    should_compact,
    tokens_of,
)
from indexerd.events import Kind, ToolCall, ToolResult
from indexerd.sessions.context import CLEARED, ContextEntry, ContextMessage
from tests.sessions.speeches import calls, counting, entry, gave, said, steps

NEWEST = [said("user", "two"), said("assistant", "ok"), said("user", "three")]  # the last 2 turns


def results(*tokens: int, tool: str = "bash", **more: Any) -> list[ContextMessage]:
    """A call and a result for each number of tokens, oldest first."""
    pairs = [(f"{tool}{n}", count) for n, count in enumerate(tokens)]
    return [
        one
        for call, count in pairs
        for one in (calls(call, tool=tool), gave(call, "x" * 4 * count, **more))
    ]


# -- pruning -------------------------------------------------------------------------------------


def test_what_is_older_than_the_newest_40_000_tokens_goes() -> None:
    """formats.md 4.6: the total runs from the newest on; that which exceeds it goes, too."""
    talk = [said("user", "one"), *results(15_000, 8_000, 10_000, 30_000), *NEWEST]
    # 30,000, then 40,000: not more than 40,000. Then 48,000 and 63,000: 8,000 + 15,000 go.
    assert prune(talk) == Pruned((2, 4), 23_000)
    # One token more in the newest: 40,001 exceeds it, and so that result goes as well.
    talk = [said("user", "one"), *results(15_000, 8_000, 10_000, 30_001), *NEWEST]
    assert prune(talk) == Pruned((2, 4, 6), 33_000)


def test_the_last_two_turns_stay() -> None:
    """S3.22: whatever they hold; the turn before them is counted from its end."""
    big = results(50_000, 50_000)
    assert prune([said("user", "one"), *big, said("user", "two")]) == Pruned((), 0)
    talk = [said("user", "one"), *big, said("user", "two"), *big, said("user", "three"), *big]
    assert prune(talk) == Pruned((2, 4), 100_000)  # the first counted one exceeds 40,000 itself


def test_context_before_a_prompt_is_no_turn_of_its_own() -> None:
    """S3.22: Codex and Claude put it under the user's role before each prompt."""
    context = said("user", "<environment_context>", kind=Kind.OTHER)
    last = [context, said("user", "two"), *results(50_000)]
    assert prune([said("user", "one"), *results(50_000), *last]) == Pruned((), 0)
    # opencode's own: a machine's message that nothing of the user's follows begins a turn.
    goes_on = said("user", "Continue if you have next steps", kind=Kind.OTHER)
    talk = [said("user", "one"), *results(50_000), goes_on, said("assistant", "ok")]
    assert prune([*talk, said("user", "two")]) == Pruned((2,), 50_000)


def test_protected_and_failed_results_neither_count_nor_go() -> None:
    """formats.md 4.6: the tool `skill`, and what did not complete."""
    skill = results(90_000, tool="skill")
    failed = results(90_000, tool="edit", failed=True)
    talk = [*results(30_000), *skill, *failed, *results(40_000, tool="read"), *NEWEST]
    assert prune(talk) == Pruned((1,), 30_000)
    # The tool's name may stand with the result, as it does in pi and opencode.
    lone = [
        replace(one, result=structs.replace(one.result, name="skill"))
        for one in skill
        if one.result
    ]
    assert prune([*lone, *results(40_000), *NEWEST]) == Pruned((), 0)


@pytest.mark.parametrize(
    "stop",
    [
        gave("c9", "x" * 4, cleared=True),
        ContextMessage("compactionSummary", entry(Kind.COMPACTION), ("So far.",)),
    ],
    ids=["pruned before", "summary"],
)
def test_it_goes_no_further_back_than_before(stop: ContextMessage) -> None:
    """formats.md 4.6: to the newest summary, or what was pruned already."""
    newer = results(30_000, 40_000)
    assert prune([*results(90_000), stop, *newer, *NEWEST]) == Pruned((4,), 30_000)


_ids = st.integers(0, 9).map(lambda n: f"c{n}")
_speech = st.one_of(
    st.builds(said, st.sampled_from(["user", "assistant"]), st.just("x")),
    st.builds(calls, _ids, tool=st.sampled_from(["bash", "skill"])),
    st.builds(
        gave,
        _ids,
        st.integers(0, 9).map(lambda n: "x" * n * 12_000),
        failed=st.booleans(),
        cleared=st.sampled_from([False, False, False, True]),
    ),
)


@settings(max_examples=120)
@given(st.lists(_speech, max_size=40))
def test_pruning_keeps_to_its_bounds(talk: list[ContextMessage]) -> None:
    """S3.22: only results before the last two turns, more than 40,000 tokens back, or nothing."""
    places, saved = prune(talk)
    turns = [at for at, one in enumerate(talk) if one.role == "user"]
    texts = {at: one.result.text for at in places if (one := talk[at]).result is not None}
    assert list(places) == sorted(texts)
    assert all(at < turns[-2] and talk[at].role == "toolResult" for at in places)
    assert saved == sum(estimate(said("user", one)) for one in texts.values())
    assert saved > PRUNE_MINIMUM or (places, saved) == ((), 0)
    if places:
        newer = [one.result.text for one in talk[places[-1] :] if one.result is not None]
        assert sum(estimate(said("user", one)) for one in newer) > PRUNE_PROTECT
    assert len(pruned(talk)) == len(talk)


# -- what the model sees -------------------------------------------------------------------------


def broken(stopped: str, text: str = "", *ids: str) -> ContextMessage:
    """An answer that broke off."""
    made = tuple(ToolCall("bash", id=one) for one in ids)
    held = entry(Kind.ASSISTANT, stop_reason=stopped)
    return ContextMessage("assistant", held, (text,) if text else (), ("hm",), made)


def test_an_answer_with_an_error_is_not_seen() -> None:
    """formats.md 4.6: nor what its tools gave; an aborted one is, if it says or calls anything."""
    bad = broken("error", "half", "c1")
    inside = ContextMessage("toolResult", bad.entry, ("r",), result=ToolResult("", "bash", "r"))
    talk = [said("user", "a"), bad, inside, gave("c1", "r"), broken("aborted")]
    assert model_view(talk) == talk[:1]
    spoke, called = broken("aborted", "half"), broken("aborted", "", "c2")
    assert model_view([spoke, called, gave("c2", "r")]) == [spoke, called, gave("c2", "r")]


def test_a_call_without_a_result_was_interrupted() -> None:
    """formats.md 4.6: whoever has not finished is told so; who never gives results is not."""
    asks = calls("c1", "c2")
    found = model_view([asks, gave("c1", "r")])
    assert [one.texts for one in found] == [(), (INTERRUPTED,), ("r",)]
    assert found[1].result == ToolResult("c2", "bash", INTERRUPTED)
    assert model_view(found) == found
    inside = calls("srvtoolu_1")
    line = ContextMessage("assistant", entry(Kind.CALL), calls=(ToolCall("web_search", id="w"),))
    nameless = calls("")
    assert model_view([inside, line, nameless]) == [inside, line, nameless]


def test_all_is_summed_up_and_nothing_stays() -> None:
    """formats.md 4.6: the summary before is part of it; old output is cleared first."""
    summary = ContextMessage("compactionSummary", entry(Kind.COMPACTION), ("So far.",))
    talk = [summary, *results(30_000, 40_000), broken("error"), *NEWEST]
    found = history_of(steps(*talk))
    assert found == [*talk[:2], *pruned(talk)[2:5], *NEWEST]
    assert found[2].texts == (CLEARED,)
    assert history_of([ContextEntry(0, entry(Kind.SETTING))]) == []


# -- tokens --------------------------------------------------------------------------------------


def test_estimates_are_characters_by_four_rounded() -> None:
    """S3.23: as JavaScript counts and rounds: half goes up, a character beyond the plane is two."""
    sizes = [estimate(said("user", "x" * n)) for n in range(1, 8)]
    assert sizes == [0, 1, 1, 1, 1, 2, 2]
    assert estimate(said("user", "\N{GRINNING FACE}" * 3)) == 2
    call = ToolCall("ls", arguments={"a": 1})  # ls(a=1): 7
    one = ContextMessage("assistant", entry(Kind.ASSISTANT), ("abc",), ("de",), (call,), images=1)
    assert estimate(one) == (3 + 2 + 7 + IMAGE_UNITS) / 4


def test_the_newest_answers_count_is_the_contexts() -> None:
    """S3.23: not one of before the compaction that keeps it, nor the summary's own."""
    older = ContextMessage("assistant", counting(9000), ("x" * 40,))
    kept = ContextEntry(1, older.entry, (older,), 1)
    summary = structs.replace(counting(50), kind=Kind.COMPACTION)
    compaction = ContextEntry(
        3, summary, (ContextMessage("compactionSummary", summary, ("s" * 40,)),), 3
    )
    newer = ContextMessage("assistant", counting(700), ("ok",))
    assert tokens_of([compaction, kept, ContextEntry(4, newer.entry, (newer,), 4)]) == 700
    assert tokens_of([compaction, kept]) == 10 + 10
    assert tokens_of([kept]) == 9000
    assert tokens_of(steps(said("user", "x" * 40))) == 10


def test_when_it_is_time() -> None:
    """S3.16: where an answer's most has no room left; never where no window is known."""
    assert [should_compact(count, 200_000) for count in (167_999, 168_000)] == [False, True]
    assert not should_compact(999_999, 0)

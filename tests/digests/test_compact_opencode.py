"""Pruning and compaction as in opencode (formats.md 4.6); pruning serves all agents (S3.22)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.compaction import (
    PRUNE_MINIMUM,
    PRUNE_PROTECT,
    prune,
    pruned,
)
from indexerd.entries import Kind
from indexerd.sessions.context import ContextMessage
from tests.sessions.speeches import calls, entry, gave, said

NEWEST = [said("user", "two"), said("assistant", "ok"), said("user", "three")]  # the last 2 turns


def results(*tokens: int, tool: str = "bash", **more: Any) -> list[ContextMessage]:
    pairs = [(f"{tool}{n}", count) for n, count in enumerate(tokens)]
    return [
        one
        for call, count in pairs
        for one in (calls(call, tool=tool), gave(call, "x" * 4 * count, **more))
    ]


@pytest.mark.parametrize(
    "stop",
    [
        gave("c9", "x" * 4, cleared=True),
        ContextMessage("compactionSummary", entry(Kind.COMPACTION), ("So far.",)),
    ],
    ids=["pruned before", "summary"],
)
def test_pruning_stops_where_it_stopped_before(stop: ContextMessage) -> None:
    """formats.md 4.6: at the newest summary or at results already pruned."""
    newer = results(30_000, 40_000)
    assert prune([*results(90_000), stop, *newer, *NEWEST]) == ([4], 30_000)


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
    """S3.22: only results before the last two turns and over 40,000 tokens back, or nothing."""
    places, saved = prune(talk)
    turns = [at for at, one in enumerate(talk) if one.role == "user"]
    texts = {at: one.result.text for at in places if (one := talk[at]).result is not None}
    assert places[::-1] == sorted(texts)
    assert all(at < turns[-2] and talk[at].role == "toolResult" for at in places)
    assert saved == sum((len(text) + 2) // 4 for text in texts.values())
    assert saved > PRUNE_MINIMUM or (places, saved) == ([], 0)
    if places:
        newer = [entry.result.text for entry in talk[places[0] :] if entry.result is not None]
        assert sum((len(text) + 2) // 4 for text in newer) > PRUNE_PROTECT
    assert len(pruned(talk)) == len(talk)

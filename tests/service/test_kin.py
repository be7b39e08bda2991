"""Who came from whom: forks, copies, sub-agents, met in any order (S1.16)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest

from indexerd.core.card import Card
from indexerd.service.kin import Kin

CARD = msgspec.convert(
    (
        *("claude", "/r/p/a.jsonl", "a", "/p", "2026-01-11T10:00:00.000Z", None, 1, 0, 0),
        *(None, 0, None, "", 0, 0, False, False, 0, 0, 0),
    ),
    Card,
)


def card(name: str, **fields: Any) -> Card:
    """A session of this name."""
    path = fields.pop("path", f"/r/p/{name}.jsonl")
    return msgspec.structs.replace(CARD, session_id=name, path=path, **fields)


FAMILY = [
    card("origin", first="u1", born_ms=10),
    card("fork", first="u1", born_ms=20),
    card("agent-1", parent_id="origin", path="/r/p/origin/subagents/agent-1.jsonl", subagent=True),
    card("copy", parent="/r/p/fork.jsonl"),
    card("stranger", first="u1", born_ms=30, path="/r/other/stranger.jsonl"),
]
PARENTS = {
    "origin": (None, None),
    "fork": ("origin", "/r/p/origin.jsonl"),
    "agent-1": ("origin", "/r/p/origin.jsonl"),
    "copy": ("fork", "/r/p/fork.jsonl"),
    "stranger": (None, None),
}


@pytest.mark.parametrize("order", [*permutations(FAMILY)], ids=lambda _: "")
def test_parents_are_found_in_whatever_order_sessions_are_met(order: tuple[Card, ...]) -> None:
    """And whoever was told something else before is named, to be told anew."""
    kin, told = Kin(), {}
    for one in order:
        told[one.session_id] = kin.parent(one)
        for other in kin.put(one.session_id, one):
            told[other] = kin.parent(next(each for each in FAMILY if each.session_id == other))
        told[one.session_id] = kin.parent(one)

    assert told == PARENTS


def test_a_parent_that_is_gone_is_named_by_what_is_known() -> None:
    """Its children are told."""
    kin = Kin()
    for one in FAMILY:
        kin.put(one.session_id, one)

    assert kin.put("origin", None) == {"fork", "agent-1"}
    assert kin.parent(FAMILY[1]) == (None, None)
    assert kin.parent(FAMILY[2]) == ("origin", None)


def test_nothing_new_tells_nobody() -> None:
    """A session that only grew is no news to its kin."""
    kin = Kin()
    for one in FAMILY:
        kin.put(one.session_id, one)
    assert kin.put("origin", msgspec.structs.replace(FAMILY[0], messages=9)) == set()

"""The order of a family, whatever agents wrote of it, and the word for how each came to be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.sessions.family import Link, Place, depth_first, relation

EARLY, LATE = "2026-01-01T10:00:00.000Z", "2026-01-01T11:00:00.000Z"


def link(session_id: str, parent: str = "", created: int = 0) -> Link:
    return Link(session_id, parent, created, subagent=False)


def outline(places: list[Place]) -> str:
    return " ".join(f"{one.session_id}{one.depth}" for one in places)


def test_children_follow_their_parent_the_oldest_first() -> None:
    """S1.16: depth first; of one age the ids decide, so that the order is always the same."""
    below = [link("c", "a", 2), link("b", "a", 3), link("e", "a", 2), link("d", "c", 9)]
    assert outline(depth_first([link("a")], below)) == "a0 c1 d2 e1 b1"


names = st.sampled_from("abcdefgh")


@given(st.dictionaries(names, st.tuples(names | st.just(""), st.integers(0, 3))), names)
def test_any_links_at_all_have_an_order(held: dict[str, tuple[str, int]], root: str) -> None:
    """Each that hangs on the root comes once, one step below a parent that came before it."""
    links = [link(one, parent, at) for one, (parent, at) in held.items()]
    places = depth_first([link(root)], links)
    seen: dict[str, int] = {}
    for one in places:
        assert one.session_id not in seen
        assert one.depth == (seen[one.parent] + 1 if one.parent else 0)
        seen[one.session_id] = one.depth
    assert all(one.session_id in seen for one in links if one.parent in seen)
    assert places == depth_first([link(root)], reversed(links))


def row(created: str = LATE, modified: str = EARLY, **more: Any) -> dict[str, Any]:
    return {"createdAt": created, "modifiedAt": modified, **more}


@pytest.mark.parametrize(
    ("began", "ended", "carries_on", "how"),
    [
        (EARLY, LATE, True, "resumed"),  # a copy whose times are its origin's
        (LATE, EARLY, False, "fork"),
        (LATE, EARLY, None, "resumed"),
        (EARLY, EARLY, None, "resumed"),
        (EARLY, LATE, None, "fork"),
        (LATE, "no time", None, "fork"),
        ("no time", EARLY, None, "fork"),
    ],
)
def test_messages_tell_before_times_do(
    began: str, ended: str, carries_on: bool | None, how: str
) -> None:
    """S1.16: resumed is what goes on where its parent ended; without words in common, by time."""
    above = row(modified=ended)
    assert relation(row(began), above, named=True, carries_on=carries_on) == how

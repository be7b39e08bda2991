"""Who came from whom: forks, copies, sub-agents, met in any order (S1.16)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.sessions.family import ParentIndex
from indexerd.sessions.info import SessionInfo

CARD = msgspec.convert(
    (
        *("claude", "/r/p/a.jsonl", "a", "/p", "2026-01-11T10:00:00.000Z", None, 1, 0, 0),
        *(None, 0, None, "", 0, 0, False, False, 0, 0, 0),
    ),
    SessionInfo,
)


def card(name: str, **fields: Any) -> SessionInfo:
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
def test_parents_are_found_in_whatever_order_sessions_are_met(
    order: tuple[SessionInfo, ...],
) -> None:
    """And whoever was told something else before is named, to be told anew."""
    kin, told = ParentIndex(), {}
    for one in order:
        told[one.session_id] = kin.parent(one)
        for other in kin.put(one.session_id, one):
            told[other] = kin.parent(next(each for each in FAMILY if each.session_id == other))
        told[one.session_id] = kin.parent(one)

    assert told == PARENTS


def test_a_parent_that_is_gone_is_named_by_what_is_known() -> None:
    """Its children are told."""
    kin = ParentIndex()
    for one in FAMILY:
        kin.put(one.session_id, one)

    assert kin.put("origin", None) == {"fork", "agent-1"}
    assert kin.parent(FAMILY[1]) == (None, None)
    assert kin.parent(FAMILY[2]) == ("origin", None)


def fork(name: str, born_ms: int, **fields: Any) -> SessionInfo:
    """A session of opencode that begins as all of its copies do."""
    usual = {"agent": "opencode", "path": f"/d/opencode.db/{name}", "first": "f"}
    return card(name, born_ms=born_ms, **(usual | fields))


COPIES = [
    fork("o", 10, agent_title="Cache"),
    fork("f", 20, agent_title="Cache (fork #1)", fork_of="Cache"),
    fork("g", 30, agent_title="Cache (fork #1)", fork_of="Cache"),
    fork("h", 40, agent_title="Cache (fork #2)", fork_of="Cache (fork #1)"),
    fork("i", 50, agent_title="Cache (fork #3)", fork_of="Cache (fork #2)"),
    fork("j", 60, agent_title="Another name"),
    fork("k", 5, agent_title="Cache", first="another beginning"),
    fork("l", 70, agent_title="Cache (fork #1)", fork_of="Cache", path="/e/opencode.db/l"),
]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_fork_of_opencode_names_its_parent_in_its_title(backwards: bool) -> None:
    """S1.16: of older copies in one database the one so called; of several none."""
    kin = ParentIndex()
    for one in reversed(COPIES) if backwards else COPIES:
        kin.put(one.session_id, one)

    found = {one.session_id: kin.parent(one).session_id for one in COPIES}
    parents = {"f": "o", "g": "o", "h": None, "i": "h"}
    assert found == dict.fromkeys("ojkl") | parents


def test_a_renamed_parent_is_found_where_no_other_can_be_it() -> None:
    """S1.16: titles change; a sibling is no parent, and those whom it concerns are told."""
    kin, (origin, first, second) = ParentIndex(), COPIES[:3]
    for one in (origin, first):
        kin.put(one.session_id, one)
    renamed = msgspec.structs.replace(origin, agent_title="Redis")
    assert kin.put("o", renamed) == {"f"}
    assert kin.parent(first).session_id == "o"
    assert kin.parent(msgspec.structs.replace(first, fork_of="")).session_id == "o"
    kin.put("g", second)
    assert kin.parent(second).session_id is None
    kin.put("o", None)
    assert kin.parent(second).session_id is None


def test_nothing_new_tells_nobody() -> None:
    """A session that only grew is no news to its kin."""
    kin = ParentIndex()
    for one in FAMILY:
        kin.put(one.session_id, one)
    assert kin.put("origin", msgspec.structs.replace(FAMILY[0], messages=9)) == set()


# With the id for a name, as its end, and otherwise; no two sessions have a file of one name.
NAMES = {"a": ("a", "t_a"), "b": ("b", "x-b"), "x_y_b": ("x_y_b", "c.d"), "other": ("c_a", "o")}
PLACES = st.sampled_from(["/r/p", "/r/q"])


def _file(names: list[str]) -> st.SearchStrategy[str]:
    return st.builds("{}/{}.jsonl".format, PLACES, st.sampled_from(names))


FILES = _file([name for names in NAMES.values() for name in names])
STEPS = st.sampled_from([*NAMES]).flatmap(
    lambda one: st.tuples(st.just(one), st.none() | _file([*NAMES[one]]), FILES, st.none() | FILES)
)


@given(st.lists(STEPS, max_size=12))
def test_a_file_is_found_by_its_path_or_its_name(
    steps: list[tuple[str, str | None, str, str | None]],
) -> None:
    """S1.16: a parent named by its file is a session of that path, or else of that file name."""
    kin, held = ParentIndex(), dict[str, SessionInfo]()
    for session_id, path, asked, parent in steps:
        one = None if path is None else card(session_id, path=path, parent=parent)
        was = {other: kin.parent(each).session_id for other, each in held.items()}
        told = kin.put(session_id, one)
        held.pop(session_id, None)
        held |= {} if one is None else {session_id: one}
        now = {other: kin.parent(each).session_id for other, each in held.items()}
        changed = {other for other in held if other in was and was[other] != now[other]}
        assert changed <= told | {session_id}
        found = kin.parent(card("asking", parent=asked)).session_id
        paths = {each.session_id for each in held.values() if each.path == asked}
        name = asked.rpartition("/")[2]
        names = {each.session_id for each in held.values() if each.path.endswith(f"/{name}")}
        assert (found in (paths or names)) if paths or names else found is None

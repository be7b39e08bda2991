"""The tree as a list: order, depth, filters, circles, repeats, and sizes."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.events import Entry, Kind
from indexerd.sessions.branches import Tip, summary_rows, tips
from indexerd.sessions.state import ROOT
from indexerd.sessions.tree import (
    TEXT_MAX,
    sketch,
    wanted,
)
from tests.sessions.tree_sessions import (
    all_nodes,
    chain,
    entry,
    line,
    reader,
    said,
    session,
    state_of,
)


def ids(found: list[dict[str, Any]]) -> list[str]:
    """The ids of nodes."""
    return [node["id"] for node in found]


def told(*lines: bytes, mode: str = "all", search: str = "", **labels: str) -> list[dict[str, Any]]:
    """The nodes of a small session."""
    data = session(*lines)
    return all_nodes(state_of(data), data, wanted(mode, search), **labels)


# -- order ---------------------------------------------------------------------------------------


def test_children_stand_oldest_first_and_roots_as_in_the_file() -> None:
    """S1.6: children by date, stably; roots, orphans and self-parents in the file's order."""
    found = told(
        said("r1", None, "user", at=50),
        said("late", "r1", "user", at=40),
        said("early", "r1", "user", at=10),
        said("same", "r1", "user", at=10),
        said("under", "late", "user", at=1),
        said("orphan", "nobody", "user", at=3),
        said("self", "self", "user", at=2),
        said("r2", None, "user", at=1),
    )
    assert [(node["id"], node["depth"], node["parentId"]) for node in found] == [
        ("r1", 0, None),
        ("early", 1, "r1"),
        ("same", 1, "r1"),
        ("late", 1, "r1"),
        ("under", 2, "late"),
        ("orphan", 0, None),
        ("self", 0, None),
        ("r2", 0, None),
    ]


def test_a_date_that_is_none_equals_every_other() -> None:
    """formats.md 1.6: such an entry stays where the file has it."""
    odd = {**dict.fromkeys(("type", "id"), "x"), "parentId": "r", "timestamp": "soon"}
    found = told(
        said("r", None, "user"),
        said("b", "r", "user", at=2),
        line(**odd),
        said("a", "r", "user", at=3),
    )
    assert ids(found) == ["r", "b", "x", "a"]


def test_an_id_that_repeats_stands_once_for_each_of_its_lines() -> None:
    """formats.md 1.6: the last line counts, and what is below it is shown each time."""
    found = told(
        said("a", None, "user", "first"),
        said("b", "a", "user"),
        said("c", "b", "user"),
        said("b", "a", "user", "again"),
    )
    assert [(node["id"], node["depth"], node["ordinal"]) for node in found] == [
        ("a", 0, 0),
        ("b", 1, 3),
        ("c", 2, 2),
        ("b", 1, 3),
        ("c", 2, 2),
    ]


def test_repeats_below_repeats_do_not_grow_without_end() -> None:
    """S1.7: every line doubled, 200 deep: 2 to the power of 200 nodes are not listed."""
    pairs = [(str(n), str(n - 1) if n else None) for n in range(200)]
    lines = [said(one, above, "user") for one, above in pairs for _ in (1, 2)]
    found = told(*lines)
    assert set(ids(found)) == {one for one, _ in pairs}
    assert len(found) <= 3 * len(lines)


def test_circles_are_named_and_shown_once() -> None:
    """S1.7: a circle of parents is reported, ends every walk, and loses no entry."""
    data = session(
        said("free", None, "user"),
        said("a", "c", "user"),
        said("b", "a", "user"),
        said("tail", "b", "user"),
        said("c", "b", "user"),
    )
    state = state_of(data)
    assert state.cycles() == ["a", "c", "b"]
    assert [(node["id"], node["depth"]) for node in all_nodes(state, data)] == [
        ("free", 0),
        ("a", 0),
        ("b", 1),
        ("tail", 2),
        ("c", 2),
    ]
    found = {state.id(tip.row): tip for tip in tips(state, {})}
    assert {"free", "tail", "c"} == set(found)
    assert (found["tail"].entries, found["tail"].users) == (4, 4)
    assert state.id(found["tail"].parting) == "b"


def test_a_chain_of_ten_thousand_is_walked_without_recursion() -> None:
    """S1.6: depth is not limited by anybody's stack."""
    data = session(*chain(f"{n:08x}" for n in range(10_000)))
    state = state_of(data)
    found = all_nodes(state, data)
    assert [node["depth"] for node in found] == list(range(10_000))
    assert all(node["active"] for node in found)
    assert tips(state, {}) == [Tip(9_999, 10_000, 10_000, ROOT, 9_999, ROOT)]


# -- filters and words ---------------------------------------------------------------------------


TOOL = {"type": "toolCall", "id": "t", "name": "bash", "arguments": {"command": "ls src"}}


def call(entry_id: str, parent: str, **more: Any) -> bytes:
    """An answer that only calls a tool."""
    message = {"role": "assistant", "content": [TOOL], "stopReason": "toolUse", **more}
    return entry("message", entry_id, parent, message=message)


MIXED = [
    entry("model_change", "model", None, provider="p", modelId="m-1"),
    entry("thinking_level_change", "level", "model", thinkingLevel="high"),
    said("ask", "level", "user", "Please LIST the files"),
    call("call", "ask"),
    said("result", "call", "toolResult", "a.py"),
    said("answer", "result", "assistant", "One file: a.py", stopReason="stop"),
    entry("custom", "state", "answer", customType="ext", data={"n": 1}),
    entry("custom_message", "note", "state", customType="ext", content="hidden", display=False),
    entry("label", "mark", "note", targetId="answer", label="good"),
    entry("session_info", "named", "mark", name="Files"),
    entry("usage", "usage", "named", kind="cache_warm"),
    entry("context_edit", "edit", "usage", targetId="ask", replacement=None),
    call("broken", "edit", stopReason="error", errorMessage="the model is down"),
    entry("branch_summary", "left", "broken", fromId="x", summary="It failed."),
    entry("compaction", "short", "left", summary="All of it.", tokensBefore=9),
    entry("something_new", "new", "short"),
    call("last", "new"),
]
HIDDEN = {"model", "level", "state", "mark", "named", "usage", "edit", "call"}


@pytest.mark.parametrize(
    ("mode", "hidden"),
    [
        ("all", set()),
        ("default", HIDDEN),
        ("no-tools", {*HIDDEN, "result"}),
    ],
)
def test_filters_hide_what_pis_do(mode: str, hidden: set[str]) -> None:
    """S1.35: settings go, answers that only call tools go unless they failed or are current."""
    everything = ids(told(*MIXED))
    assert [one for one in everything if one not in hidden] == ids(told(*MIXED, mode=mode))


def test_filters_pick_users_and_labels() -> None:
    """S1.30, S1.31, S1.35: human messages; labelled entries, with the user's own labels, too."""
    assert ids(told(*MIXED, mode="user-only")) == ["ask"]
    assert ids(told(*MIXED, mode="labeled-only")) == ["answer"]
    mine = told(*MIXED, mode="labeled-only", ask="why", answer="better", call="hidden anyway")
    assert [(node["id"], node["label"]) for node in mine] == [("ask", "why"), ("answer", "better")]


def test_the_words_of_a_search_must_all_be_found() -> None:
    """S1.35: in any case and order, in text, label and role."""
    assert ids(told(*MIXED, search="files list")) == ["ask"]
    assert ids(told(*MIXED, search="FILE a.py assistant")) == ["answer"]
    assert ids(told(*MIXED, search="good", mode="default")) == ["answer"]
    assert ids(told(*MIXED, search="branch summary")) == ["left"]
    assert ids(told(*MIXED, search="files nothing")) == []


def test_a_search_goes_through_what_pi_goes_through() -> None:
    """S1.35: summaries of branches, notes, names, labels and commands in full; no compaction."""
    long = "word " * 100
    run = {"role": "bashExecution", "command": f"{long}bashed", "output": f"{long}printed"}
    lines = [
        entry("branch_summary", "left", None, fromId="x", summary=f"{long}summed"),
        entry("custom_message", "note", "left", customType="ext", content=f"{long}noted"),
        entry("session_info", "named", "note", name=f"{long}named"),
        entry("label", "mark", "named", targetId="nobody", label=f"{long}labelled"),
        entry("message", "run", "mark", message=run),
        entry("compaction", "short", "run", summary="compacted", tokensBefore=9),
        said("ask", "short", "user", f"{long}asked"),
    ]
    hits = {
        "summed": ["left"],
        "noted": ["note"],
        "named": ["named"],
        "bashed": ["run"],
        "title word": ["named"],
        "compacted": [],
        "compaction": ["short"],
        "asked": [],
        "printed": [],
    }
    assert hits == {words: ids(told(*lines, search=words)) for words in hits}
    assert ids(told(*lines, search="labelled")) == ["mark"]


def test_what_an_agent_said_in_a_humans_name_is_hidden_by_default() -> None:
    """S1.35: for agents that tell their model things as if a user had said them."""
    told = Entry("x", Kind.OTHER, "message", "user", "", ("<environment_context>",))
    assert sketch(told).quiet
    assert not sketch(replace(told, role="unheard of")).quiet


def test_depth_counts_what_is_shown_and_parents_are_real() -> None:
    """S1.35: a hidden entry's children move up; `parentId` still names it."""
    found = {node["id"]: node for node in told(*MIXED, mode="default")}
    assert (found["ask"]["depth"], found["ask"]["parentId"]) == (0, "level")
    assert (found["result"]["depth"], found["result"]["parentId"]) == (1, "call")
    assert (found["note"]["depth"], found["note"]["display"]) == (3, False)


def test_the_leaf_asked_for_marks_the_path() -> None:
    """S1.35, S1.36: the path to any tip can be looked at; nothing is changed by it."""
    data = session(
        said("a", None, "user", at=1),
        said("b", "a", "user", at=2),
        call("c", "a"),
        said("d", "c", "user", at=4),
    )
    state = state_of(data)
    seen = state.still(state.row("b"))
    assert [node["id"] for node in all_nodes(seen, data) if node["active"]] == ["a", "b"]
    assert [node["id"] for node in all_nodes(state, data) if node["active"]] == ["a", "c", "d"]
    at_call = state.still(state.row("c"))
    assert "c" in ids(all_nodes(at_call, data, wanted("default", "")))
    assert "c" not in ids(all_nodes(state, data, wanted("default", "")))


def test_a_copy_stays_as_it_is() -> None:
    """A state that goes on changes nothing for who looks at its copy."""
    whole = session(*chain("abcdef"))
    half = whole.index(b'{"type":"message","id":"d"')
    state = state_of(whole[:half])
    before = state.encode()
    copy = state.still()
    rest = state_of(whole)
    for row in range(3, 6):
        state.add(rest.ids[row], rest.ids[row - 1], rest.codes[row], half, 1)
    assert before == copy.encode()
    assert (copy.leaf_id, state.leaf_id) == ("c", "f")


TEXTS = st.text(max_size=400) | st.sampled_from(["\x1b[31mred\x07", "a\nb\tc", "\ud800"])


@given(TEXTS, TEXTS, TEXTS)
def test_a_sketch_is_safe_to_print(kind: str, role: str, text: str) -> None:
    """X9: one line of bounded length without what could act on a terminal."""
    one = sketch(Entry("x", Kind.ASSISTANT, kind, role, text, (text,)))
    for shown in (one.type, one.role or "", one.text, one.timestamp):
        kinds = {unicodedata.category(char) for char in shown.replace("\u200c", "")}
        assert not kinds & {"Cc", "Cs", "Co", "Zl", "Zp"}
        assert len(shown) <= TEXT_MAX


# -- branch summaries ----------------------------------------------------------------------------


def gists(*lines: bytes) -> dict[str, str]:
    """What is told of each branch that something is told of."""
    data = session(*lines)
    state = state_of(data)
    read = reader(state, data)
    summaries = {row: read(row) for row in summary_rows(state)}
    return {
        state.id(tip.row): "".join(summaries[tip.summary].texts)
        for tip in tips(state, summaries)
        if tip.summary != ROOT
    }


LEFT = [said("a", None, "user"), said("b", "a", "assistant", "x"), said("c", "b", "user")]


@pytest.mark.parametrize("named", ["c", "a", "root", "nobody"])
def test_a_summary_tells_of_the_branch_that_was_left(named: str) -> None:
    """S1.15, S1.29: whether `fromId` is the old leaf (0.87) or where the user went (before)."""
    summary = entry("branch_summary", "s", "a", fromId=named, summary="Tried c.")
    assert gists(*LEFT, summary, said("d", "s", "user")) == {"c": "Tried c."}


def test_nothing_is_told_of_a_branch_that_nobody_summed_up() -> None:
    """S1.29: no summary, an empty one, or one that leaves nothing: no gist."""
    assert gists(*LEFT, said("d", "a", "user")) == {}
    assert gists(*LEFT, entry("branch_summary", "s", "a", fromId="c", summary="")) == {}
    onward = entry("branch_summary", "s", "c", fromId="b", summary="Went on.")
    assert gists(*LEFT, onward) == {}


def test_a_branch_that_was_left_twice_has_the_newer_gist() -> None:
    """S1.29: the summary nearest to the tip counts."""
    first = entry("branch_summary", "s", "a", fromId="c", summary="one")
    more = [said("e", "c", "user"), entry("branch_summary", "t", "a", fromId="e", summary="two")]
    assert gists(*LEFT, first, *more) == {"e": "two"}

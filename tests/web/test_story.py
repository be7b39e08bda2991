"""The tree as a story: asks, the work between them folded, depth only where it parts (issue 7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.events import TURN_SHIFT, Entry, Turn
from indexerd.sessions.state import ROOT, SessionState
from indexerd.web import story as core
from indexerd.web.story import Beat, Node, Story, kept_rows, node_of, story_of
from tests.sessions.tree_sessions import chain, entry, reader, said, session, state_of


def cut(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text[:most]


def nodes_of(state: SessionState, data: bytes, room: int = 500) -> dict[int, Node]:
    """A node for each row that a story keeps."""
    read, names = reader(state, data), dict[str, str]()
    return {
        row: node_of(state, row, read(row), room, cut=cut, names=names) for row in kept_rows(state)
    }


def node(one: Entry, room: int, turn: Turn = Turn.OPEN, names: Any = None) -> Node:
    """The node of an entry that stands alone."""
    state: Any = SimpleNamespace(codes=[turn << TURN_SHIFT])
    return node_of(state, 0, one, room, cut=cut, names={} if names is None else names)


def told(
    *entries: bytes, leaf: str | None = None, gists: dict[str, str] | None = None, room: int = 500
) -> Story:
    """The story of a session of these entries."""
    data = session(*entries)
    state = state_of(data)
    if leaf is not None:
        state.move_leaf(leaf)
    named = {state.index[tip]: (text, "agent") for tip, text in (gists or {}).items()}
    return story_of(state, nodes_of(state, data, room), state.labels, named)


def path(story: Story, place: int | None = None) -> list[str]:
    """The ids from the root to an entry."""
    found, place = [], story.leaf if place is None else place
    while place >= 0:
        found.insert(0, story.nodes[place].id)
        place = story.nodes[place].above
    return found


def told_ids(story: Story, beat: Beat) -> list[str]:
    """The entries of a beat."""
    return [story.nodes[place].id for place in range(beat.first, beat.last + 1)]


def shape(story: Story) -> list[tuple[str, int, list[str]]]:
    """Every beat: its kind, its depth, its entries."""
    return [(beat.kind, beat.depth, told_ids(story, beat)) for beat in story.beats]


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """A block of an answer that calls a tool."""
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def test_work_between_asks_is_one_beat_that_says_how_much() -> None:
    """Answers, calls by name, failures, tokens and time of what followed an ask."""
    usage = {"input": 9, "output": 40, "cacheRead": 0, "cacheWrite": 0}
    calls: dict[str, Any] = {
        "content": [call("bash", "1", command="ls"), call("bash", "2", command="cat")]
    }
    entries = (
        said("a", None, "user", "List the files.", at=1),
        said("b", "a", "assistant", usage=usage, at=2, stopReason="toolUse", **calls),
        said("c", "b", "toolResult", "x", toolCallId="1", toolName="bash", isError=True, at=3),
        said("d", "c", "assistant", "There are two.", usage=usage, at=61, stopReason="stop"),
        entry("model_change", "e", "d", 900, provider="p", modelId="m"),
        said("f", "e", "user", "Thanks.", at=1000),
    )
    story = told(*entries)
    assert shape(story) == [("ask", 0, ["a"]), ("work", 0, ["b", "c", "d", "e"]), ("ask", 0, ["f"])]
    work = story.beats[1]
    assert (work.answers, work.calls, work.failed, work.tokens) == (1, {"bash": 2}, 1, 80)
    assert work.ms == 60_000  # the setting, a quarter of an hour later, is no work
    assert work.text == "There are two."
    assert work.active
    assert msgspec.to_builtins(story.beats[2]) == {
        "kind": "ask", "first": 5, "last": 5, "depth": 0, "active": True, "text": "Thanks.",
    }  # fmt: skip


def test_a_chain_stays_flat_and_only_a_fork_goes_deeper() -> None:
    """Depth grows where two ways were gone, and the gist stands where a branch begins (S1.29)."""
    entries = (
        said("a", None, "user", "Where to?"),
        said("b", "a", "assistant", "Two ways."),
        said("c", "b", "user", "Left."),
        said("d", "c", "assistant", "Dead end."),
        said("e", "b", "user", "Right."),
        said("f", "e", "assistant", "There."),
        said("g", "f", "user", "On."),
    )
    story = told(*entries, gists={"d": "Left was a dead end."})
    assert shape(story) == [
        ("ask", 0, ["a"]),
        ("work", 0, ["b"]),
        ("ask", 1, ["c"]),
        ("work", 1, ["d"]),
        ("ask", 1, ["e"]),
        ("work", 1, ["f"]),
        ("ask", 1, ["g"]),
    ]
    assert [(beat.begins, beat.gist) for beat in story.beats if beat.begins or beat.gist] == [
        (True, "Left was a dead end."),
        (True, ""),
    ]
    assert [beat.active for beat in story.beats] == [True, True, False, False, True, True, True]
    assert path(story) == ["a", "b", "e", "f", "g"]
    assert path(story, 3) == ["a", "b", "c", "d"]


def test_labels_and_what_is_hidden() -> None:
    """S1.31, S1.32: labelled entries are named by their beat; a hidden message tells it nothing."""
    entries = (
        entry("custom_message", "n", None, customType="x", content="psst", display=False),
        said("a", "n", "user", "Go."),
        said("b", "a", "assistant", "One."),
        entry("label", "l", "b", targetId="b", label="here"),
    )
    story = told(*entries)
    assert [node.hidden for node in story.nodes] == [True, False, False, False]
    assert "psst" not in "".join(beat.text for beat in story.beats)
    assert [story.nodes[place].label for place in story.beats[-1].labels] == ["here"]
    settings_alone = told(entry("model_change", "m", None, provider="p", modelId="q"))
    assert [beat.quiet for beat in settings_alone.beats] == [True]


@st.composite
def trees(draw: st.DrawFn) -> list[bytes]:
    """Entries whose parents are any, later ones and unknown ones included; ids repeat."""
    many = draw(st.integers(1, 25))
    ids = [str(draw(st.integers(0, many))) for _ in range(many)]
    roles = st.sampled_from(["user", "assistant", "toolResult"])
    above = st.one_of(st.none(), st.integers(0, many + 2).map(str))
    return [said(one, draw(above), draw(roles), "x", at=draw(st.integers(0, 50))) for one in ids]


@settings(max_examples=80, deadline=None)
@given(trees())
def test_every_entry_is_in_one_beat(entries: list[bytes]) -> None:
    """S1.7: whatever parents say, each entry stands once, below its parent, in one beat."""
    story = told(*entries)
    places = [place for beat in story.beats for place in range(beat.first, beat.last + 1)]
    assert places == list(range(len(story.nodes)))
    assert len({node.id for node in story.nodes}) == len(story.nodes)
    depths = {at: beat.depth for beat in story.beats for at in range(beat.first, beat.last + 1)}
    for place, node in enumerate(story.nodes):
        assert ROOT <= node.above < place
        if node.above != ROOT:
            assert depths[place] - depths[node.above] in (0, 1)


def test_a_tree_beyond_all_bounds_keeps_its_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many entries are told whole and stay flat; beyond a bound the newest are, and the path."""
    whole = told(*chain(map(str, range(5000))))
    assert len(whole.beats) == 5000
    assert {beat.depth for beat in whole.beats} == {0}
    monkeypatch.setattr(core, "NODES_MAX", 10)
    story = told(*chain(map(str, range(40))), leaf="20")
    kept = [int(node.id) for node in story.nodes]
    assert kept == [16, 17, 18, 19, 20, 35, 36, 37, 38, 39]
    assert (story.dropped, story.nodes[story.leaf].id) == (30, "20")
    assert story.nodes[5].above == 4  # what hung below others hangs below the nearest one kept

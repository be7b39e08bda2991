"""What `branches` says of each branch: the agent's words, ours, or what was asked there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.daemon.views import ASKS_READ
from indexerd.digests.segments import Segment, encode
from indexerd.events import Kind
from indexerd.references.inject import HEAD
from indexerd.sessions.branches import BRANCH_PREAMBLE as PREAMBLE
from indexerd.sessions.branches import asks, names, tips
from indexerd.sessions.info import info_of
from indexerd.sessions.state import SessionState
from indexerd.sessions.tree import still
from indexerd.sources.session_reader import OpenSession
from tests.sessions.taken import view
from tests.sessions.tree_sessions import entry, said, session, state_of


class Lines:
    """A session's lines, out of memory; and which of them were read."""

    def __init__(self, state: SessionState, data: bytes) -> None:
        self._state, self._data = state, data
        self.asked: list[str] = []

    def row(self, row: int) -> bytes:
        start = self._state.offsets[row]
        self.asked.append(self._state.id(row))
        return self._data[start : start + self._state.lengths[row]]

    brief = row  # none here is too long to be held


def found(entries: Sequence[bytes], home: Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """The tips by their ids, and the ids of the lines that were read for it."""
    data = session(*entries)
    state = state_of(data)
    card = info_of(state, agent="pi", path="/s.jsonl", mtime_ms=0, since=None)
    assert card is not None
    lines = Lines(state, data)
    held: Any = nullcontext(lines)
    answer = view("branches", OpenSession(card, still(state), held, {}, home), {})
    return {tip["leafId"]: tip for tip in answer["tips"]}, lines.asked


def stored(leaf: str, content: str, kind: str = "branch") -> dict[str, Any]:
    """A line of the digest sidecar."""
    return encode(Segment("x", 0, 1, content, (), (), (), "", 1, "m", leaf, kind))


def put(home: Path, *lines: Any) -> Path:
    """Write the sidecar of the session."""
    text = "".join(json.dumps(one) + "\n" for one in lines)
    (home / "s1.digest.jsonl").write_text(text)
    return home


# Two branches below b: one that was left at e, and the current one, f to g.
TREE = [
    said("a", None, "user", "Where do alerts go?"),
    said("b", "a", "assistant", "Redis or a file."),
    said("c", "b", "user", "Take\n\x1b[31m Redis."),
    said("d", "c", "assistant", "Too big."),
    said("e", "d", "user", "Smaller, then."),
    said("f", "b", "user", "Take a file."),
    said("g", "f", "assistant", "It is written."),
]
SUMMED_UP = entry("branch_summary", "s", "b", fromId="e", summary="Redis is too big.")


def test_a_branch_that_nobody_summed_up_is_told_by_its_first_question() -> None:
    """S1.29: one line of the human's own below the branch point; of the current branch nothing."""
    found_, read = found(TREE)
    left, current = found_["e"], found_["g"]
    assert (left["gist"], left["gistSource"]) == ("Take Redis.", "ask")
    assert "reason" not in left
    assert "gist" not in current
    assert "gistSource" not in current
    assert sorted(read) == ["c", "e", "g"]  # the last message of each, and the question


def test_what_the_user_asked_for_comes_first_and_then_the_agents_own(tmp_path: Path) -> None:
    """S1.27, S1.29: the sidecar's newest of this leaf; else the agent's, without pi's preamble."""
    home = put(tmp_path, stored("e", "Old."), stored("e", "Redis was tried.\nNo."), stored("g", ""))
    told = entry("branch_summary", "s", "b", fromId="e", summary=PREAMBLE + "Redis is too big.")
    for tree in (TREE, [*TREE, told, said("h", "s", "user")]):
        left = found(tree, home)[0]["e"]
        assert (left["gist"], left["gistSource"]) == ("Redis was tried.\nNo.", "digest")
    left = found([*TREE, told, said("h", "s", "user")])[0]["e"]
    assert (left["gist"], left["gistSource"]) == ("Redis is too big.", "agent")


@pytest.mark.parametrize(
    "lines",
    [
        [stored("e", "A part of it.", kind="segment")],
        [stored("d", "Of what was said before more was.")],
        [stored("b", "Of what all branches share.")],
        [stored("nobody", "x"), {"kind": "branch", "leafId": "e"}, [], "e"],
    ],
)
def test_only_a_summary_of_this_leaf_is_its_gist(tmp_path: Path, lines: list[Any]) -> None:
    """S1.29: segments, summaries of other places and unusable lines tell nothing of a branch."""
    assert found(TREE, put(tmp_path, *lines))[0]["e"]["gistSource"] == "ask"


def test_a_summary_stays_while_only_bookkeeping_follows(tmp_path: Path) -> None:
    """S1.29: a label or a name after the leaf is no more of the conversation."""
    more = [entry("session_info", "i", "e", name="n"), said("h", "g", "user", "Go on.")]
    tip = found([*TREE, *more], put(tmp_path, stored("e", "Tried.")))[0]["i"]
    assert (tip["gist"], tip["gistSource"]) == ("Tried.", "digest")


def test_a_damaged_sidecar_is_none(tmp_path: Path) -> None:
    """A10: what cannot be read there takes nothing from the answer."""
    (tmp_path / "s1.digest.jsonl").mkdir()
    assert found(TREE, tmp_path)[0]["e"]["gist"] == "Take Redis."


def test_a_question_is_the_humans_own_words() -> None:
    """S0.54, S1.29: a block of ours is not what was asked, nor is what leaves nothing to see."""
    block = f"{HEAD}\n> x\n\n---\n\nReally " + "long " * 100
    left = [said("c", "b", "user", "\u200b"), said("d", "c", "user", block)]
    tip = found([*TREE[:2], *left, *TREE[5:]])[0]["d"]
    assert tip["gist"].startswith("Really long ")
    assert len(tip["gist"]) <= 200


def test_nothing_is_told_of_a_branch_on_which_nobody_asked() -> None:
    """S1.29: an answer that was tried again; and of silence only a few lines are read."""
    again = said("c", "b", "assistant", "Another answer.")
    assert "gist" not in found([*TREE[:2], again, *TREE[5:]])[0]["c"]
    above = ["b", *(f"u{n}" for n in range(40))]
    silent = [said(f"u{n}", above[n], "user") for n in range(40)]
    tips_, read = found([*TREE[:2], *silent, *TREE[5:]])
    assert "gist" not in tips_["u39"]
    assert len([one for one in read if one.startswith("u")]) == ASKS_READ + 1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30))
def test_what_is_asked_on_a_branch_is_on_no_other(steps: list[tuple[int, bool]]) -> None:
    """S1.29: of any tree, each branch's questions are its own, oldest first, as are its names."""
    state = SessionState()
    for at, (back, human) in enumerate(steps):
        above = str(max(0, at - 1 - back)).encode() if at else None
        state.add(str(at).encode(), above, Kind.USER if human else Kind.ASSISTANT, at, 1)
    every = tips(state, {})
    told = [list(asks(state, tip)) for tip in every if tip.row in state.tips()]
    flat = [row for rows in told for row in rows]
    assert len(flat) == len(set(flat))
    assert all(rows == sorted(rows) for rows in told)
    for tip in every:
        assert state.id(tip.row) in names(state, tip)
        assert not names(state, tip) & {state.id(row) for row in state.up(tip.parting)}

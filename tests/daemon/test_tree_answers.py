"""Views of one session, and files of its branches, at the edges that real clients rarely meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.open_session import make_branch
from indexerd.errors import (
    SessionEmptyError,
    SessionUnreadableError,
)
from indexerd.protocol.params import Branch
from indexerd.sessions import tree_answers
from indexerd.sources.session_reader import OpenSession
from tests.sessions.taken import taken, view
from tests.sessions.tree_sessions import entry, said, session

TALK = [
    said("a", None, "user", "one " * 2000),
    said("b", "a", "assistant", "1"),
    said("c", "b", "user", "two"),
]


def test_an_entry_whose_line_is_lost_keeps_its_place() -> None:
    """What was too long to keep is in the tree, the path and the context, without its text."""
    data = session(*TALK)
    found = view("tree", taken(data, lost=0), {})
    tree, warnings = found["nodes"], ["1 entry is too long to be read"]
    assert found["warnings"] == warnings
    assert [(node["id"], bool(node["text"])) for node in tree] == [
        ("a", False),
        ("b", True),
        ("c", True),
    ]
    path = view("path", taken(data, lost=0), {})
    assert [one["text"] for one in path["entries"]] == ["", "1", "two"]
    assert path["warnings"] == warnings
    context = view("context", taken(data, lost=0), {})
    assert [(one["role"], one["text"]) for one in context["messages"]] == [
        ("user", ""),
        ("assistant", "1"),
        ("user", "two"),
    ]
    assert context["warnings"] == warnings


def test_the_texts_of_a_path_are_cut_only_where_they_must_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer is bounded; where that costs text, it says how much is left of each."""
    data = session(*TALK)
    whole = view("path", taken(data), {})
    assert (len(whole["entries"][0]["text"]), "textMax" in whole) == (8000, False)
    monkeypatch.setattr(tree_answers, "TEXTS_MAX", 5000)
    cut = view("path", taken(data), {})
    assert (len(cut["entries"][0]["text"]), cut["textMax"]) == (2000, 2000)


def branch(held: OpenSession, file: Path | None = None) -> dict[str, Any]:
    asked = Branch(ref="s1", leaf="c", file=str(file) if file else None)
    return make_branch(asked, held)


def test_a_branch_that_cannot_be_whole_is_not_made(tmp_path: Path) -> None:
    """An entry too long to copy, or a path of labels alone: an error, and no file."""
    target = tmp_path / "new.jsonl"
    with pytest.raises(SessionUnreadableError):
        branch(taken(session(*TALK), lost=2), target)
    label = entry("label", "l", None, targetId="a", label="x")
    with pytest.raises(SessionEmptyError):
        branch(taken(session(label)), target)
    assert not target.exists()

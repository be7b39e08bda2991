"""Views of a session and new branch files, in cases that real clients rarely meet."""

from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.open_session import make_branch
from indexerd.errors import SessionEmptyError, SessionUnreadableError
from indexerd.protocol.params import Branch
from indexerd.sessions import tree_answers
from indexerd.sources.session_reader import OpenSession
from tests.sessions.opening import opened, view
from tests.sessions.tree_sessions import entry, said, session

TALK = [
    said("a", None, "user", "one " * 2000),
    said("b", "a", "assistant", "1"),
    said("c", "b", "user", "two"),
]


def test_an_entry_without_its_line_keeps_its_place() -> None:
    """An entry too long to keep is in tree, path and context, without text."""
    data = session(*TALK)
    found = view("tree", opened(data, lost=0), {})
    tree, warnings = found["nodes"], ["1 entry is too long to be read"]
    assert found["warnings"] == warnings
    assert [(node["id"], bool(node["text"])) for node in tree] == [
        ("a", False),
        ("b", True),
        ("c", True),
    ]
    path = view("path", opened(data, lost=0), {})
    assert [entry["text"] for entry in path["entries"]] == ["", "1", "two"]
    assert path["warnings"] == warnings
    context = view("context", opened(data, lost=0), {})
    assert [(message["role"], message["text"]) for message in context["messages"]] == [
        ("user", ""),
        ("assistant", "1"),
        ("user", "two"),
    ]
    assert context["warnings"] == warnings


def test_texts_of_a_path_are_cut_only_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an answer would be too large, it says how much of each text is left."""
    data = session(*TALK)
    whole = view("path", opened(data), {})
    assert (len(whole["entries"][0]["text"]), "textMax" in whole) == (8000, False)
    monkeypatch.setattr(tree_answers, "TEXTS_MAX", 5000)
    cut = view("path", opened(data), {})
    assert (len(cut["entries"][0]["text"]), cut["textMax"]) == (2000, 2000)


def branch(opened: OpenSession, file: Path | None = None) -> dict[str, Any]:
    asked = Branch(ref="s1", leaf="c", file=str(file) if file else None)
    return make_branch(asked, "/w", opened)


def test_an_incomplete_branch_is_refused(tmp_path: Path) -> None:
    """An entry too long to copy, or a path of only labels, is an error and creates no file."""
    target = tmp_path / "new.jsonl"
    with pytest.raises(SessionUnreadableError):
        branch(opened(session(*TALK), lost=2), target)
    label = entry("label", "l", None, targetId="a", label="x")
    with pytest.raises(SessionEmptyError):
        branch(opened(session(label)), target)
    assert not target.exists()

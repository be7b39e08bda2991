"""Views of one session, and files of its branches, at the edges that real clients rarely meet."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.trees import make_branch
from indexerd.errors import (
    AccessError,
    IndexerdError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
    WriteError,
)
from indexerd.meta.newfile import create
from indexerd.protocol.params import Branch
from indexerd.sessions import views
from indexerd.sources.session_reader import OpenSession
from tests.sessions.taken import taken, view
from tests.sessions.tree_sessions import entry, said, session

TALK = [
    said("a", None, "user", "one " * 2000),
    said("b", "a", "assistant", "1"),
    said("c", "b", "user", "two"),
]


def test_an_entry_whose_line_is_lost_keeps_its_place() -> None:
    """F8: what was too long to keep is in the tree, the path and the context, without its text."""
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
    monkeypatch.setattr(views, "TEXTS_MAX", 5000)
    cut = view("path", taken(data), {})
    assert (len(cut["entries"][0]["text"]), cut["textMax"]) == (2000, 2000)


def branch(held: OpenSession, file: Path | None = None) -> dict[str, Any]:
    """Make a branch's file."""
    asked = Branch(ref="s1", leaf="c", file=str(file) if file else None)
    return make_branch(1_770_000_000.0, asked, held)


def test_a_branch_that_cannot_be_whole_is_not_made(tmp_path: Path) -> None:
    """An entry too long to copy, or a path of labels alone: an error, and no file."""
    target = tmp_path / "new.jsonl"
    with pytest.raises(SessionUnreadableError):
        branch(taken(session(*TALK), lost=2), target)
    label = entry("label", "l", None, targetId="a", label="x")
    with pytest.raises(SessionEmptyError):
        branch(taken(session(label)), target)
    assert not target.exists()


def lines_then(error: Exception) -> Iterator[bytes]:
    """Lines that end with an error."""
    yield b"one\n"
    raise error


def test_an_unfinished_file_is_taken_away(tmp_path: Path) -> None:
    """Whatever fails, the disk or the reading: nothing is left, and the error is the right one."""
    target = tmp_path / "new"
    with pytest.raises(WriteError):
        create(target, lines_then(OSError(28, "No space left on device")))
    assert not target.exists()
    with pytest.raises(ValueError, match="odd"):
        create(target, lines_then(ValueError("odd")))
    assert not target.exists()
    assert create(target, [b"one\n", b"two\n"]) == 2
    assert target.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.EACCES, AccessError, 77),
        (errno.EPERM, AccessError, 77),
        (errno.EROFS, AccessError, 77),
        (errno.ENAMETOOLONG, UsageError, 2),
        (errno.ENOSPC, WriteError, 75),
        (errno.EIO, WriteError, 75),
    ],
)
def test_a_failure_to_write_says_whether_to_try_again(
    number: int, kind: type[IndexerdError], code: int, tmp_path: Path
) -> None:
    """What the system denies, and a name that cannot be, stay so; a full disk may not."""
    with pytest.raises(kind) as failed:
        create(tmp_path / "new", lines_then(OSError(number, os.strerror(number))))
    assert (failed.value.exit_code, failed.value.retryable) == (code, code == 75)
    assert failed.value.upstream == os.strerror(number)

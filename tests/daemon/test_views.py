"""Views of one session, and files of its branches, at the edges that real clients rarely meet."""

from __future__ import annotations

import errno
import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon import views
from indexerd.daemon.trees import _write, new_id
from indexerd.errors import (
    AccessError,
    IndexerdError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
    WriteError,
)
from indexerd.meta.newfile import create
from indexerd.sources.session_reader import OpenSession, row_of
from tests.sessions.taken import taken, view
from tests.sessions.tree_sessions import entry, said, session, state_of

NOW = "2026-02-03T04:05:06.789Z"
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


def test_what_is_not_asked_for_is_not_warned_of() -> None:
    """F8: an unreadable entry that no part of the answer needs says nothing; two are counted."""
    keeps = entry("compaction", "d", "c", summary="S", firstKeptEntryId="b")
    held = taken(session(*TALK, keeps), lost=0)
    assert "warnings" not in view("context", held)
    held.state.lengths[1] = 0
    assert view("path", held)["warnings"] == ["2 entries are too long to be read"]


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


def test_nodes_beyond_the_bound_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree is cut at its end, and the answer says so."""
    monkeypatch.setattr(views, "NODES_MAX", 2)
    found = view("tree", taken(session(*TALK)), {})
    assert (len(found["nodes"]), found["truncated"]) == (2, True)
    assert "truncated" not in view("tree", taken(session(*TALK[:2])), {})


def test_a_session_without_entries_has_empty_views() -> None:
    """S1.5: no leaf, no nodes, no tips, nothing on the path; pi's level is `off`."""
    data = session()
    assert view("tree", taken(data), {}) == {"sessionId": "s1", "leafId": None, "nodes": []}
    assert view("branches", taken(data), {})["tips"] == []
    assert view("path", taken(data), {})["entries"] == []
    context = view("context", taken(data), {})
    assert (context["messages"], context["model"], context["thinkingLevel"]) == ([], None, "off")


def test_compactions_are_told_newest_first() -> None:
    """S1.21, S1.22: with what their author put into them, and the newest summary by itself."""
    odd = {"any": ["thing"]}
    more = {"firstKeptEntryId": "c", "tokensBefore": 7}
    lines = [
        entry("compaction", "d", "c", summary="S1", **more),
        entry("compaction", "e", "d", summary="S2", fromHook=True, details=odd, **more),
    ]
    found = view("context", taken(session(*TALK, *lines)), {})
    assert [one["summary"] for one in found["compactions"]] == ["S2", "S1"]
    assert found["previousSummary"] == "S2"
    newest = found["compactions"][0]
    assert (newest["details"], newest["fromHook"], newest["tokensBefore"]) == (odd, True, 7)
    assert (newest["entryId"], newest["firstKeptEntryId"]) == ("e", "c")


def test_an_entry_that_is_not_there_is_named_safely() -> None:
    """S1.5, X9: the error names it, without what could act on a terminal."""
    with pytest.raises(NotFoundError, match="no entry n0de in this session"):
        row_of(state_of(session(*TALK)), "n0\x1b[31mde")


def branch(held: OpenSession, file: Path | None = None) -> dict[str, Any]:
    """Make a branch's file."""
    return _write(NOW, "new", str(file) if file else None, held)


def test_a_branch_stands_beside_its_source(tmp_path: Path) -> None:
    """S1.16: under pi's kind of name, for its owner alone."""
    held = taken(session(*TALK), path=str(tmp_path / "old.jsonl"))
    made = branch(held)
    file = tmp_path / "2026-02-03T04-05-06-789Z_new.jsonl"
    assert made == {"sessionId": "new", "sessionFile": str(file), "entries": 3}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    header = json.loads(file.read_bytes().partition(b"\n")[0])
    assert header["parentSession"] == str(tmp_path / "old.jsonl")
    assert file.read_bytes().endswith(b"\n")
    with pytest.raises(UsageError, match="exists"):
        branch(taken(session(*TALK), path=str(tmp_path / "old.jsonl")))


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_files_of_other_agents_are_theirs_to_branch(agent: str, tmp_path: Path) -> None:
    """The error tells of the agent's own way, and no file is made."""
    held = taken(session(*TALK), path=str(tmp_path / "old.jsonl"), agent=agent)
    with pytest.raises(UsageError) as failed:
        branch(held)
    assert agent in failed.value.hint
    assert list(tmp_path.iterdir()) == []


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


def test_a_place_that_cannot_be_is_the_users_mistake(tmp_path: Path) -> None:
    """A directory that is not there, one that is a file, a name too long: usage, and no file."""
    (tmp_path / "file").touch()
    for name in ("no/new", "file/new", "n" * 300):
        with pytest.raises(UsageError):
            create(tmp_path / name, [b"one\n"])
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_new_ids_are_uuids_that_sort_by_time() -> None:
    """As pi makes them: version 7."""
    earlier, later = new_id(1_790_000_000.0), new_id(1_790_000_000.002)
    assert earlier < later
    assert uuid.UUID(earlier).version == 7
    assert uuid.UUID(later).variant == uuid.RFC_4122
    assert new_id(1_790_000_000.0) != earlier

"""Rows: which name counts, and what a session shows whose file is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexerd.agents.pi import resume_command
from indexerd.events import Header, Kind, Turn, code
from indexerd.protocol.rows import (
    Facts,
    absolute,
    gone_row,
    row_of,
)
from indexerd.sessions.info import info_of, pack, unpack
from indexerd.sessions.state import SessionState
from indexerd.times import iso_of_ms
from tests.protocol.row_cards import NOON, PATH, card, meta, written

STEM = "2026-01-11T10-00-00-000Z_id"
NAMES = [
    ("title", "user", "The user's title"),
    ("meta", "meta", "The meta name"),
    ("agent_title", "agent", "The agent's title"),
    ("first_user", "first-message", "The first question"),
]


@pytest.mark.parametrize("missing", range(16))
@pytest.mark.parametrize("blank", ["", " \n\u200b\x1b[0m"])
def test_the_order_of_names(missing: int, blank: str) -> None:
    """S0.46: the user's title, meta, the agent's own, the first message, the stem; no blank one."""
    here = {key: blank if missing >> n & 1 else text for n, (key, _, text) in enumerate(NAMES)}
    made = card(agent_title=here["agent_title"], first_user=here["first_user"])

    row = written(made, meta(name=here["meta"]), here["title"]).row

    wanted = [(text, source) for n, (_, source, text) in enumerate(NAMES) if not missing >> n & 1]
    assert (row["name"], row["nameSource"]) == (wanted[0] if wanted else (STEM, "file"))


@pytest.mark.parametrize(
    ("path", "name"),
    [("/s/x.jsonl", "x"), ("/s/.jsonl", "session"), ("/s/\x1b[0m.jsonl", "session")],
)
def test_without_any_name_it_is_the_files_stem(path: str, name: str) -> None:
    """S0.46: and where not even that can be shown, it is called a session."""
    row = written(card(path=path)).row

    assert (row["name"], row["nameSource"]) == (name, "file")


def test_the_fields_of_a_row() -> None:
    """interfaces.md 5: facts from the file, words from the meta file."""
    made = card(
        parent="../other/parent.jsonl",
        agent_title="Agent's",
        first_user="First",
        git_branch="main",
    )
    did = ((("read", 2),), (("read", ("a",)),), ("m-1",), (1, 2, 3, 4), 0.5, 60_000)
    facts = Facts(("/a",), ("/b",), *did)
    row = row_of(made, meta(), "Title", facts, resume=resume_command, parent=("parent", None)).row

    assert row == {
        "sessionId": "id",
        "agent": "pi",
        "sessionFile": PATH,
        "cwd": "/home/u/p",
        "name": "Title",
        "nameSource": "user",
        "metaName": "The meta name",
        "agentTitle": "Agent's",
        "description": "What it was about.",
        "tags": ["one", "two", "three"],
        "createdAt": "2026-01-11T10:00:00.000Z",
        "modifiedAt": "2023-11-14T22:13:20.000Z",
        "messageCount": 4,
        "userMessageCount": 2,
        "newUserMessages": 1,
        "firstUserMessage": "First",
        "parentSessionFile": "/home/u/other/parent.jsonl",
        "parentSessionId": "parent",
        "archived": False,
        "gone": False,
        "indexed": True,
        "model": "google/x",
        "updatedAt": "2026-01-11T12:00:00.000Z",
        "state": "idle",
        "leafId": "00000004",
        "version": 3,
        "compactions": 0,
        "subagent": False,
        "filesRead": ["/a"],
        "filesModified": ["/b"],
        "toolsUsed": {"read": 2},
        "toolUses": {"read": ["a"]},
        "models": ["m-1"],
        "tokens": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4},
        "costUsd": 0.5,
        "durationMs": 60_000,
        "gitBranch": "main",
        "resume": f"cd /home/u/p && pi --session {PATH}",
    }


def test_what_is_missing_is_absent_or_empty() -> None:
    """S0.33: no parent, no parent's fields; no meta file, no words of it."""
    row = written(card()).row

    assert {"parentSessionFile", "parentSessionId", "agentTitle", "metaName", "model"} & set(
        row
    ) == set()
    assert (row["indexed"], row["description"], row["tags"]) == (False, "", [])


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"turn": int(Turn.OPEN)}, "active"),
        ({"turn": int(Turn.OPEN), "answered": False}, "idle"),
        ({"turn": int(Turn.FAILED)}, "idle"),
        ({"compacted": True}, "compacted"),
        ({"turn": int(Turn.OPEN), "compacted": True}, "active"),
    ],
)
def test_states(fields: dict[str, Any], state: str) -> None:
    """S3.25: derived from the turn and the newest entry."""
    assert written(card(**fields)).row["state"] == state


@pytest.mark.parametrize(
    ("created", "activity", "shown"),
    [
        ("2026-01-11T10:00:00.000Z", NOON, ("2026-01-11T10:00:00.000Z", iso_of_ms(NOON))),
        ("2026-01-11T12:00:00+02:00", NOON, ("2026-01-11T10:00:00.000Z", iso_of_ms(NOON))),
        ("", 0, (iso_of_ms(NOON + 5000), iso_of_ms(NOON + 5000))),
        ("x" * 10**6, NOON, (iso_of_ms(NOON + 5000), iso_of_ms(NOON))),
        ("\x1b]0;pwn\x07", NOON, (iso_of_ms(NOON + 5000), iso_of_ms(NOON))),
    ],
)
def test_times_are_times(created: str, activity: int, shown: tuple[str, str]) -> None:
    """S1.43: created is the header's, modified the last thing said; else the file's own time."""
    row = written(card(created_at=created, activity_ms=activity)).row

    assert (row["createdAt"], row["modifiedAt"]) == shown


def test_aliases_are_every_name_once() -> None:
    """S0.48: a session is found by each name it has, and the summary is searched beside the row."""
    made = written(card(agent_title="Agent's", first_user="First"), meta(), "Title")
    assert made.aliases == ("Title", "The meta name", "Agent's")
    assert made.summary == "## Goal\n- a"

    assert written(card(first_user="First")).aliases == ("First",)
    assert written(card(agent_title="The meta name"), meta()).aliases == ("The meta name",)


# -- gone -------------------------------------------------------------------------------------


def test_a_file_that_is_gone_leaves_what_was_known() -> None:
    """S0.68: the row is marked gone, still resolves, and keeps its facts."""
    was = written(card(agent_title="Agent's"), meta(), files_read=("/a",)).row
    left = gone_row(was, meta(), None)

    assert left is not None
    changed = {"gone": True, "archived": True, "state": "archived", "resume": ""}
    assert left.row == was | changed
    assert was["resume"], "it could be resumed before"
    assert was["gone"] is False
    assert left.aliases == ("The meta name", "Agent's")


def test_a_meta_file_deleted_by_hand_is_forgotten() -> None:
    """S0.68: nothing that it said is left, and a title that was taken back is no name any more."""
    was = written(card(first_user="First question"), meta(), "Title").row
    left = gone_row(was, None, None)

    assert left is not None
    assert (left.row["name"], left.row["nameSource"]) == ("First question", "first-message")
    assert (left.row["indexed"], left.row["description"], left.row["tags"]) == (False, "", [])
    assert {"model", "updatedAt", "metaName"} & set(left.row) == set()
    assert (left.summary, left.aliases) == ("", ("First question",))


def test_a_meta_file_alone_makes_a_row() -> None:
    """S3.30: the session was gone before this catalog began; its meta file says what it was."""
    about = meta(
        agent="pi",
        message_count=4,
        user_message_count=2,
        first_user_message="First",
        files_read=["src/a.py", "/b"],
        files_modified=["@c.py"],
        tools_used={"read": 2},
        session_created_at="2026-01-11T09:00:00.000Z",
        session_modified_at="2026-01-11T09:30:00.000Z",
    )
    left = gone_row(None, about, None)

    assert left is not None
    row = left.row
    assert (row["sessionId"], row["sessionFile"], row["cwd"]) == ("id", PATH, "/home/u/p")
    assert (row["gone"], row["state"], row["indexed"], row["resume"]) == (
        True,
        "archived",
        True,
        "",
    )
    assert (row["createdAt"], row["modifiedAt"]) == (
        "2026-01-11T09:00:00.000Z",
        "2026-01-11T09:30:00.000Z",
    )
    assert (row["messageCount"], row["userMessageCount"], row["newUserMessages"]) == (4, 2, 0)
    assert row["filesRead"] == ["/home/u/p/src/a.py", "/b"]
    assert row["filesModified"] == ["/home/u/p/c.py"]
    assert row["toolsUsed"] == {"read": 2}


def test_without_row_and_meta_there_is_nothing_left() -> None:
    """S0.68: a title alone makes no session."""
    assert gone_row(None, None, "Title") is None


# -- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "cwd", "whole"),
    [
        ("a.py", "/p", "/p/a.py"),
        ("../x", "/p/q", "/p/x"),
        ("@a.py", "/p", "/p/a.py"),
        ("/abs/a.py", "/p", "/abs/a.py"),
        ("a.py", "", "/a.py"),
        ("a.py", "p", "/p/a.py"),
        ("../../../..", "/p", "/"),
    ],
)
def test_paths_are_made_absolute(path: str, cwd: str, whole: str) -> None:
    """interfaces.md 5: resolved against the session's cwd, never the daemon's."""
    assert absolute(path, cwd) == whole


def test_bytes_that_are_no_utf8_can_be_shown() -> None:
    """W14: a row is JSON; the path in it is for eyes."""
    name = b"/s/caf\xe9.jsonl".decode("utf-8", "surrogateescape")
    made = written(card(path=name, parent=name, cwd=name))

    assert made.row["sessionFile"] == made.row["parentSessionFile"] == "/s/caf\\xe9.jsonl"
    assert made.row["name"] == "caf\\xe9"
    assert json.dumps(made.row).encode()


# -- cards ------------------------------------------------------------------------------------


def test_a_card_is_made_of_a_state() -> None:
    """S0.33, S1.13: facts of the header, counts of the current path, and since what they count."""
    state = SessionState()
    assert info_of(state, agent="pi", path=PATH, mtime_ms=1, since=None) is None
    state.header = Header("id", "/home/u/p", "2026-01-11T10:00:00.000Z", 3, "/parent.jsonl")
    state.add(b"u1", None, code(Kind.USER, message=True), 0, 1)
    state.add(b"a1", b"u1", code(Kind.ASSISTANT, turn=Turn.ENDED, message=True), 1, 1)
    state.add(b"u2", b"a1", code(Kind.USER, message=True), 2, 1)
    state.add(b"c", b"u2", code(Kind.COMPACTION), 3, 1)

    made = info_of(state, agent="pi", path=PATH, mtime_ms=7, since="a1")

    assert made is not None
    assert (made.session_id, made.cwd, made.parent) == ("id", "/home/u/p", "/parent.jsonl")
    assert (made.users, made.new_users, made.messages, made.rows) == (2, 1, 3, 4)
    assert (made.answered, made.compacted, made.turn_state) == (True, True, Turn.OPEN)
    assert (made.leaf_id, made.modified_ms) == ("c", 7)
    assert unpack(pack(made), made.path) == made
    for bad in (b"", b"\xc1", pack(made)[:-3], b"\x90"):
        with pytest.raises(ValueError):
            unpack(bad, "")

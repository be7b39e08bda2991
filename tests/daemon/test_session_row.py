"""Rows: which name counts, and what a session shows whose file is gone."""

from __future__ import annotations

from typing import Any

import pytest

from indexerd.events import Turn
from indexerd.meta.session_row import gone_row
from indexerd.sessions.facts import absolute
from tests.daemon.row_cards import PATH, card, meta, written

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


# -- cards ------------------------------------------------------------------------------------

"""Infos and meta files of one session, and the row that is made of them."""

from __future__ import annotations

from typing import Any

import msgspec

from indexerd.agents.pi import resume_command
from indexerd.events import Turn
from indexerd.meta.model import MetaFile
from indexerd.meta.session_row import row_of
from indexerd.protocol.results import StoredRow
from indexerd.sessions.facts import Facts
from indexerd.sessions.info import SessionInfo

NOON = 1_700_000_000_000
PATH = "/home/u/.pi/agent/sessions/--home-u-p--/2026-01-11T10-00-00-000Z_id.jsonl"
# A session of two questions, field by field as `SessionInfo` has them.
INFO = msgspec.convert(
    (
        *("pi", PATH, "id", "/home/u/p", "2026-01-11T10:00:00.000Z", None, 3, NOON, NOON + 5000),
        *("00000004", int(Turn.ENDED), None, "", 4, 2, True, False, 4, 0, 0, None, 1),
    ),
    SessionInfo,
)


def info(**fields: Any) -> SessionInfo:
    """The session, with other fields."""
    return msgspec.structs.replace(INFO, **fields)


def meta(**fields: Any) -> MetaFile:
    """What a run once wrote of it."""
    held: dict[str, Any] = {
        "session_id": "id",
        "session_file": PATH,
        "name": "The meta name",
        "description": "What it was about.",
        "summary": "## Goal\n- a",
        "tags": ["one", "two", "three"],
        "cwd": "/home/u/p",
        "created_at": "2026-01-11T11:00:00.000Z",
        "updated_at": "2026-01-11T12:00:00.000Z",
        "model": "google/x",
        "last_indexed_leaf_id": "00000002",
    }
    return MetaFile(**(held | fields))


def written(
    made: SessionInfo, about: MetaFile | None = None, title: str | None = None, **facts: Any
) -> StoredRow:
    """Its row."""
    return row_of(made, about, title, Facts(**facts), resume=resume_command)

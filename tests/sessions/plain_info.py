"""The info of a session of one question and its answer."""

from __future__ import annotations

from indexerd.sessions.info import SessionInfo

INFO = SessionInfo(
    agent="pi",
    path="",
    session_id="s",
    cwd="/w",
    created_at="2026-01-01T00:00:00.000Z",
    parent=None,
    version=3,
    activity_ms=0,
    mtime_ms=0,
    leaf_id=None,
    turn=0,
    agent_title=None,
    first_user="",
    messages=2,
    users=1,
    answered=True,
    compacted=False,
    rows=2,
    bad_lines=0,
    oversized=0,
)

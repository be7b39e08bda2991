"""Which sessions Claude Code will soon delete; no other agent deletes any by itself.

When it starts, Claude Code deletes files that were last changed more than `cleanupPeriodDays` ago.
Managed settings decide alone. Else a project's settings replace the user's where Claude Code is
started in that project, and it may be started elsewhere: so the shorter period counts. 0 is refused
by Claude Code, which then deletes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from indexerd.amounts import count
from indexerd.errors import SessionUnreadableError
from indexerd.sessions.info import SessionInfo
from indexerd.sources.roots import Layout, SessionRoot
from indexerd.sources.tail import opened
from indexerd.times import DAY_MS

SOON = 7  # days
_DEFAULT = 30  # days
_READ_MAX = 1 << 20  # bytes of a settings file
_MANAGED = {"darwin": "/Library/Application Support/ClaudeCode"}.get(
    sys.platform, "/etc/claude-code"
)
_CURE = "to keep them, raise `cleanupPeriodDays` in Claude Code's settings.json, perhaps to 3650"


class _Settings(msgspec.Struct):
    days: Annotated[int, msgspec.Meta(ge=0)] | None = msgspec.field(
        default=None, name="cleanupPeriodDays"
    )


def deleted_soon(
    infos: Iterable[SessionInfo],
    roots: Sequence[SessionRoot],
    now_ms: int,
    managed: str = f"{_MANAGED}/managed-settings.json",
) -> dict[str, Any] | None:
    """Count the sessions that will be deleted soon, and say how to keep them; None: there are none.

    Reads settings, which may be on a mount that does not answer, but no session.
    """
    read, found = cache(_read), set[str]()
    files = [root for root in roots if root.layout is Layout.FILES and not root.kept]
    own = [root for root in files if root.agent == "claude"]
    for info in infos:
        root = next((root for root in own if root.contains(info.path)), None)
        if root is None or info.subagent:
            continue
        days = read(managed)
        if days is None:
            places = [f"{Path(root.sessions).parent}/settings.json"]
            if info.cwd.startswith("/"):
                places += [f"{info.cwd}/.claude/settings{local}.json" for local in ("", ".local")]
            days = _shortest(*map(read, places))
        if days and info.mtime_ms < now_ms + (SOON - days) * DAY_MS:
            found.add(info.session_id)
    if not found:
        return None
    cause = f"Claude Code will delete {count(len(found), 'session')} within {SOON} days"
    return {"sessions": len(found), "cause": cause, "cure": _CURE}


def _shortest(user: int | None, project: int | None = None, local: int | None = None) -> int:
    """Return the shortest period that may be in force; 0: nothing is deleted."""
    inside = project if local is None else local
    if 0 in (user, project, local):
        return 0
    usual = user or _DEFAULT
    return min(usual, inside or usual)


def _read(path: str) -> int | None:
    """Return the period that a settings file sets; None if it sets no valid one."""
    try:
        with opened(os.path.realpath(path)) as fd:
            return msgspec.json.decode(os.read(fd, _READ_MAX), type=_Settings).days
    except (OSError, ValueError, SessionUnreadableError):
        return None

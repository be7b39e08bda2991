"""Which sessions Claude Code will soon delete; no other agent deletes any by itself.

When it starts, Claude Code deletes the files of all projects that were last changed more than
`cleanupPeriodDays` ago. Managed settings decide alone, else the user's; those of a project, which
hardly anybody makes, are not looked for. 0 is refused by Claude Code, which then deletes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from indexerd.amounts import count
from indexerd.archive.copies import Archive, Source
from indexerd.errors import SessionUnreadableError
from indexerd.privacy.redact import shown_path
from indexerd.privacy.sanitize import escape_path
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


class _Settings(msgspec.Struct):
    days: Annotated[int, msgspec.Meta(ge=0)] | None = msgspec.field(
        default=None, name="cleanupPeriodDays"
    )


def deleted_soon(
    infos: Iterable[SessionInfo],
    roots: Sequence[SessionRoot],
    archive: Archive,
    now_ms: int,
    managed: str = f"{_MANAGED}/managed-settings.json",
    *,
    archiving: bool,
) -> dict[str, Any] | None:
    """Count the sessions without a whole copy that will be deleted soon, and say how to keep them.

    None: there are none. Reads settings, which may be on a mount that does not answer.
    """
    found, places, known = set[str](), set[str](), [*infos]
    files = [root for root in roots if root.layout is Layout.FILES and not root.kept]
    for root in [root for root in files if root.agent == "claude"]:
        place = f"{Path(root.sessions).parent}/settings.json"
        if (days := _read(managed)) is not None:
            place = managed
        elif (days := _read(place)) is None:
            days = _DEFAULT
        before = now_ms + (SOON - days) * DAY_MS if days else 0
        due = (one for one in known if one.mtime_ms < before and root.contains(one.path))
        lost = (one for one in due if not _is_copied(archive, Source(root.sessions, one.path)))
        if ids := {info.session_id for info in lost if not info.subagent}:
            found |= ids
            places.add(shown_path(escape_path(place)))
    if not found:
        return None
    cause = f"Claude Code will delete {count(len(found), 'session')} within {SOON} days"
    where = " and ".join(sorted(places))
    cure = "`indexerd archive on` keeps copies"
    if archiving:
        cure = "if the archive is full, raise `[archive] max_gb`"
    cure += f"; or set `cleanupPeriodDays` in {where}, say to 3650"
    return {"sessions": len(found), "cause": cause, "cure": cure}


def _is_copied(archive: Archive, source: Source) -> bool:
    """Whether the archive has a copy of all of a file."""
    with suppress(OSError):
        return archive.size_of(source) >= os.stat(source.path).st_size  # noqa: PTH116 - text
    return True  # it is gone already


def _read(path: str) -> int | None:
    """Return the period that a settings file sets; None if it sets no valid one."""
    try:
        with opened(os.path.realpath(path)) as fd:
            return msgspec.json.decode(os.read(fd, _READ_MAX), type=_Settings).days
    except (OSError, ValueError, SessionUnreadableError):
        return None

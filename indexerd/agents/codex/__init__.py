"""Codex: one rollout a session, in `<CODEX_HOME>/sessions/<year>/<month>/<day>`.

Three dialects have been written: bare items, items in an envelope with events beside them, and
envelopes with ordinals, whose forks only point at the history that they share.
"""

from __future__ import annotations

import shlex

from indexerd.agents.codex.human import preview
from indexerd.agents.codex.lines import base
from indexerd.agents.codex.read import read
from indexerd.agents.codex.scan import scan, scan_oversize

__all__ = ["NAME", "base", "preview", "read", "resume_command", "scan", "scan_oversize"]

NAME = "codex"
_ARCHIVED = "/archived_sessions/"  # Codex resumes nothing from there


def resume_command(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    """The shell command with which codex opens this session again."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    wanted = shlex.quote(session_id)
    back = f"{variables}codex unarchive {wanted} && " if _ARCHIVED in session_file else ""
    return f"{there}{back}{variables}codex resume {wanted}"

"""opencode: sessions in a database, or in a tree of small files; `sources` makes lines of both."""

from __future__ import annotations

import shlex

from indexerd.agents.lines import safe_line as preview
from indexerd.agents.opencode.read import read
from indexerd.agents.opencode.scan import scan, scan_oversize

__all__ = ["NAME", "base", "preview", "read", "resume_command", "scan", "scan_oversize"]

NAME = "opencode"


def base(_line: bytes) -> None:
    """A fork of opencode holds a copy of all its history."""
    return


def resume_command(session_id: str, cwd: str, _session_file: str, variables: str = "") -> str:
    """The shell command with which opencode opens this session again."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    return f"{there}{variables}opencode --session {shlex.quote(session_id)}"

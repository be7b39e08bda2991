"""opencode: sessions in a database, or in a tree of small files; `io` makes lines of both."""

from __future__ import annotations

import shlex

from indexerd.agents.opencode.read import preview, read
from indexerd.agents.opencode.skim import skim, skim_oversize

__all__ = ["NAME", "base", "preview", "read", "resume_command", "skim", "skim_oversize", "told"]

NAME = "opencode"
told = read  # there is little that it could leave out


def base(_line: bytes) -> None:
    """A fork of opencode holds a copy of all its history."""
    return


def resume_command(session_id: str, cwd: str, _session_file: str, variables: str = "") -> str:
    """The shell command with which opencode opens this session again."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    return f"{there}{variables}opencode --session {shlex.quote(session_id)}"

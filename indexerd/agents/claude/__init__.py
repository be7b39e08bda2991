"""Claude Code: one JSONL file a session, in `projects/<directory>`, sub-agents' files below it.

`lines` decodes, `human` says who spoke, `tree` where a line belongs; `scan` sees every line once
with these, and `read` takes one in full.
"""

from __future__ import annotations

import shlex

from indexerd.agents.claude.human import preview
from indexerd.agents.claude.read import read
from indexerd.agents.claude.scan import parent_of, scan, scan_oversize

__all__ = ["NAME", "base", "preview", "read", "resume_command", "scan", "scan_oversize"]

NAME = "claude"


def base(_line: bytes) -> None:
    """A fork of Claude Code holds a copy of all its history."""
    return


def resume_command(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    """The shell command with which Claude Code opens this session again; a sub-agent's parent."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    wanted = shlex.quote(parent_of(session_file) or session_id)
    return f"{there}{variables}claude --resume {wanted}"

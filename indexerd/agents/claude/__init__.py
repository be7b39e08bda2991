"""Claude Code: one JSONL file a session, in `projects/<directory>`, sub-agents' files below it.

`lines` decodes, `kinds` says who spoke, `tree` where it belongs, `origin` whose file it is,
`titles` how it is called; `skim` sees every line once with these, and `read` takes one in full,
`told` in part.
"""

from __future__ import annotations

import shlex

from indexerd.agents.claude.origin import parent_of
from indexerd.agents.claude.read import preview, read
from indexerd.agents.claude.skim import skim, skim_oversize
from indexerd.agents.claude.told import told

__all__ = [
    "NAME",
    "base",
    "preview",
    "read",
    "resume_command",
    "skim",
    "skim_oversize",
    "told",
]

NAME = "claude"


def base(_line: bytes) -> None:
    """A fork of Claude Code holds a copy of all its history."""
    return


def resume_command(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    """The shell command with which Claude Code opens this session again; a sub-agent's parent."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    wanted = shlex.quote(parent_of(session_file) or session_id)
    return f"{there}{variables}claude --resume {wanted}"

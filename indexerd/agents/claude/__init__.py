"""Claude Code: one JSONL file a session, in `projects/<directory>`, sub-agents' files below it.

`lines` decodes, `human` says who spoke, `tree` where a line belongs; `scan` sees every line once
with these, and `read` takes one in full. A fork holds a copy of all its history.
"""

from __future__ import annotations

from indexerd.agents.base import Adapter
from indexerd.agents.claude.human import preview
from indexerd.agents.claude.lines import BEHIND
from indexerd.agents.claude.read import read
from indexerd.agents.claude.scan import parent_of, scan
from indexerd.agents.json_lines import in_directory

__all__ = ["ADAPTER", "preview", "read", "resume_command", "scan"]


def resume_command(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    """The shell command with which Claude Code opens this session again; a sub-agent's parent."""
    wanted = parent_of(session_file) or session_id
    return in_directory(cwd, f"{variables}claude --resume", wanted)


ADAPTER = Adapter(scan, read, preview, resume_command, BEHIND)

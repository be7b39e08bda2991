"""Claude Code: one JSONL file a session, in `projects/<directory>`, sub-agents' files below it."""

from __future__ import annotations

from indexerd.agents.base import Adapter
from indexerd.agents.claude.parse_entry import read
from indexerd.agents.claude.parse_tree import parent_of, scan
from indexerd.agents.json_lines import in_directory


def resume_command(session_id: str, cwd: str, session_file: str, variables: str = "") -> str:
    wanted = parent_of(session_file) or session_id
    return in_directory(cwd, f"{variables}claude --resume", wanted)


ADAPTER = Adapter(scan, read, resume_command)

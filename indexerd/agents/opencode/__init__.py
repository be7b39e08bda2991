"""opencode: sessions in a database, or in a tree of small files; `sources` makes lines of both.

A fork holds a copy of all its history.
"""

from __future__ import annotations

from indexerd.agents.base import Adapter
from indexerd.agents.json_lines import in_directory
from indexerd.agents.opencode.parse_entry import read
from indexerd.agents.opencode.parse_tree import scan


def resume_command(session_id: str, cwd: str, _session_file: str, variables: str = "") -> str:
    return in_directory(cwd, f"{variables}opencode --session", session_id)


ADAPTER = Adapter(scan, read, resume_command)

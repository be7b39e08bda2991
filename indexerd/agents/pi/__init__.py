"""pi: one JSONL file a session, in `<agent dir>/sessions`, its meta files beside that."""

from __future__ import annotations

from collections.abc import Mapping

from indexerd.agents.base import Adapter
from indexerd.agents.json_lines import in_directory
from indexerd.agents.pi.parse_entry import read
from indexerd.agents.pi.parse_tree import scan


def resume_command(_session_id: str, cwd: str, session_file: str, _variables: str = "") -> str:
    return in_directory(cwd, "pi --session", session_file)


def agent_dirs(env: Mapping[str, str], home: str) -> list[str]:
    """Find the agent directories by pi's own rule."""
    given = env.get("PI_CODING_AGENT_DIR", "")
    if given:
        return [home + given[1:] if given == "~" or given.startswith("~/") else given]
    return [f"{home}/.pi/agent"]


ADAPTER = Adapter(scan, read, resume_command)

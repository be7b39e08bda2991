"""pi: one JSONL file a session, in `<agent dir>/sessions`, its meta files beside that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from indexerd.agents.pi.lines import preview
from indexerd.agents.pi.read import read
from indexerd.agents.pi.scan import scan, scan_oversize

__all__ = [
    "NAME",
    "agent_dirs",
    "base",
    "preview",
    "read",
    "resume_command",
    "scan",
    "scan_oversize",
]

NAME = "pi"


def base(_line: bytes) -> None:
    """A fork of pi holds a copy of all its history."""
    return


def resume_command(_session_id: str, cwd: str, session_file: str, _variables: str = "") -> str:
    """The shell command with which pi opens this session again."""
    there = f"cd {shlex.quote(cwd)} && " if cwd else ""
    return f"{there}pi --session {shlex.quote(session_file)}"


def agent_dirs(env: Mapping[str, str], home: str) -> list[str]:
    """The agent directories, by pi's own rule."""
    given = env.get("PI_CODING_AGENT_DIR", "")
    if given:
        return [home + given[1:] if given == "~" or given.startswith("~/") else given]
    return [f"{home}/.pi/agent"]

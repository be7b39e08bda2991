"""pi: one JSONL file per session in `<agent dir>/sessions`, with meta files next to it."""

from __future__ import annotations

from collections.abc import Mapping


def agent_dirs(env: Mapping[str, str], home: str) -> list[str]:
    """Find the agent directories by pi's own rule."""
    given = env.get("PI_CODING_AGENT_DIR", "")
    if given:
        return [home + given[1:] if given == "~" or given.startswith("~/") else given]
    return [f"{home}/.pi/agent"]

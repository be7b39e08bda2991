"""What people read for the names in answers, on pages and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_MATCH = "no session matches these filters"  # a warning of `search`
_PLACES = {"name": "title", "cwd": "directory"}
_BY_ROLE = {"user": "your prompt", "assistant": "answer"}
_WHO = {"user": "You", "reply": "You", "assistant": "Answer"}
_WHO |= {"inserted": "Inserted by the client", "tool": "Result", "toolResult": "Result"}
_WHO |= {"bash": "Shell command", "custom": "Client", "branch_summary": "Abandoned branch"}


def place(hit: Mapping[str, Any]) -> str:
    """Say what of a session a hit of a search is in."""
    field = str(hit["field"])
    return _BY_ROLE.get(hit.get("role") or "", _PLACES.get(field, field))


def who(kind: str) -> str:
    """Say who or what an entry's kind, or a message's role, stands for."""
    return _WHO.get(kind) or kind.replace("_", " ").capitalize()

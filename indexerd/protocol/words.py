"""What people read for the names in answers, on pages and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexerd.times import iso_ms, iso_of_ms

FORK = (
    "copied messages count here; their tokens, cost, tools and files count in the original,"
    " while that is on this machine"
)
NO_MATCH = "no session matches these filters"  # a warning of `search`
_PLACES = {"name": "title", "cwd": "directory"}
_BY_ROLE = {"user": "your prompt", "assistant": "answer"}
_WHO = {"user": "You", "reply": "You", "assistant": "Answer"}
_WHO |= {"inserted": "Inserted by the agent", "tool": "Result", "toolResult": "Result"}
_WHO |= {"bash": "Shell command", "custom": "Note", "branch_summary": "Abandoned branch"}


def place(hit: Mapping[str, Any]) -> str:
    """Say what of a session a hit of a search is in."""
    field = str(hit["field"])
    return _BY_ROLE.get(hit.get("role") or "", _PLACES.get(field, field))


def who(kind: str) -> str:
    """Say who or what an entry's kind, or a message's role, stands for."""
    return _WHO.get(kind) or kind.replace("_", " ").capitalize()


def began(row: Mapping[str, Any]) -> str:
    """Return when a session began: messages that were copied may be older than its file."""
    first = iso_ms(str(row.get("modifiedAt") or "")) - int(row.get("durationMs") or 0)
    created = str(row.get("createdAt") or "")
    return iso_of_ms(first) if 0 < first < iso_ms(created) else created

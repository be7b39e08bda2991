"""Contexts of so many tokens, and lines of pi's sessions with calls and compactions."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from indexerd.events import Entry, Kind
from indexerd.sessions.context import ContextEntry, ContextMessage
from tests.sessions.tree_sessions import entry, said

OLD = {"readFiles": ["r0", "w1"], "modifiedFiles": ["m0"]}
KINDS = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "toolResult": Kind.TOOL,
    "bashExecution": Kind.BASH,
    "system": Kind.SYSTEM,
    "compactionSummary": Kind.COMPACTION,
    "branchSummary": Kind.BRANCH_SUMMARY,
}


def step(place: int, role: str, size: int = 0, **more: Any) -> ContextEntry:
    """An entry of so many tokens; of no role one that the model does not see."""
    kind = KINDS.get(role, Kind.SETTING)
    held = Entry(f"e{place}", kind, "x", role or None, "", ("x" * 4 * size,), **more)
    speeches = (ContextMessage(role, held, held.texts),) if role else ()
    return ContextEntry(place, held, speeches, place)


def steps(*roles: tuple[str, int]) -> list[ContextEntry]:
    """A context of such entries."""
    return [step(place, role, size) for place, (role, size) in enumerate(roles)]


def call(name: str, path: str) -> dict[str, Any]:
    """A call's block."""
    return {"type": "toolCall", "id": path, "name": name, "arguments": {"path": path}}


def did(entry_id: str, parent: str, *calls: dict[str, Any]) -> bytes:
    """An answer of calls."""
    return entry("message", entry_id, parent, message={"role": "assistant", "content": [*calls]})


def compaction(entry_id: str, parent: str, kept: str, **more: Any) -> bytes:
    """A compaction."""
    return entry("compaction", entry_id, parent, summary="S", firstKeptEntryId=kept, **more)


def chained(above: str, *names: str) -> list[bytes]:
    """User messages below an entry."""
    parents = (above, *names)
    return [
        said(name, parent, "user", f"xxxx{name}")
        for name, parent in zip(names, parents, strict=False)
    ]


ROLES = st.sampled_from([*KINDS, "", "assistant", "toolResult", "user"])
TALKS = st.lists(st.tuples(ROLES, st.integers(0, 30)), max_size=25)

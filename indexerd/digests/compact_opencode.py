"""Compaction by opencode's rules: old output is pruned, then everything is summarized.

A note replaces tools' results older than the newest 40,000 tokens of results, if that saves more
than 20,000; except in the last two turns, of failed calls, and of the tool `skill`.

What surprised us: opencode goes no further back than it pruned before; every message in the user's
role begins a turn. Here machine text right before a person's message does not: Codex and Claude put
context before every prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from indexerd.events import Kind, ToolResult
from indexerd.sessions.clipped import joined, units
from indexerd.sessions.context import CLEARED, ContextMessage

PRUNE_PROTECT = 40_000  # tokens of the newest results, which stay
PRUNE_MINIMUM = 20_000  # tokens that pruning must save
PRUNE_TURNS = 2  # newest turns, which stay
PROTECTED_TOOL = "skill"


def prune(messages: Sequence[ContextMessage]) -> tuple[list[int], int]:
    """Return the places of results to prune, newest first, and their tokens."""
    names = {call.id: call.name for one in messages for call in one.calls if call.id}
    found, total, saved = list[int](), 0, 0
    turns, follows = 0, ""
    for place, one in reversed(list(enumerate(messages))):
        by_machine = one.entry.kind is Kind.OTHER and follows == "user"
        turns += one.role == "user" and not by_machine
        follows = one.role
        if turns < PRUNE_TURNS:
            continue
        result = one.result or ToolResult("", text=joined(one.texts))
        if one.entry.kind is Kind.COMPACTION or result.cleared:
            break  # everything older was summarized or pruned before
        done = one.role == "toolResult" and result.call not in one.entry.failed
        if done and (result.name or names.get(result.call)) != PROTECTED_TOOL:
            tokens = (units(result.text) + 2) // 4  # as opencode rounds
            total += tokens
            if total > PRUNE_PROTECT:
                found.append(place)
                saved += tokens
    return (found, saved) if saved > PRUNE_MINIMUM else ([], 0)


def pruned(messages: Sequence[ContextMessage]) -> list[ContextMessage]:
    """Replace each pruned result by a note."""
    found = list(messages)
    for at in prune(messages)[0]:
        one = found[at]
        result = one.result and msgspec.structs.replace(one.result, cleared=True)
        found[at] = replace(one, texts=(CLEARED,), images=0, result=result)
    return found

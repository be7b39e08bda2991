"""Compaction and pruning by opencode's rules: old output goes first, then all is summarized.

Nothing stays verbatim. `prune` by itself is the first phase of any summary: results of
tools that are older than the newest 40,000 tokens of results make way for a note, if that saves
more than 20,000; but for the last two turns, failed calls, and the tool `skill`.

What surprised us: opencode looks for what it pruned before, and goes no further back; it counts
a message by its role, so one that a machine put under the user's begins a turn. Here such a one
does not if a human's message follows at once: Codex and Claude put context before every prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from indexerd.events import Kind, ToolResult
from indexerd.sessions.clipped import joined
from indexerd.sessions.context import CLEARED, ContextMessage
from indexerd.sessions.serialize import units

PRUNE_PROTECT = 40_000  # tokens of the newest results, which stay
PRUNE_MINIMUM = 20_000  # tokens that pruning saves at least, or it is not worth it
PRUNE_TURNS = 2  # newest turns, which stay
PROTECTED_TOOLS = frozenset({"skill"})
OUTPUT_MAX = 32_000  # tokens of an answer, whatever the model could say


class Pruned(NamedTuple):
    """Results that make way for a note."""

    places: tuple[int, ...]  # among the messages, ascending
    tokens: int  # that they were


def prune(messages: Sequence[ContextMessage]) -> Pruned:
    """Which results make way for a note; none where that saves too little."""
    found: list[int] = []
    total = saved = 0
    for place, tokens in _candidates(messages):
        total += tokens
        if total > PRUNE_PROTECT:
            found.append(place)
            saved += tokens
    return Pruned(tuple(reversed(found)), saved) if saved > PRUNE_MINIMUM else Pruned((), 0)


def pruned(messages: Sequence[ContextMessage]) -> list[ContextMessage]:
    """The conversation with a note instead of each result that is pruned."""
    found = list(messages)
    for at in prune(messages).places:
        one = found[at]
        result = one.result and msgspec.structs.replace(one.result, cleared=True)
        found[at] = replace(one, texts=(CLEARED,), images=0, result=result)
    return found


def _candidates(messages: Sequence[ContextMessage]) -> Iterator[tuple[int, int]]:
    """Places and tokens of the results that may be pruned, the newest first."""
    names = {call.id: call.name for one in messages for call in one.calls if call.id}
    turns = 0
    for place in reversed(range(len(messages))):
        one = messages[place]
        follows = messages[place + 1].role if place + 1 < len(messages) else ""
        by_machine = one.entry.kind is Kind.OTHER and follows == "user"
        turns += one.role == "user" and not by_machine
        if turns < PRUNE_TURNS:
            continue
        if one.entry.kind is Kind.COMPACTION or (one.result is not None and one.result.cleared):
            return  # what is older was summarized, or pruned, before
        held = one.result or ToolResult("", text=joined(one.texts))
        name = held.name or names.get(held.call, "")
        done = one.role == "toolResult" and held.call not in one.entry.failed
        if done and name not in PROTECTED_TOOLS:
            yield place, (units(held.text) + 2) // 4  # as opencode rounds


def should_compact(tokens: int, window: int) -> bool:
    """Whether it is time: when the window leaves no room for an answer's most."""
    return window > 0 and tokens >= max(0, window - OUTPUT_MAX)

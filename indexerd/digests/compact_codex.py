"""Compaction by Codex's rules: all of a conversation is summarized, and what humans said stays.

Of what humans said the newest `USERS_TOKENS` stay; nothing is redacted here.

How tokens are counted (S3.23): Codex records what its provider counted for a whole request; it
holds for every path through the row that was the newest then, and what the model did not say
before it is estimated and added. Other agents' answers say themselves what was counted. All else
is estimated: bytes of UTF-8 by 4, rounded up, for each message.

What surprised us: Codex writes the results of calls before the count of the request that made
them, so a result before the newest count may be missing from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from indexerd.agents.codex.read import NO_SUMMARY
from indexerd.digests.compact_opencode import counted
from indexerd.events import Kind
from indexerd.sessions.clipped import length
from indexerd.sessions.context import ContextEntry, ContextMessage, newest_within_budget
from indexerd.sessions.serialize import call_text
from indexerd.sessions.state import SessionState

IMAGE_BYTES = 7373  # what Codex counts for a picture instead of its data
_TOKEN = 4  # bytes


def users_of(entries: Iterable[ContextEntry]) -> tuple[ContextMessage, ...]:
    """What humans said that stays, oldest first: no earlier summary, and no machine's words."""
    return tuple(newest_within_budget([one for entry in entries for one in _human(entry)]))


def _human(entry: ContextEntry) -> Iterator[ContextMessage]:
    compacted = entry.entry.kind is Kind.COMPACTION and bool(entry.speeches)  # else it was edited
    held = entry.entry.compaction if compacted else None
    for kept in (held.retained if held else None) or ():
        if kept.human:
            yield ContextMessage("user", entry.entry, (kept.text,))
    for one in entry.speeches:
        typed = entry.entry.kind is Kind.USER and one.role == "user"
        if typed or (compacted and one.entry.id != entry.entry.id):
            yield one


def replacement_history(users: Iterable[ContextMessage], summary: str) -> list[dict[str, Any]]:
    """The history that replaces all others, the summary last: {role, text, entryId}."""
    text = summary if summary.strip() else NO_SUMMARY
    kept = [{"role": one.role, "text": one.text, "entryId": one.entry.id} for one in users]
    return [*kept, {"role": "user", "text": text, "entryId": None}]


def estimate(message: ContextMessage) -> int:
    """About how many tokens a message is, with its thoughts, calls and pictures."""
    texts = (*message.texts, *message.thinking, *map(call_text, message.calls))
    size = sum(length(text).bytes for text in texts)
    return -(-(size + message.images * IMAGE_BYTES) // _TOKEN)


def tokens_of(state: SessionState, entries: Sequence[ContextEntry]) -> int:
    """How many tokens the context takes, as far as that was counted; the rest is estimated."""
    used, at = state.context.used, state.context.at
    begin = max((one.row for one in entries if one.entry.kind is Kind.COMPACTION), default=-1)
    if used and begin <= at and state.on_path(at):
        own = (e.row for e in entries if any(one.role == "assistant" for one in e.speeches))
        since = max((row for row in own if begin < row <= at), default=at)
        rest = [one for one in entries if one.row > since]
    else:  # another agent's answers say it themselves
        used, last = counted(entries)
        rest = list(entries[last + 1 :])
    return used + sum(estimate(one) for entry in rest for one in entry.speeches)


def limit_of(window: int) -> int:
    """From how many tokens on Codex compacts by itself: 9/10 of the model's whole window.

    The `model_context_window` that it records is 95/100 of that (`effective_context_window_percent`
    in codex-rs/protocol/src/openai_models.rs, 0.154), hence 18/19.
    """
    return max(0, window) * 18 // 19


def should_compact(used: int, limit: int) -> bool:
    """Whether `used` has reached the limit (`total_usage_tokens >= limit`); never without one."""
    return 0 < limit <= used

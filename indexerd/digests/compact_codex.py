"""Compaction by Codex's rules: all of a conversation is summarized, and what humans said stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from indexerd.agents.codex.parse_entry import NO_SUMMARY
from indexerd.digests.transcript import speaker
from indexerd.sessions.clipped import Clipped
from indexerd.sessions.context import ContextMessage

USERS_TOKENS = 20_000  # of the humans' messages that a compaction keeps; 4 bytes are a token
_TOKEN = 4  # bytes


def users_of(said: Iterable[ContextMessage]) -> list[ContextMessage]:
    """What humans said that stays, oldest first, of the messages that are summarized."""
    return newest_within_budget([one for one in said if speaker(one) == "user"])


def newest_within_budget(messages: list[ContextMessage]) -> list[ContextMessage]:
    """The newest messages within USERS_TOKENS; of the first that is too long both ends."""
    found: list[ContextMessage] = []
    left = USERS_TOKENS
    for one in reversed(messages):
        if left <= 0:
            break
        tokens = -(-_bytes(one.text) // _TOKEN)
        found.append(one if tokens <= left else replace(one, texts=(_ends(one.text, left),)))
        left -= tokens
    return found[::-1]


def _ends(text: str, tokens: int) -> str:
    """A text cut in its middle to so many tokens, with no character torn."""
    data, size = text.encode("utf-8", "replace"), tokens * _TOKEN
    first = size // 2
    head = data[:first].decode("utf-8", "ignore")
    tail = data[len(data) - (size - first) :].decode("utf-8", "ignore")
    left_out = -(-(_bytes(text) - size) // _TOKEN)
    return f"{head}…{left_out} tokens truncated…{tail}"


def _bytes(text: str) -> int:
    lost = text.lost if isinstance(text, Clipped) else 0
    return lost + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))


def replacement_history(users: Iterable[ContextMessage], summary: str) -> list[dict[str, Any]]:
    """The history that replaces all others, the summary last: {role, text, entryId}."""
    text = summary if summary.strip() else NO_SUMMARY
    kept = [{"role": one.role, "text": one.text, "entryId": one.entry.id} for one in users]
    return [*kept, {"role": "user", "text": text, "entryId": None}]


def limit_of(window: int) -> int:
    """From how many tokens on Codex compacts by itself: 9/10 of the model's whole window.

    The `model_context_window` that it records is 95/100 of that (`effective_context_window_percent`
    in codex-rs/protocol/src/openai_models.rs, 0.154), hence 18/19.
    """
    return max(0, window) * 18 // 19


def should_compact(used: int, limit: int) -> bool:
    """Whether `used` has reached the limit (`total_usage_tokens >= limit`); never without one."""
    return 0 < limit <= used

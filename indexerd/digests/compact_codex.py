"""Compaction by Codex's rules: all of a conversation is summarized, and what humans said stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from indexerd.agents.codex.parse_entry import NO_SUMMARY
from indexerd.digests.transcript import speaker
from indexerd.sessions.context import ContextMessage

USERS_TOKENS = 20_000  # of the humans' messages that a compaction keeps
_TOKEN = 4  # bytes


def users_of(said: Iterable[ContextMessage]) -> list[ContextMessage]:
    """What humans said that stays, of the messages that are summarized, oldest first.

    The newest within USERS_TOKENS; of the first that is too long both ends.
    """
    found, left = list[ContextMessage](), USERS_TOKENS
    for one in reversed([one for one in said if speaker(one) == "user"]):
        data, size = one.text.encode("utf-8", "replace"), left * _TOKEN
        if left <= 0:
            break
        if len(data) > size:
            head = data[: size // 2].decode("utf-8", "ignore")
            tail = data[len(data) - size + size // 2 :].decode("utf-8", "ignore")
            gone = -(-(len(data) - size) // _TOKEN)
            one = replace(one, texts=(f"{head}…{gone} tokens truncated…{tail}",))  # noqa: PLW2901 - the shortened one
        found.append(one)
        left -= -(-len(data) // _TOKEN)
    return found[::-1]


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

"""Compaction by Codex's rules: everything is summarized, and the user's newest words stay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from indexerd.agents.codex.parse_entry import NO_SUMMARY
from indexerd.digests.transcript import speaker
from indexerd.sessions.context import ContextMessage

USERS_TOKENS = 20_000  # of the user's messages
_TOKEN = 4  # bytes


def users_of(said: Iterable[ContextMessage]) -> list[ContextMessage]:
    """Return the user's newest messages within USERS_TOKENS; a message too long keeps its ends."""
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
    """Return the messages that replace the history, the summary last."""
    text = summary if summary.strip() else NO_SUMMARY
    kept = [{"role": one.role, "text": one.text, "entryId": one.entry.id} for one in users]
    return [*kept, {"role": "user", "text": text, "entryId": None}]


def should_compact(used: int, window: int, *, recorded: bool) -> bool:
    """Say whether Codex compacts by itself: from 9/10 of the model's whole window on.

    The `model_context_window` that it records (`recorded`) is 95/100 of that, hence 18/19.
    """
    limit = (window if recorded else window * 95 // 100) * 18 // 19
    return 0 < limit <= used

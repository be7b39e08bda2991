"""`stats`: how full a session's context is, which agents would compact it, and totals.

Pitfalls: the list of models may be wrong about a model that is served with a larger window. If a
counted context does not fit the listed window, the window counts as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexerd.digests import compact_pi
from indexerd.digests.segments import chain_at, covered
from indexerd.digests.transcript import message_tokens
from indexerd.entries import Kind
from indexerd.models.prices import window_of
from indexerd.sessions.clipped import COUNTED
from indexerd.sessions.context import ContextEntry, ReadRow, context_entries, context_messages
from indexerd.sessions.state import SessionState, message_rows, rows_between
from indexerd.settings import Digest
from indexerd.sources.session_reader import OpenSession

OUTPUT_MAX = 32_000  # tokens that opencode reserves for an answer, whatever the model's limit
WARN_PERCENT, FOLD_PERCENT = 80, 90  # of the usable tokens


def stats(session: OpenSession, row: Mapping[str, Any], settings: Digest) -> dict[str, Any]:
    reserve, warnings = settings.reserve_tokens, list[str]()
    with session.reading(COUNTED) as read:
        tokens, counted = context_size(session.state, context_entries(session.state, read))
        window, source = _window(session.state, read, counted, settings)
        totals = _totals(session, row, read)
    answer: dict[str, Any] = {
        "sessionId": session.info.session_id,
        "contextTokens": tokens,
        "estimated": counted < tokens,
        "reserve": reserve,
        "level": None,
        "shouldCompact": {},
        "totals": totals,
        "warnings": warnings,
    }
    if window is None:
        return answer
    answer |= {"window": window, "windowSource": source}
    answer["shouldCompact"] = {  # whether the agent would do it on its own
        "pi": tokens > window - reserve,
        # Codex compacts at 9/10 of the whole window and records 95/100 of that: hence 18/19.
        "codex": tokens >= (window if source == "agent" else window * 95 // 100) * 18 // 19 > 0,
        "opencode": tokens >= max(0, window - OUTPUT_MAX),
    }
    usable = window - reserve if window > reserve else window
    percent, level = 100 * tokens / usable, "ok"
    if percent >= WARN_PERCENT:
        level = "fold" if percent >= FOLD_PERCENT else "warning"
        what = "fold or compact it now" if level == "fold" else "it will have to be compacted soon"
        warnings.append(f"{percent:.0f}% of {usable:,} usable tokens are taken: {what}")
    return answer | {"usable": usable, "percent": round(percent, 1), "level": level}


def outgrown(session: OpenSession, read: ReadRow, settings: Digest) -> bool:
    """Whether a context leaves less than the reserve of its model's window, if that is known."""
    tokens, counted = context_size(session.state, context_entries(session.state, read))
    window, _ = _window(session.state, read, counted, settings)
    return window is not None and tokens > window - settings.reserve_tokens


def _window(
    state: SessionState, read: ReadRow, used: int, settings: Digest
) -> tuple[int | None, str]:
    if settings.context_window:
        return settings.context_window, "settings"
    own = state.context
    if own.window > 0 and (own.used or own.window >= used):
        return own.window, "agent"
    for row in state.up(state.leaf):  # the newest model on the path
        if state.kind(row) in (Kind.SETTING, Kind.ASSISTANT):
            entry = read(row)
            named = entry.model or entry.next_model
            if named and not named.startswith("<"):
                return window_of(entry.provider or state.provider, named, used), "list"
    return None, "list"


def context_size(state: SessionState, entries: Sequence[ContextEntry]) -> tuple[int, int]:
    """Return the tokens of a context, and how many of them a provider counted.

    Codex records a request's count next to its answers, other agents in them.
    """
    used, at = state.context.used, state.context.at
    begin = max((entry.row for entry in entries if entry.entry.kind is Kind.COMPACTION), default=-1)
    if not used or at < begin or not state.on_path(at):
        return compact_pi.context_tokens(entries)
    own = (e.row for e in entries if any(m.role == "assistant" for m in e.speeches))
    since = max((row for row in own if begin < row <= at), default=at)
    rest = (message for entry in entries if entry.row > since for message in entry.speeches)
    return used + compact_pi.estimate_tokens(*rest), used


def _totals(session: OpenSession, row: Mapping[str, Any], read: ReadRow) -> dict[str, Any]:
    """Count a session's tokens and cost on every branch, tools and files on the current path."""
    state, info = session.state, session.info
    rows, chain = message_rows(state), chain_at(state, session.home, info.session_id)
    lines = rows_between(state.path(), rows, 0, covered(chain) - 1)
    tokens = message_tokens(context_messages(state, read, lines), state, info.agent)
    totals = {
        "messages": info.messages,
        "userMessages": info.users,
        "entries": info.rows,
        "compactions": info.compactions,
        "toolCalls": sum((row.get("toolsUsed") or {}).values()),
        "filesRead": len(row.get("filesRead") or ()),
        "filesModified": len(row.get("filesModified") or ()),
        "segments": len(chain),
        "fullMessageCount": len(rows),
        "foldedMessages": covered(chain),
        "savedTokens": tokens - sum(segment.token_count for segment in chain),
    }
    if "tokens" in row:
        keys = ("input", "output", "cacheRead", "cacheWrite")
        totals |= {f"{key}Tokens": row["tokens"].get(key, 0) for key in keys}
    return totals | {
        key: row[key]
        for key in ("costUsd", "costEstimatedUsd", "unpricedTokens", "durationMs")
        if key in row
    }

"""`stats`: how full a session's context is, what would be compacted, and what it came to so far.

A window comes from the settings, else from what the agent itself noted, else from a list of
models. What surprised us: a list may be wrong about a model that is served with a larger window;
a context that was counted and does not fit proves it, and then the window is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.segments import chain_at, covered
from indexerd.digests.transcript import tokens_of
from indexerd.events import Kind
from indexerd.models.prices import window_of
from indexerd.sessions.clipped import COUNTED
from indexerd.sessions.context import ContextEntry, Read, context_entries, passing_messages
from indexerd.sessions.positions import message_rows, rows_between
from indexerd.sessions.state import SessionState
from indexerd.settings import Digest
from indexerd.sources.session_reader import OpenSession
from indexerd.threads import Check

WARN_PERCENT = 80  # of the usable tokens
FOLD_PERCENT = 90


def stats(
    session: OpenSession, check: Check, row: Mapping[str, Any], settings: Digest
) -> dict[str, Any]:
    """The answer for one session; `row` is what the store has of it."""
    reserve, warnings = settings.reserve_tokens, list[str]()
    with session.reading(check, COUNTED) as read:
        use = _measured(session, read, settings)
        totals = _totals(session, row, read)
    found: dict[str, Any] = {
        "sessionId": session.info.session_id,
        "contextTokens": use.tokens,
        "estimated": use.counted < use.tokens,
        "reserve": reserve,
        "level": None,
        "shouldCompact": {},
        "totals": totals,
        "warnings": warnings,
    }
    if use.window is None:
        return found
    found |= {"window": use.window, "windowSource": use.source}
    # Codex records the part of a window that it uses; from anybody else it is the whole one.
    limit = compact_codex.limit_of(use.window if use.source == "agent" else use.window * 95 // 100)
    found["shouldCompact"] = {  # who would compact by itself
        "pi": compact_pi.should_compact(use.tokens, use.window, reserve),
        "codex": compact_codex.should_compact(use.tokens, limit),
        "opencode": compact_opencode.should_compact(use.tokens, use.window),
    }
    usable = use.window - reserve
    if usable <= 0:
        warnings.append(f"the reserve of {reserve:,} tokens leaves nothing of the window")
        return found
    percent, level = 100 * use.tokens / usable, "ok"
    if percent >= WARN_PERCENT:
        level = "fold" if percent >= FOLD_PERCENT else "warning"
        what = "fold or compact it now" if level == "fold" else "it will have to be compacted soon"
        warnings.append(f"{percent:.0f}% of {usable:,} usable tokens are taken: {what}")
    return found | {"usable": usable, "percent": round(percent, 1), "level": level}


def outgrown(session: OpenSession, read: Read, settings: Digest) -> bool:
    """Whether a context leaves less than the reserve of its model's window, if known."""
    use, reserve = _measured(session, read, settings), settings.reserve_tokens
    return use.window is not None and compact_pi.should_compact(use.tokens, use.window, reserve)


class _Use(NamedTuple):
    tokens: int  # of the context
    counted: int  # of these, by a provider
    window: int | None
    source: str  # of the window


def _measured(session: OpenSession, read: Read, settings: Digest) -> _Use:
    state = session.state
    tokens, counted = context_size(state, context_entries(state, read))
    if settings.context_window:
        return _Use(tokens, counted, settings.context_window, "settings")
    if state.context.window > 0:
        return _Use(tokens, counted, state.context.window, "agent")
    listed = window_of(*_model(state, read))
    return _Use(tokens, counted, None if listed and counted > listed else listed, "list")


def context_size(state: SessionState, entries: Sequence[ContextEntry]) -> tuple[int, int]:
    """How many tokens a context has, and how many of these a provider counted.

    Codex notes a request's count beside its answers, other agents in them; what came after the
    model's own last words before it is estimated.
    """
    used, at = state.context.used, state.context.at
    begin = max((one.row for one in entries if one.entry.kind is Kind.COMPACTION), default=-1)
    if not used or at < begin or not state.on_path(at):
        return compact_pi.context_tokens(entries)
    own = (e.row for e in entries if any(one.role == "assistant" for one in e.speeches))
    since = max((row for row in own if begin < row <= at), default=at)
    rest = (one for entry in entries if entry.row > since for one in entry.speeches)
    return used + sum(map(compact_pi.estimate_tokens, rest)), used


def _model(state: SessionState, read: Read) -> tuple[str | None, str]:
    """Provider and name of the newest model on the path; only lines that may name one are read."""
    for row in state.up(state.leaf):
        if state.kind(row) in (Kind.SETTING, Kind.ASSISTANT):
            entry = read(row)
            named = entry.model or entry.next_model
            if named and not named.startswith("<"):
                return entry.provider or state.provider or None, named
    return None, ""


def _totals(session: OpenSession, row: Mapping[str, Any], read: Read) -> dict[str, Any]:
    """What the row has, as far as it is known, and what segments stand for on this path.

    Tokens and cost are of every branch, tools and files of the current path.
    """
    state, info = session.state, session.info
    rows, chain = message_rows(state), chain_at(state, session.home, info.session_id)
    lines = rows_between(state.path(), rows, 0, covered(chain) - 1)
    tokens = tokens_of(passing_messages(state, read, lines), state, info.agent)
    found = {
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
        "savedTokens": tokens - sum(one.token_count for one in chain),
    }
    if "tokens" in row:
        keys = ("input", "output", "cacheRead", "cacheWrite")
        found |= {f"{key}Tokens": row["tokens"].get(key, 0) for key in keys}
    return found | {key: row[key] for key in ("costUsd", "durationMs") if key in row}

"""`stats`: how full a session's context is, what would be compacted, and what it came to so far.

A window comes from the settings, else from what the agent itself noted, else from a list of
models. What surprised us: a list may be wrong about a model that is served with a larger window;
a context that was counted and does not fit proves it, and then the window is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.segments import Segment, chain_at, covered
from indexerd.digests.transcript import tokens_of
from indexerd.errors import IndexerdError
from indexerd.events import Kind
from indexerd.models.prices import window_of
from indexerd.sessions.clipped_entries import COUNTED
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
        totals = _totals(session, row) | _summarized(session, read, warnings)
    found: dict[str, Any] = {
        "sessionId": session.info.session_id,
        "contextTokens": use.tokens,
        "estimated": use.counted < use.tokens,
        "reserve": reserve,
        "level": None,
        "shouldCompact": {},
    }
    if use.window is not None:
        found |= {"window": use.window, "windowSource": use.source}
        found |= _fullness(use.tokens, use.window - reserve, reserve, warnings)
        # Codex records the part of a window that it uses; from anybody else it is the whole one.
        usable = use.window if use.source == "agent" else use.window * 95 // 100
        limit = compact_codex.limit_of(usable)
        found["shouldCompact"] = {  # who would compact by itself
            "pi": compact_pi.should_compact(use.tokens, use.window, reserve),
            "codex": compact_codex.should_compact(use.tokens, limit),
            "opencode": compact_opencode.should_compact(use.tokens, use.window),
        }
    return found | {"totals": totals, "warnings": warnings}


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


def _fullness(tokens: int, usable: int, reserve: int, warnings: list[str]) -> dict[str, Any]:
    """How much of the usable window is taken, and whether to warn of it."""
    if usable <= 0:
        warnings.append(f"the reserve of {reserve:,} tokens leaves nothing of the window")
        return {}
    percent = 100 * tokens / usable
    level = "fold" if percent >= FOLD_PERCENT else "warning" if percent >= WARN_PERCENT else "ok"
    if level != "ok":
        what = "fold or compact it now" if level == "fold" else "it will have to be compacted soon"
        warnings.append(f"{percent:.0f}% of {usable:,} usable tokens are taken: {what}")
    return {"usable": usable, "percent": round(percent, 1), "level": level}


def _totals(session: OpenSession, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the row has: tokens and cost of every branch, tools and files of the current path.

    Of a session that is not all read yet, what is not known is left out.
    """
    found = {
        "messages": session.info.messages,
        "userMessages": session.info.users,
        "entries": session.info.rows,
        "compactions": session.info.compactions,
        "toolCalls": sum((row.get("toolsUsed") or {}).values()),
        "filesRead": len(row.get("filesRead") or ()),
        "filesModified": len(row.get("filesModified") or ()),
    }
    if "tokens" in row:
        keys = ("input", "output", "cacheRead", "cacheWrite")
        found |= {f"{key}Tokens": row["tokens"].get(key, 0) for key in keys}
    return found | {key: row[key] for key in ("costUsd", "durationMs") if key in row}


def _summarized(session: OpenSession, read: Read, warnings: list[str]) -> dict[str, Any]:
    """What segments stand for on this path; estimates, with the tokens of the segments off."""
    state, held = session.state, list[Segment]()
    rows = message_rows(state)
    try:
        held = chain_at(state, session.home, session.info.session_id)
    except IndexerdError as bad:
        warnings.append(str(bad))
    lines = rows_between(state.path(), rows, 0, covered(held) - 1)
    tokens = tokens_of(passing_messages(state, read, lines), state, session.info.agent)
    return {
        "segments": len(held),
        "fullMessageCount": len(rows),
        "foldedMessages": covered(held),
        "savedTokens": tokens - sum(one.token_count for one in held),
    }

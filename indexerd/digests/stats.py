"""`stats`: how full a session's context is, what would be compacted, and what it came to so far.

The context's size is in tokens as the session's own agent counts it. Real counts win over
estimates; `estimated` says that some of the tokens are estimates (a fourth of the characters:
digests/compact_pi.py). Reads the lines of the context and of what segments cover; writes nothing.

A window comes from the settings, else from what the agent itself noted, else from a list of
models. What surprised us: a list may be wrong about a model that is served with a larger window;
a context that was counted and does not fit proves it, and then the window is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.segments import Segment, chain_at, covered
from indexerd.digests.transcript import conversation
from indexerd.errors import IndexerdError
from indexerd.events import Kind
from indexerd.models.prices import window_of
from indexerd.models.threads import Check
from indexerd.sessions.clipped_entries import COUNTED
from indexerd.sessions.context import ContextEntry, Read, context_entries, passing_messages
from indexerd.sessions.positions import message_rows, rows_between
from indexerd.sessions.state import SessionState
from indexerd.settings import Digest
from indexerd.sources.session_reader import OpenSession

WARN_PERCENT = 80  # of the usable tokens (S2.26)
FOLD_PERCENT = 90
_TOKENS = {
    "input": "inputTokens",
    "output": "outputTokens",
    "cacheRead": "cacheReadTokens",
    "cacheWrite": "cacheWriteTokens",
}

Row = Mapping[str, Any]


def stats(session: OpenSession, check: Check, row: Row, settings: Digest) -> dict[str, Any]:
    """The answer for one session; `row` is what the store has of it."""
    warnings: list[str] = []
    with session.reading(check, COUNTED) as read:
        size, window = _measured(session, read, settings)
        totals = _totals(session, row) | _summarized(session, read, warnings)
    found: dict[str, Any] = {
        "sessionId": session.info.session_id,
        "contextTokens": size.tokens,
        "estimated": size.counted < size.tokens,
        "reserve": settings.reserve_tokens,
        "level": None,
        "shouldCompact": {},
    }
    if window is not None:
        found |= {"window": window.tokens, "windowSource": window.source}
        found |= _fullness(size.tokens, window.tokens, settings.reserve_tokens, warnings)
        found["shouldCompact"] = _due(size.tokens, window, settings.reserve_tokens)
    return found | {"totals": totals, "warnings": warnings}


def outgrown(session: OpenSession, read: Read, settings: Digest) -> bool:
    """Whether a context leaves less than the reserve of its model's window (S3.16).

    Never where the window is not known.
    """
    size, window = _measured(session, read, settings)
    return window is not None and compact_pi.should_compact(
        size.tokens, window.tokens, settings.reserve_tokens
    )


# -- the context ---------------------------------------------------------------------------------


class Size(NamedTuple):
    """How large a context is, in tokens."""

    tokens: int
    counted: int  # of them by a provider, not estimated


class Window(NamedTuple):
    """A model's window in tokens, and who says so: settings, agent or list."""

    tokens: int
    source: str


def _measured(session: OpenSession, read: Read, settings: Digest) -> tuple[Size, Window | None]:
    state = session.state
    size = context_size(session.info.agent, state, context_entries(state, read))
    return size, _window(state, read, settings, size.counted)


def context_size(rules: str, state: SessionState, entries: Sequence[ContextEntry]) -> Size:
    """How many tokens a context has, by the rules of an agent.

    pi's, and so for Claude Code, whose own rule nobody knows: the newest answer's count, and
    estimates of what came after it. Codex and opencode have rules of their own.
    """
    if rules == "codex":
        tokens = compact_codex.tokens_of(state, entries)
        used = state.context.used
        return Size(tokens, used if used == tokens else 0)
    if rules == "opencode":
        tokens = compact_opencode.tokens_of(entries)
        counts = {one.entry.tokens.total for one in entries if one.entry.tokens}
        return Size(tokens, tokens if tokens in counts else 0)
    size = compact_pi.context_tokens(entries)
    return Size(size.tokens, size.usage_tokens)


def _window(state: SessionState, read: Read, settings: Digest, counted: int) -> Window | None:
    if settings.context_window:
        return Window(settings.context_window, "settings")
    noted = state.context.window
    if noted > 0:
        return Window(noted, "agent")
    listed = window_of(*_model(state, read))
    return None if listed is None or counted > listed else Window(listed, "list")


def _due(tokens: int, window: Window, reserve: int) -> dict[str, bool]:
    """Which agents would compact a context of so many tokens by themselves (S1.25)."""
    # Codex records the part of a window that it uses; from anybody else it is the whole one.
    used = window.tokens if window.source == "agent" else window.tokens * 95 // 100
    return {
        "pi": compact_pi.should_compact(tokens, window.tokens, reserve),
        "codex": compact_codex.should_compact(tokens, compact_codex.limit_of(used)),
        "opencode": compact_opencode.should_compact(tokens, window.tokens),
    }


def _model(state: SessionState, read: Read) -> tuple[str | None, str]:
    """Provider and name of the newest model on the path; only lines that may name one are read."""
    for row in state.up(state.leaf):
        if state.kind(row) not in (Kind.SETTING, Kind.ASSISTANT):
            continue
        entry = read(row)
        named = entry.model or entry.next_model
        if named and not named.startswith("<"):
            return entry.provider or state.provider or None, named
    return None, ""


def _fullness(tokens: int, window: int, reserve: int, warnings: list[str]) -> dict[str, Any]:
    """How much of the usable window is taken, and whether to warn of it (S2.26)."""
    usable = window - reserve
    if usable <= 0:
        warnings.append(f"the reserve of {reserve:,} tokens leaves nothing of the window")
        return {}
    percent = 100 * tokens / usable
    level = "fold" if percent >= FOLD_PERCENT else "warning" if percent >= WARN_PERCENT else "ok"
    if level != "ok":
        what = "fold or compact it now" if level == "fold" else "it will have to be compacted soon"
        warnings.append(f"{percent:.0f}% of {usable:,} usable tokens are taken: {what}")
    return {"usable": usable, "percent": round(percent, 1), "level": level}


# -- totals --------------------------------------------------------------------------------------


def _totals(session: OpenSession, row: Row) -> dict[str, Any]:
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
        found |= {name: row["tokens"].get(key, 0) for key, name in _TOKENS.items()}
    return found | {key: row[key] for key in ("costUsd", "durationMs") if key in row}


def _summarized(session: OpenSession, read: Read, warnings: list[str]) -> dict[str, Any]:
    """What segments stand for on this path; estimates, with the tokens of the segments off."""
    state, held = session.state, list[Segment]()
    rows = message_rows(state)
    try:
        held = chain_at(state, session.home, session.info.session_id)
    except IndexerdError as bad:
        warnings.append(str(bad))
    count = covered(held)
    lines = rows_between(state.path(), rows, 0, count - 1)
    said = conversation(passing_messages(state, read, lines), state, session.info.agent)
    tokens = sum(map(compact_pi.estimate_tokens, said))
    return {
        "segments": len(held),
        "fullMessageCount": len(rows),
        "foldedMessages": count,
        "savedTokens": tokens - sum(one.token_count for one in held),
    }

"""`stats`: how full a session's context is, what would be compacted, and what it came to so far.

In: a session as it was taken, its row, the settings of digests. Out: the context's size in tokens
as the session's own agent counts it, the model's window where that is known, what that means, and
totals. Real counts win over estimates; `estimated` says that some of the tokens are estimates (a
fourth of the characters: digests/compact_pi.py). Reads the lines of the context and of what is
folded into segments, in a thread; writes nothing.

A window comes from the settings, else from what the agent itself noted, else from a list of
models. What surprised us: a list may be wrong about a model that is served with a larger window;
a context that was counted and does not fit proves it, and then the window is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from indexerd.daemon.answers import Answers
from indexerd.daemon.views import Taken, reader
from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.compact_pi import estimate_tokens
from indexerd.digests.segments import Segment, chain, covered, message_rows, rows_between
from indexerd.digests.spoken import conversation
from indexerd.digests.stored_digest import stored_segments
from indexerd.errors import IndexerdError
from indexerd.events import Entry, Kind
from indexerd.models.prices import window_of
from indexerd.models.threads import Check
from indexerd.protocol.params import RefParams
from indexerd.references.looks import Looks
from indexerd.sessions.clipped_entries import COUNTED
from indexerd.sessions.context import (
    PROVIDER,
    ContextEntry,
    Read,
    context_entries,
    passing_messages,
)
from indexerd.sessions.state import SessionState
from indexerd.settings import Digest, Settings

_TOKENS = {
    "input": "inputTokens",
    "output": "outputTokens",
    "cacheRead": "cacheReadTokens",
    "cacheWrite": "cacheWriteTokens",
}
WARN_PERCENT = 80  # of the usable tokens (S2.26)
FOLD_PERCENT = 90

Row = Mapping[str, Any]


class Stats:
    """Answers `stats`, for one daemon."""

    def __init__(self, answers: Answers, *, looks: Looks, settings: Callable[[], Settings]) -> None:
        """`settings()` are those of now."""
        self._answers = answers
        self._looks = looks
        self._settings = settings

    async def stats(self, asked: RefParams) -> dict[str, Any]:
        """The result of `stats`."""
        row = self._answers.row(asked.ref, cwd=asked.cwd)
        work = partial(_read, row=row, settings=self._settings().digest)
        return await self._looks.at(row["sessionId"], None, work)


def _read(taken: Taken, check: Check, row: Row, settings: Digest) -> dict[str, Any]:
    with taken.lines as lines:
        read = reader(taken, lines, keep=COUNTED)

        def checked(at: int) -> Entry:
            check()
            return read(at)

        return stats(taken, checked, row, settings)


def stats(taken: Taken, read: Read, row: Row, settings: Digest) -> dict[str, Any]:
    """The answer. ValueError: a line is no JSON, the session must be reread."""
    warnings: list[str] = []
    state, reserve = taken.state, settings.reserve_tokens
    size = context_size(taken.card.agent, state, context_entries(state, read))
    found: dict[str, Any] = {
        "sessionId": taken.card.session_id,
        "contextTokens": size.tokens,
        "estimated": size.counted < size.tokens,
        "reserve": reserve,
        "level": None,
        "shouldCompact": {},
    }
    window = _window(state, read, settings, size.counted)
    if window is not None:
        found |= {"window": window.tokens, "windowSource": window.source}
        found |= _fullness(size.tokens, window.tokens, reserve, warnings)
        found["shouldCompact"] = _due(size.tokens, window, reserve)
    totals = _totals(taken, row) | _folded(taken, read, warnings)
    return found | {"totals": totals, "warnings": warnings}


def outgrown(taken: Taken, read: Read, settings: Digest) -> bool:
    """Whether a context leaves less than the reserve of its model's window (S3.16).

    Never where the window is not known. ValueError as `stats` raises it.
    """
    size = context_size(taken.card.agent, taken.state, context_entries(taken.state, read))
    window = _window(taken.state, read, settings, size.counted)
    if window is None:
        return False
    return compact_pi.should_compact(size.tokens, window.tokens, settings.reserve_tokens)


# -- the context ---------------------------------------------------------------------------------


class Size(NamedTuple):
    """How large a context is, in tokens."""

    tokens: int
    counted: int  # of them by a provider, not estimated


def context_size(agent: str, state: SessionState, steps: list[ContextEntry]) -> Size:
    """How many tokens the context has, as the session's own agent counts them.

    pi, and so Claude Code, whose own rule nobody knows: the newest answer's count, and estimates
    of what came after it. Codex and opencode by their own rules.
    """
    if agent == "codex":
        tokens = compact_codex.tokens_of(state, steps)
        used = compact_codex.noted(state).get("used", 0)
        return Size(tokens, used if used == tokens else 0)
    if agent == "opencode":
        tokens = compact_opencode.tokens_of(steps)
        counts = {step.entry.tokens.total for step in steps if step.entry.tokens}
        return Size(tokens, tokens if tokens in counts else 0)
    size = compact_pi.context_tokens(steps)
    return Size(size.tokens, size.usage_tokens)


class Window(NamedTuple):
    """A model's window in tokens, and who says so: settings, agent or list."""

    tokens: int
    source: str


def _window(state: SessionState, read: Read, settings: Digest, counted: int) -> Window | None:
    if settings.context_window:
        return Window(settings.context_window, "settings")
    told = compact_codex.noted(state).get("window", 0)
    if told > 0:
        return Window(told, "agent")
    listed = window_of(*_model(state, read))
    return None if listed is None or counted > listed else Window(listed, "list")


def _due(tokens: int, window: Window, reserve: int) -> dict[str, bool]:
    """Which agents would compact a context of so many tokens by themselves (S1.25)."""
    # Codex records the part of a window that it uses; from anybody else it is the whole one.
    used = window.tokens if window.source == "agent" else window.tokens * 95 // 100
    limits = compact_opencode.Limits(window.tokens)
    return {
        "pi": compact_pi.should_compact(tokens, window.tokens, reserve),
        "codex": compact_codex.should_compact(tokens, compact_codex.limit_of(used)),
        "opencode": compact_opencode.should_compact(tokens, limits),
    }


def _model(state: SessionState, read: Read) -> tuple[str | None, str]:
    """Provider and name of the newest model on the path; only lines that may name one are read."""
    for row in state.up(state.leaf):
        if state.kind(row) not in (Kind.SETTING, Kind.ASSISTANT):
            continue
        entry = read(row)
        named = entry.model or entry.details.get("modelId")
        if isinstance(named, str) and named and not named.startswith("<"):
            provider = entry.details.get("provider") or state.notes.get(PROVIDER)
            return provider if isinstance(provider, str) else None, named
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


def _totals(taken: Taken, row: Row) -> dict[str, Any]:
    """What the row knows: tokens and cost of every branch, tools and files of the current path.

    Of a session that is not all read yet, what is not known is left out.
    """
    found = {
        "messages": taken.card.messages,
        "userMessages": taken.card.users,
        "entries": taken.card.rows,
        "compactions": taken.card.compactions,
        "toolCalls": sum((row.get("toolsUsed") or {}).values()),
        "filesRead": len(row.get("filesRead") or ()),
        "filesModified": len(row.get("filesModified") or ()),
    }
    if "tokens" in row:
        found |= {name: row["tokens"].get(key, 0) for key, name in _TOKENS.items()}
    return found | {key: row[key] for key in ("costUsd", "durationMs") if key in row}


def _folded(taken: Taken, read: Read, warnings: list[str]) -> dict[str, Any]:
    """What segments stand for on this path; estimates, with the tokens of the segments off."""
    state = taken.state
    rows = message_rows(state)
    held = chain(state, rows, _segments(taken, warnings))
    count = covered(held)
    lines = rows_between(state.path(), rows, 0, count - 1)
    folded = conversation(passing_messages(state, read, lines), state, taken.card.agent)
    tokens = sum(map(estimate_tokens, folded))
    return {
        "segments": len(held),
        "fullMessageCount": len(rows),
        "foldedMessages": count,
        "savedTokens": tokens - sum(one.token_count for one in held),
    }


def _segments(taken: Taken, warnings: list[str]) -> list[Segment]:
    try:
        return stored_segments(taken)
    except IndexerdError as bad:
        warnings.append(str(bad))
        return []

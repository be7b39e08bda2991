"""Compaction by the rules of Codex: all of a conversation is summed up, and what humans said stays.

In: the steps of a context, or its speeches, of any agent. Out: what is summed up, what stays, how
many tokens there are, and whether it is time. Of what stays, the newest is taken whole until
`USERS_TOKENS` are full; of the first message that does not fit both ends are kept, and older ones
go. Pictures, answers, calls and results live on in the summary alone. Nothing is redacted here.

How tokens are counted (S3.23): Codex records what its provider counted for a whole request, and
the adapter notes the newest such number and the row that was the newest then. It holds for every
path through that row. What was said after the model's own last words or calls before it is
estimated and added; after a compaction Codex notes an estimate of all that is left, and only what
came after that is added. Other agents' answers say themselves what was counted. Where nothing
does, all is estimated: bytes of UTF-8 by 4, rounded up, for each speech; a picture is IMAGE_BYTES.

What surprised us: Codex writes the results of calls before the count of the request that made
them, so a result before the newest count may be missing from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from indexerd.digests.compact_opencode import counted
from indexerd.digests.serialize import call_text
from indexerd.events import Kind
from indexerd.sessions.clipped import joined, length
from indexerd.sessions.context import ContextEntry, ContextMessage, Message, _newest
from indexerd.sessions.state import SessionState

NO_SUMMARY = "(no summary available)"  # codex's words
CONTEXT = "context"  # the note {"used", "window", "at"}: tokens, tokens, a row; any may be absent
IMAGE_BYTES = 7373  # what codex counts for a picture in the place of its data
_TOKEN = 4  # bytes
_SHARE = 18, 19  # of a noted window; see `limit_of`


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a compaction would do."""

    history: tuple[ContextMessage, ...]  # to be summed up: everything
    users: tuple[Message, ...]  # what humans said, oldest first, within the budget
    tokens_before: int


def prepare(state: SessionState, steps: Sequence[ContextEntry]) -> Prepared | None:
    """Sum up the context that these steps are; None where nothing is said in it.

    An earlier summary is part of it: nothing is left of what it stood for.
    """
    history = tuple(speech for step in steps for speech in step.speeches)
    if not history:
        return None
    return Prepared(history, users_of(steps), tokens_of(state, steps))


# -- what stays ----------------------------------------------------------------------------------


def users_of(steps: Iterable[ContextEntry]) -> tuple[Message, ...]:
    """What humans said that stays, oldest first: no earlier summary, and no machine's words."""
    return tuple(_newest([one for step in steps for one in _human(step)]))


def _human(step: ContextEntry) -> Iterator[Message]:
    if step.entry.kind is Kind.COMPACTION:
        yield from _brought(step)
    elif step.entry.kind is Kind.USER:
        for speech in step.speeches:
            if speech.role == "user":
                yield Message(speech.role, joined(speech.texts), speech.entry.id)


def _brought(step: ContextEntry) -> Iterator[Message]:
    """What humans said that an earlier compaction has kept."""
    entry = step.entry
    if not step.speeches:
        return  # an older compaction, or one that an edit took out
    for one in entry.details.get("retained", ()):
        if one.get("human"):
            yield Message("user", str(one.get("text", "")), entry.id)
    for speech in step.speeches:
        if speech.entry.id != entry.id:
            yield Message(speech.role, joined(speech.texts), speech.entry.id)


def compacted(users: Iterable[Message], summary: str) -> list[dict[str, Any]]:
    """The history that replaces all others: {role, text, entryId}, the summary last.

    The summary is a message of the user's role, and comes from no entry.
    """
    text = summary if summary.strip() else NO_SUMMARY
    kept = [{"role": one.role, "text": one.text, "entryId": one.entry_id} for one in users]
    return [*kept, {"role": "user", "text": text, "entryId": None}]


# -- tokens --------------------------------------------------------------------------------------


def approx_tokens(text: str) -> int:
    """About how many tokens a text is: bytes of UTF-8 by 4, rounded up."""
    return -(-length(text).bytes // _TOKEN)


def estimate(speech: ContextMessage) -> int:
    """About how many tokens a speech is, with its thoughts, calls and pictures."""
    texts = (*speech.texts, *speech.thinking, *map(call_text, speech.calls))
    size = sum(length(text).bytes for text in texts)
    return -(-(size + speech.images * IMAGE_BYTES) // _TOKEN)


def tokens_of(state: SessionState, steps: Sequence[ContextEntry]) -> int:
    """How many tokens the context takes, as far as that was counted; the rest is estimated."""
    note = noted(state)
    used, at = note.get("used", 0), note.get("at", -1)
    begin = max((one.row for one in steps if one.entry.kind is Kind.COMPACTION), default=-1)
    if used and begin <= at and state.on_path(at):
        rows = [one.row for one in steps if begin < one.row <= at and _is_own(one)]
        since = max(rows, default=at)
        return used + _estimated(one for one in steps if one.row > since)
    used, own = counted(steps)  # another agent's answers say it themselves
    return used + _estimated(steps[own + 1 :])


def noted(state: SessionState) -> dict[str, int]:
    """What Codex counted: `used` and `window` in tokens, `at` a row. What is absent is unknown."""
    held = state.notes.get(CONTEXT)
    found = held if isinstance(held, dict) else {}
    return {key: count for key, count in found.items() if type(count) is int}


def _is_own(step: ContextEntry) -> bool:
    """Whether these are the model's own words or calls, which a count always holds."""
    return any(one.role == "assistant" for one in step.speeches)


def _estimated(steps: Iterable[ContextEntry]) -> int:
    return sum(estimate(speech) for step in steps for speech in step.speeches)


def limit_of(window: int, configured: int = 0) -> int:
    """From how many tokens on Codex compacts by itself; 0 where the window is not known.

    It is 9/10 of the model's whole window, and a configured limit can only lower it
    (`ModelInfo::auto_compact_token_limit` in codex-rs/protocol/src/openai_models.rs, 0.154). The
    `model_context_window` that Codex records is the usable part, 95/100 of the whole one (same
    file, `effective_context_window_percent`), so of that it is 18/19: of 258,400 it is 244,800,
    9/10 of 272,000.
    """
    if window <= 0:
        return max(0, configured)
    part, whole = _SHARE
    limit = window * part // whole
    return min(limit, configured) if configured > 0 else limit


def should_compact(used: int, limit: int) -> bool:
    """Whether it is time: `used` has reached the limit (`total_usage_tokens >= limit`).

    Never without a limit.
    """
    return 0 < limit <= used


# -- too long for the model ----------------------------------------------------------------------


def drop_oldest(speeches: Sequence[ContextMessage]) -> list[ContextMessage]:
    """The conversation without its oldest part, as Codex retries after an overflow (S3.24).

    No result stays whose call has gone, so several speeches may go at once. What is left of an
    empty conversation is empty.
    """
    left, named, called = [], set[str](), False
    for speech in speeches[1:]:
        if speech.role == "toolResult":
            call = speech.result.call if speech.result else ""
            if call not in named if call else not called:
                continue
        called = called or bool(speech.calls)
        named.update(one.id for one in speech.calls if one.id)
        left.append(speech)
    return left

"""Compaction and pruning by the rules of opencode: old output goes first, then all is summed up.

In: the speeches or steps of a context, of any agent. Out: what is pruned, what is summed up, how
many tokens there are, whether it is time. Nothing stays verbatim: what comes after the summary is
new. `prune` is by itself the first phase of any summary (S3.22): results of tools that are older
than the newest 40,000 tokens of results make way for a note, if that saves more than 20,000. It
never touches the last two turns, results that a failed call left, or those of the tool `skill`.

How tokens are counted (S3.23): the number that the provider gave for the newest answer since the
last compaction is the whole context, and what was said after it is not added, since opencode asks
after each answer. Where there is none, all is estimated: UTF-16 units by 4, to the nearest.

What surprised us: opencode looks for what it pruned before, and goes no further back; it counts
a message by its role, so one that a machine put under the user's begins a turn. Here such a one
does not if a human's message follows at once: Codex and Claude put context before every prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from indexerd.digests.serialize import call_text, units
from indexerd.events import Kind, ToolResult
from indexerd.sessions.clipped import joined
from indexerd.sessions.context import CLEARED, ContextEntry, ContextMessage

PRUNE_PROTECT = 40_000  # tokens of the newest results, which stay
PRUNE_MINIMUM = 20_000  # tokens that pruning saves at least, or it is not worth it
PRUNE_TURNS = 2  # newest turns, which stay
PROTECTED_TOOLS = frozenset({"skill"})
RESERVED = 20_000  # tokens kept free by default
OUTPUT_MAX = 32_000  # tokens of an answer, whatever the model could say
INTERRUPTED = "[Tool execution was interrupted]"  # opencode's words
IMAGE_UNITS = 4800  # what a picture counts for; opencode itself counts its data
_TOKEN = 4  # UTF-16 units
_BY_PROVIDER = "srvtoolu_"  # ids of Anthropic's calls that are answered within the same answer


class Pruned(NamedTuple):
    """Results that make way for a note."""

    places: tuple[int, ...]  # among the speeches, ascending
    tokens: int  # that they were


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model takes, in tokens; 0: not known, or no limit of its own."""

    context: int
    output: int = 0
    input: int = 0

    @property
    def max_output(self) -> int:
        """Tokens of an answer that opencode asks for at most."""
        return min(self.output, OUTPUT_MAX) or OUTPUT_MAX


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a compaction would do: sum up all of it, and keep nothing beside."""

    history: tuple[ContextMessage, ...]
    tokens_before: int


def prepare(steps: Sequence[ContextEntry], *, prune: bool = True) -> Prepared | None:
    """Sum up the context that these steps are; None where nothing is said in it.

    The summary before this one is part of the context, and so of what is summed up.
    """
    speeches = model_view([speech for step in steps for speech in step.speeches])
    if not speeches:
        return None
    return Prepared(tuple(pruned(speeches) if prune else speeches), tokens_of(steps))


# -- pruning -------------------------------------------------------------------------------------


def prune(
    speeches: Sequence[ContextMessage],
    *,
    protect: int = PRUNE_PROTECT,
    minimum: int = PRUNE_MINIMUM,
    turns: int = PRUNE_TURNS,
) -> Pruned:
    """Which results make way for a note; none where that saves `minimum` tokens or less."""
    found: list[int] = []
    total = saved = 0
    for place, tokens in _candidates(speeches, turns):
        total += tokens
        if total > protect:
            found.append(place)
            saved += tokens
    return Pruned(tuple(reversed(found)), saved) if saved > minimum else Pruned((), 0)


def pruned(speeches: Sequence[ContextMessage]) -> list[ContextMessage]:
    """The conversation with a note in the place of each result that is pruned."""
    places = set(prune(speeches).places)
    return [_cleared(one) if at in places else one for at, one in enumerate(speeches)]


def _candidates(speeches: Sequence[ContextMessage], turns: int) -> Iterator[tuple[int, int]]:
    """Places and tokens of the results that may be pruned, the newest first."""
    names = {call.id: call.name for one in speeches for call in one.calls if call.id}
    seen = 0
    for place in reversed(range(len(speeches))):
        one = speeches[place]
        if one.role == "user" and _begins_turn(speeches, place):
            seen += 1
        if seen < turns:
            continue
        if _stops(one):
            return
        held = one.result or ToolResult("", text=joined(one.texts))
        name = held.name or names.get(held.call, "")
        done = one.role == "toolResult" and held.call not in one.entry.failed
        if done and name not in PROTECTED_TOOLS:
            yield place, text_tokens(held.text)


def _begins_turn(speeches: Sequence[ContextMessage], place: int) -> bool:
    """Whether a message of the user's role counts as one (see above)."""
    if speeches[place].entry.kind is not Kind.OTHER:
        return True
    follows = speeches[place + 1 : place + 2]
    return not (follows and follows[0].role == "user")


def _stops(speech: ContextMessage) -> bool:
    """Whether what is older was pruned, or summed up, before."""
    if speech.entry.kind is Kind.COMPACTION:
        return True
    return speech.result is not None and speech.result.cleared


def _cleared(speech: ContextMessage) -> ContextMessage:
    result = speech.result and msgspec.structs.replace(speech.result, cleared=True)
    return replace(speech, texts=(CLEARED,), images=0, result=result)


# -- what the model sees -------------------------------------------------------------------------


def model_view(speeches: Sequence[ContextMessage]) -> list[ContextMessage]:
    """What opencode would hand its model of a conversation.

    An answer that ended in an error is left out with what its tools gave; one that was aborted
    stays if it says or calls anything. A call that has no result yet is told to be interrupted.
    """
    gone = [one for one in speeches if _is_lost(one)]
    lost = {id(one.entry) for one in gone}
    calls = {call.id for one in gone for call in one.calls if call.id}
    left = [one for one in speeches if id(one.entry) not in lost and _call_of(one) not in calls]
    answered = {_call_of(one) for one in left}
    return [shown for one in left for shown in (one, *_interrupted(one, answered))]


def _is_lost(speech: ContextMessage) -> bool:
    if speech.role != "assistant":
        return False
    stopped = speech.entry.details.get("stopReason")
    return stopped == "error" or (stopped == "aborted" and not (any(speech.texts) or speech.calls))


def _call_of(speech: ContextMessage) -> str | None:
    """The id of the call that a result is of."""
    return (speech.result.call or None) if speech.result else None


def _interrupted(speech: ContextMessage, answered: set[str | None]) -> Iterator[ContextMessage]:
    """Results for calls of an answer that have none; an id that is not there tells nothing."""
    if speech.entry.kind is not Kind.ASSISTANT:
        return
    for call in speech.calls:
        if call.id and call.id not in answered and not call.id.startswith(_BY_PROVIDER):
            result = ToolResult(call.id, call.name, INTERRUPTED)
            yield ContextMessage("toolResult", speech.entry, (INTERRUPTED,), result=result)


# -- tokens --------------------------------------------------------------------------------------


def text_tokens(text: str) -> int:
    """About how many tokens a text is: UTF-16 units by 4, to the nearest, half up."""
    return _rounded(units(text))


def estimate(speech: ContextMessage) -> int:
    """About how many tokens a speech is, with its thoughts, calls and pictures."""
    texts = (*speech.texts, *speech.thinking, *map(call_text, speech.calls))
    return _rounded(sum(map(units, texts)) + speech.images * IMAGE_UNITS)


def _rounded(size: int) -> int:
    return (size + _TOKEN // 2) // _TOKEN


def tokens_of(steps: Sequence[ContextEntry]) -> int:
    """How many tokens the context takes: as the newest answer counted, or else estimated."""
    tokens, _ = counted(steps)
    return tokens or sum(estimate(speech) for step in steps for speech in step.speeches)


def counted(steps: Sequence[ContextEntry]) -> tuple[int, int]:
    """What the newest answer since the last compaction counted, and the place of its step.

    (0, -1) where there is none. An answer that a compaction keeps was counted with all that the
    compaction took away.
    """
    begin = max((one.place for one in steps if one.entry.kind is Kind.COMPACTION), default=-1)
    for at in reversed(range(len(steps))):
        entry = steps[at].entry
        fresh = entry.kind is Kind.ASSISTANT and steps[at].place > begin
        if fresh and entry.tokens is not None and entry.tokens.total > 0:
            return entry.tokens.total, at
    return 0, -1


def usable(limits: Limits, reserved: int | None = None) -> int:
    """Tokens that a context may take before it is compacted; 0 where the window is not known.

    `reserved` is what the user keeps free; 20,000 or an answer's most by default. Of a model
    without a limit of its own for what it is given, an answer's most stays free instead.
    """
    if limits.context <= 0:
        return 0
    free = min(RESERVED, limits.max_output) if reserved is None else reserved
    if limits.input > 0:
        return max(0, limits.input - free)
    return max(0, limits.context - limits.max_output)


def should_compact(
    tokens: int, limits: Limits, *, auto: bool = True, reserved: int | None = None
) -> bool:
    """Whether it is time; never where it is turned off or the window is not known."""
    return auto and limits.context > 0 and tokens >= usable(limits, reserved)

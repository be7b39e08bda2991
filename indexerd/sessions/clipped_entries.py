"""An entry without what nobody will use of its long texts: what sums a session up, or counts it.

In: an entry, read in full. Out: the same one; of a tool's result only the beginning stays, of
anybody's words and of what a call was given both ends (sessions/clipped.py). So one entry at a
time is whole in memory: of two hundred megabytes of results a few hundred kilobytes stay.

What sums up, a compaction's or a branch's entry, stays as it is: it is compared with what came of
it. What fits stays the very text that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from indexerd.events import Compaction, Entry, Kind, ToolCall, ToolResult
from indexerd.sessions.clipped import Clipped, Written, clip, fits
from indexerd.sessions.serialize import arguments, js_json

_ANY = 1 << 62
_SUMMARIES = frozenset({Kind.COMPACTION, Kind.BRANCH_SUMMARY})


class Keep(NamedTuple):
    """How many characters stay of a text."""

    result: int  # at the beginning of a tool's result
    head: int  # of words, at the beginning
    tail: int  # and at the end
    given: int  # at each end of what a call was given


# Of a result pi's summaries have 2,000 units (digests/serialize.py), and of what a human said Codex
# keeps both ends, 40,000 bytes each (sessions/context.py): no rule looks at more of one text.
SUMMED = Keep(result=2000, head=100_000, tail=50_000, given=8_000)
WHOLE = Keep(result=_ANY, head=_ANY, tail=0, given=8_000)  # for whoever bounds the texts himself
COUNTED = Keep(result=64, head=64, tail=0, given=64)  # for whoever only counts

_Clip = Callable[[str], str]


def clipped(entry: Entry, keep: Keep) -> Entry:
    """An entry with what is kept of it."""

    def words(text: str) -> str:
        return clip(text, keep.head, keep.tail)

    def result(text: str) -> str:
        return clip(text, keep.result)

    texts = entry.texts
    if entry.kind is Kind.TOOL:
        texts = _of_results(entry, result)
    elif entry.kind not in _SUMMARIES:
        texts = tuple(map(words, texts))
    return replace(
        entry,
        texts=texts,
        thinking=tuple(map(words, entry.thinking)),
        tools=tuple(_call(one, keep.given) for one in entry.tools),
        results=tuple(_result(one, result) for one in entry.results),
        sent=_sent(entry, result if entry.kind is Kind.TOOL else words),
        ran=entry.ran
        and replace(entry.ran, command=words(entry.ran.command), output=words(entry.ran.output)),
        edit=entry.edit
        and replace(
            entry.edit,
            texts=tuple(map(words, entry.edit.texts)),
            thinking=tuple(map(words, entry.edit.thinking)),
        ),
        compaction=entry.compaction and _compaction(entry.compaction, words, result),
    )


def _sent(entry: Entry, short: _Clip) -> tuple[str, ...] | None:
    if entry.sent is None or entry.kind in _SUMMARIES:
        return entry.sent
    return tuple(map(short, entry.sent))


def _compaction(held: Compaction, words: _Clip, result: _Clip) -> Compaction:
    if held.retained is None:
        return held
    short = (
        replace(one, text=(result if one.role == "toolResult" else words)(one.text))
        for one in held.retained
    )
    return replace(held, retained=tuple(short))


def _of_results(entry: Entry, result: _Clip) -> tuple[str, ...]:
    """The texts of a line of results, those of the results as the results themselves have them.

    Whoever tells from them what else is said on the line finds them at the end.
    """
    whole, held = "".join(entry.texts), "".join(one.text for one in entry.results)
    if not entry.results or not whole.endswith(held):
        return tuple(map(result, entry.texts))
    said = whole[: len(whole) - len(held)]
    return (*([result(said)] if said else []), *(result(one.text) for one in entry.results))


def _result(one: ToolResult, result: _Clip) -> ToolResult:
    text = result(one.text)
    return one if text is one.text else replace(one, text=text)


def _call(call: ToolCall, ends: int) -> ToolCall:
    if fits(call.arguments, 2 * ends):
        return call
    given = arguments(call)
    if isinstance(given, dict):
        kept = {key: _value(one, ends) for key, one in given.items()}
        given = kept if fits(kept, 8 * ends) else given
    if not fits(given, 8 * ends):
        given = _value(given, ends)
    return replace(call, arguments=given)


def _value(value: Any, ends: int) -> Any:
    if fits(value, 2 * ends):
        return value
    text = clip(js_json(value), ends, ends)
    return Written(text, text.lost) if isinstance(text, Clipped) else value

"""Entries with their long texts cut to what a summary or a count needs.

In: an entry, read in full. Out: the same one; of a tool's result only the beginning stays, of
anybody's words and of what a call was given both ends (sessions/clipped.py). So one entry at a
time is whole in memory: of two hundred megabytes of results a few hundred kilobytes stay.

What sums up, a compaction's or a branch's entry, stays as it is: it is compared with what came of
it. What fits stays the very text that it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from indexerd.events import Entry, Kind, ToolCall
from indexerd.sessions.clipped import Clipped, Written, about, clip
from indexerd.sessions.serialize import arguments, js_json

_ANY = 1 << 62
_SUMMARIES = frozenset({Kind.COMPACTION, Kind.BRANCH_SUMMARY})


@dataclass(frozen=True, slots=True)
class Keep:
    """How many characters stay of a text."""

    result: int  # at the beginning of a tool's result
    head: int  # of words, at the beginning
    tail: int  # and at the end
    given: int  # at each end of what a call was given

    def results(self, texts: Iterable[str]) -> tuple[str, ...]:
        """What stays of results of tools."""
        return tuple([clip(text, self.result) for text in texts])

    def words(self, texts: Iterable[str]) -> tuple[str, ...]:
        """What stays of anybody's words."""
        return tuple([clip(text, self.head, self.tail) for text in texts])


# Of a result pi's summaries have 2,000 units (sessions/serialize.py), and of what a human said
# Codex keeps both ends, 40,000 bytes each (sessions/context.py): no rule looks at more of one text.
SUMMED = Keep(result=2000, head=100_000, tail=50_000, given=8_000)
WHOLE = Keep(result=_ANY, head=_ANY, tail=0, given=8_000)  # for whoever bounds the texts himself
COUNTED = Keep(result=64, head=64, tail=0, given=64)  # for whoever only counts


def clipped(entry: Entry, keep: Keep) -> Entry:
    """An entry with what is kept of it."""
    of = keep.results if entry.kind is Kind.TOOL else keep.words
    ran, edit, held = entry.ran, entry.edit, entry.compaction
    if ran:
        command, output = keep.words((ran.command, ran.output))
        ran = replace(ran, command=command, output=output)
    if edit:
        edit = replace(edit, texts=keep.words(edit.texts), thinking=keep.words(edit.thinking))
    if held and held.retained is not None:
        short = [
            (keep.results if one.role == "toolResult" else keep.words)((one.text,))[0]
            for one in held.retained
        ]
        pairs = zip(held.retained, short, strict=True)
        held = replace(held, retained=tuple([replace(one, text=text) for one, text in pairs]))
    sums = entry.kind in _SUMMARIES
    texts = _texts_of_results(entry, keep) if entry.kind is Kind.TOOL else keep.words(entry.texts)
    return replace(
        entry,
        texts=entry.texts if sums else texts,
        thinking=keep.words(entry.thinking),
        tools=tuple([_call(one, keep.given) for one in entry.tools]),
        results=tuple([replace(one, text=clip(one.text, keep.result)) for one in entry.results]),
        sent=entry.sent if sums or entry.sent is None else of(entry.sent),
        ran=ran,
        edit=edit,
        compaction=held,
    )


def _texts_of_results(entry: Entry, keep: Keep) -> tuple[str, ...]:
    """The texts of a line of results, those of the results as the results themselves have them.

    Whoever tells from them what else is said on the line finds them at the end.
    """
    whole, held = "".join(entry.texts), "".join(one.text for one in entry.results)
    if not entry.results or not whole.endswith(held):
        return keep.results(entry.texts)
    said = whole[: len(whole) - len(held)]
    return keep.results([*([said] if said else []), *(one.text for one in entry.results)])


def _call(call: ToolCall, ends: int) -> ToolCall:
    given = call.arguments
    if about(given, 2 * ends) <= 2 * ends:
        return call
    given = arguments(call)
    if isinstance(given, dict):
        given = {key: _value(one, ends) for key, one in given.items()}
    if about(given, 8 * ends) > 8 * ends:
        given = _value(arguments(call), ends)
    return replace(call, arguments=given)


def _value(value: Any, ends: int) -> Any:
    if about(value, 2 * ends) <= 2 * ends:
        return value
    text = clip(js_json(value), ends, ends)
    return Written(text, text.lost) if isinstance(text, Clipped) else value

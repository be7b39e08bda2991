"""Cut the long texts of entries to what a summary or a count needs.

A tool's result keeps its beginning; words and the arguments of a call keep both ends: of two
hundred megabytes of results a few hundred kilobytes stay in memory. A text that was cut is a
`Clipped`: a note in it says how much is left out, and `lost` is its length, so that counts of
tokens stay right. Code that joins or measures such texts uses `joined` and `units`; to all other
code they are plain texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from msgspec.structs import replace

from indexerd.events import Entry, Kind, ToolCall
from indexerd.privacy.sanitize import replace_surrogates

LEFT_OUT = "\n[... {count} characters left out ...]\n"
_NOTE_MAX = len(LEFT_OUT) + 20
_NEAR = 4096  # characters in which a border is looked for
_SUMMARIES = frozenset({Kind.COMPACTION, Kind.BRANCH_SUMMARY})


class Clipped(str):
    """A text, or a value's JSON, that was cut; `lost`: how many UTF-16 units longer it was."""

    __slots__ = ("lost",)
    lost: int

    def __new__(cls, text: str, lost: int) -> Self:
        found = super().__new__(cls, text)
        found.lost = lost
        return found


def units(text: str) -> int:
    """Return a text's length in UTF-16 units, as JavaScript counts, before it was cut."""
    size = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    return size + (text.lost if isinstance(text, Clipped) else 0)


def clip(text: str, head: int, tail: int = 0) -> str:
    """Keep the first and the last characters of a long text, and put a note between them.

    A text that keeps both ends is cut between lines, or else between words, where there are any
    nearby: half a secret would not be recognised.
    """
    if len(text) <= head + tail + _NOTE_MAX:
        return text
    end = len(text) - tail
    if tail:
        least = max(0, head - _NEAR)
        before = [text.rfind(mark, least, head) for mark in ("\n", " ")]
        after = [text.find(mark, end, end + _NEAR) for mark in ("\n", " ")]
        head = next((at for at in before if at >= 0), head)
        end = next((at for at in after if at >= 0), end)
    kept = text[:head] + LEFT_OUT.format(count=end - head) + text[end:]
    return Clipped(kept, units(text) - units(kept))


def joined(texts: Sequence[str], between: str = "") -> str:
    """Join texts to one that is as long as they were."""
    text, lost = between.join(texts), sum(one.lost for one in texts if isinstance(one, Clipped))
    return Clipped(text, lost) if lost else text


def about(value: object, most: int) -> int:
    """Estimate a value's length as JSON; stop looking beyond `most`."""
    size, todo = 0, [value]
    while todo and size <= most:
        one = todo.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            todo += one
        size += 4
    return size


def arguments(call: ToolCall) -> Any:
    """Return the arguments of a call; an object that is stored as text is parsed."""
    held = call.arguments
    if isinstance(held, str) and held.lstrip()[:1] == "{":
        try:
            return json.loads(held)
        except (ValueError, RecursionError):
            pass
    return held


@dataclass(frozen=True, slots=True)
class Keep:
    """How many characters stay of a text."""

    result: int  # at the beginning of a tool's result
    head: int  # of words, at the beginning
    tail: int  # and at the end
    given: int  # at each end of an argument of a call


# pi's summaries have 2,000 units of a result (sessions/context.py), and Codex keeps both ends of
# what a human said, 40,000 bytes each: no rule looks at more of one text.
SUMMED = Keep(result=2000, head=100_000, tail=50_000, given=8_000)
COUNTED = Keep(result=64, head=64, tail=0, given=64)  # for counts


def clipped(entry: Entry, keep: Keep) -> Entry:
    """Clip an entry's texts; a summary stays whole."""

    def words(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple([clip(text, keep.head, keep.tail) for text in texts])

    texts, sent, ran = entry.texts, entry.sent, entry.ran
    if entry.kind is Kind.TOOL:  # texts of results stay those of the results: see context.py
        rest = beside_results(entry, texts)
        if rest is not None:
            texts = (*([rest] if rest else []), *(one.text for one in entry.results))
        texts = tuple([clip(text, keep.result) for text in texts])
    elif entry.kind not in _SUMMARIES:
        texts = words(texts)
        sent = sent if sent is None else words(sent)
    return replace(
        entry,
        texts=texts,
        sent=sent,
        thinking=words(entry.thinking),
        tools=tuple([_call(one, keep.given) for one in entry.tools]),
        results=tuple([replace(one, text=clip(one.text, keep.result)) for one in entry.results]),
        ran=replace(ran, output=clip(ran.output, keep.head, keep.tail)) if ran else ran,
    )


def beside_results(entry: Entry, texts: Sequence[str]) -> str | None:
    """Return the text before a line's results; None where its texts are not theirs."""
    whole, held = "".join(texts), "".join(one.text for one in entry.results)
    return whole[: len(whole) - len(held)] if entry.results and whole.endswith(held) else None


def _call(call: ToolCall, ends: int) -> ToolCall:
    if about(call.arguments, 2 * ends) <= 2 * ends:
        return call
    given = arguments(call)
    if isinstance(given, dict) and len(given) <= ends // 8:
        return replace(call, arguments={key: _value(one, ends) for key, one in given.items()})
    return replace(call, arguments=_value(given, ends))


def _value(value: Any, ends: int) -> Any:
    """Replace a long value by both ends of its JSON."""
    if about(value, 2 * ends) <= 2 * ends:
        return value
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None
    text = clip(replace_surrogates(text), ends, ends)
    return text if isinstance(text, Clipped) else value

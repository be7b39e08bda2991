"""Cut the long texts of entries to what a summary or a count needs.

A tool result keeps its beginning; prose and the arguments of a call keep both ends: of 200 MB of
results a few hundred KB stay in memory. A text that was cut is a `Clipped`: a note in it says how
much was left out, and `lost` counts it, so that token counts stay right. Code that joins or
measures such texts uses `joined` and `units`; to all other code they are plain strings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from msgspec.structs import replace

from indexerd.entries import Entry, Kind, ToolCall
from indexerd.privacy.sanitize import replace_surrogates

LEFT_OUT = "\n[... {count} characters left out ...]\n"
_NOTE_MAX = len(LEFT_OUT) + 20
_NEAR = 4096  # characters searched for a line or word boundary
_SUMMARIES = frozenset({Kind.COMPACTION, Kind.BRANCH_SUMMARY})


class Clipped(str):
    """A text, or a value's JSON, that was cut by `lost` UTF-16 units."""

    __slots__ = ("lost",)
    lost: int

    def __new__(cls, text: str, lost: int) -> Self:
        new = super().__new__(cls, text)
        new.lost = lost
        return new


def units(text: str) -> int:
    """Return a text's length before it was cut, in UTF-16 units, as JavaScript counts."""
    size = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    return size + (text.lost if isinstance(text, Clipped) else 0)


def clip(text: str, head: int, tail: int = 0) -> str:
    """Keep the first `head` and last `tail` characters of a long text, with a note between.

    If both ends are kept, the cuts are at line ends or else spaces, if any are near: half a secret
    would not be recognised.
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
    """Join texts; the result's `lost` is the sum of theirs."""
    text, lost = between.join(texts), sum(part.lost for part in texts if isinstance(part, Clipped))
    return Clipped(text, lost) if lost else text


def arguments(call: ToolCall) -> Any:
    """Return the arguments of a call; an object stored as text is parsed."""
    stored = call.arguments
    if isinstance(stored, str) and stored.lstrip()[:1] == "{":
        try:
            return json.loads(stored)
        except (ValueError, RecursionError):
            pass
    return stored


@dataclass(frozen=True, slots=True)
class Keep:
    """How many characters of each kind of text to keep."""

    result: int  # at the beginning of a tool result
    head: int  # at the beginning of prose
    tail: int  # at the end of prose
    given: int  # at each end of a call's argument


# pi's summaries use 2,000 units of a result (sessions/context.py), and Codex keeps 40,000 bytes at
# each end of a human's message: no rule reads more of one text.
SUMMED = Keep(result=2000, head=100_000, tail=50_000, given=8_000)
COUNTED = Keep(result=64, head=64, tail=0, given=64)  # for counts


def clipped(entry: Entry, keep: Keep) -> Entry:
    """Clip an entry's texts; a summary stays whole."""

    def words(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple([clip(text, keep.head, keep.tail) for text in texts])

    texts, sent, ran = entry.texts, entry.sent, entry.ran
    if entry.kind is Kind.TOOL:  # must still end with the results' texts: see `beside_results`
        rest = beside_results(entry, texts)
        if rest is not None:
            texts = (*([rest] if rest else []), *(result.text for result in entry.results))
        texts = tuple([clip(text, keep.result) for text in texts])
    elif entry.kind not in _SUMMARIES:
        texts = words(texts)
    if sent is not None and entry.kind not in _SUMMARIES:
        sent = words(sent)
    return replace(
        entry,
        texts=texts,
        sent=sent,
        thinking=words(entry.thinking),
        tools=tuple([_call(call, keep.given) for call in entry.tools]),
        results=tuple([replace(r, text=clip(r.text, keep.result)) for r in entry.results]),
        ran=replace(ran, output=clip(ran.output, keep.head, keep.tail)) if ran else ran,
    )


def beside_results(entry: Entry, texts: Sequence[str]) -> str | None:
    """Return the text before an entry's results; None if its texts do not end with theirs."""
    whole, results = "".join(texts), "".join(result.text for result in entry.results)
    return whole.removesuffix(results) if entry.results and whole.endswith(results) else None


def _call(call: ToolCall, ends: int) -> ToolCall:
    parsed = arguments(call)
    if isinstance(parsed, dict) and len(parsed) <= ends // 8:
        return replace(call, arguments={key: _value(value, ends) for key, value in parsed.items()})
    return replace(call, arguments=_value(parsed, ends))


def _value(value: Any, ends: int) -> Any:
    """Replace a long value by both ends of its JSON."""
    if isinstance(value, str) and len(value) <= ends:
        return value
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None
    text = clip(replace_surrogates(text), ends, ends)
    return text if isinstance(text, Clipped) else value

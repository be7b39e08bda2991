"""Texts shortened in the middle or at the end, which know their original length.

In: any text. Out: in the place of a long one a `Clipped`: it says within itself how much is left
out, and has the length of the whole, so that counts of tokens are right. What joins or measures
texts that may be such does so by the functions below; to all else they are plain texts.

A text that keeps both ends is cut between lines, or else between words, where there are any
nearby: half a secret would not be known for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

LEFT_OUT = "\n[... {count} characters left out ...]\n"
_NOTE_MAX = len(LEFT_OUT) + 20
_NEAR = 4096  # characters in which a border is looked for


class Length(NamedTuple):
    """How long a text is, in UTF-16 units and in bytes of UTF-8."""

    units: int
    bytes: int


class Clipped(str):
    """A text of which something is left out; `lost` is how much longer the whole was."""

    __slots__ = ("lost",)
    lost: Length

    def __new__(cls, text: str, lost: Length) -> Self:
        """`text` is what stays, with its note."""
        found = super().__new__(cls, text)
        found.lost = lost
        return found


class Written(Clipped):
    """What stays of a value's JSON, in the place of the value."""

    __slots__ = ()


def length(text: str) -> Length:
    """The length of a text, with what is left out of it."""
    units, size = len(text), len(text)
    if not text.isascii():
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        size = len(text.encode("utf-8", "replace"))
    lost = text.lost if isinstance(text, Clipped) else Length(0, 0)
    return Length(units + lost.units, size + lost.bytes)


def clip(text: str, head: int, tail: int = 0) -> str:
    """The first and the last characters of a text, and a note between; or all of a short one."""
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
    whole, here = length(text), length(kept)
    return Clipped(kept, Length(whole.units - here.units, whole.bytes - here.bytes))


def joined(texts: Sequence[str], between: str = "") -> str:
    """Texts as one, which is as long as they were."""
    text = between.join(texts)
    lost = [one.lost for one in texts if isinstance(one, Clipped)]
    if not lost:
        return text
    return Clipped(text, Length(sum(one.units for one in lost), sum(one.bytes for one in lost)))


def about(value: object, most: int) -> int:
    """About how long a value is as JSON; what is longer than `most` is not looked at to its end."""
    size, todo = 0, [value]
    while todo and size <= most:
        one = todo.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            todo += one
        size += 4
    return size

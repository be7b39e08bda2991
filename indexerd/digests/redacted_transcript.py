"""A conversation as redacted text, in parts that stay whole: what a summary is made from.

The parts (sessions/serialize.py) are redacted as one text, so that a secret that spans two
messages is seen, and split again. Whose words a part is, is known from its message, and never
read out of its text: a tool's output may hold lines that look like somebody's message. Between
the parts stand numbers, in characters that are taken out of every text first; where redaction
took such a mark away, two parts are one, which is nobody's unless both were the same one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from indexerd.digests.summarizable import speaker
from indexerd.privacy.redact import Redactor
from indexerd.sessions.clipped import LEFT_OUT
from indexerd.sessions.context import ContextMessage

_WORDS = ("[User]: ", "[Assistant]: ")
_RESULT = "[Tool result]: "
# Separators of old: no text needs them, redaction takes them for white space, and they are ASCII.
_BEGIN, _ZERO, _ONE, _END = "\x1e", "\x1c", "\x1d", "\x1f"
_DIGITS = str.maketrans("01", _ZERO + _ONE)
_NUMBERS = str.maketrans(_ZERO + _ONE, "01")
_MARK = re.compile(rf"{_BEGIN}([{_ZERO}{_ONE}]{{1,64}}){_END}")
_MARKS = re.compile(rf"[{_BEGIN}{_ZERO}{_ONE}{_END}]+")
DROPPED_SHARE = 4  # of what is too large, a fourth goes at a time


class Part(NamedTuple):
    """A message, a call or a result as text. `role`: user or assistant, whose words it is."""

    text: str
    role: str = ""

    @property
    def size(self) -> int:
        """Bytes of it, and of the blank line after it."""
        return len(self.text.encode("utf-8", "replace")) + 2


@dataclass(frozen=True, slots=True)
class RedactedTranscript:
    """Parts, oldest first, and the counts of what was redacted in them."""

    parts: tuple[Part, ...] = ()
    redactions: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n\n".join(one.text for one in self.parts)


NO_PARTS = RedactedTranscript()


def redact_parts(
    lines: Iterable[tuple[ContextMessage, str]], clean: Redactor
) -> RedactedTranscript:
    """Redact the parts of a conversation (`serialize.parts_of`) together."""
    roles, marked = list[str](), list[str]()
    for message, text in lines:
        mark = _BEGIN + f"{len(roles):b}".translate(_DIGITS) + _END
        marked.append(mark + _MARKS.sub("", text))
        roles.append(speaker(message) if text.startswith(_WORDS) else "")
    if not marked:
        return RedactedTranscript()
    cleaned, counts = clean("\n\n".join(marked))
    return RedactedTranscript(tuple(_split(cleaned, roles)), counts)


def _split(cleaned: str, roles: Sequence[str]) -> Iterator[Part]:
    before, *split = _MARK.split(cleaned)
    numbers = [int(one.translate(_NUMBERS), 2) for one in split[::2]]
    texts = split[1::2]
    if before:  # the first mark is gone: nothing stood before it
        numbers, texts = [0, *numbers], [before, *texts]
    texts[:-1] = [one.removesuffix("\n\n") for one in texts[:-1]]
    ends = [*numbers[1:], len(roles)]
    for first, end, text in zip(numbers, ends, texts, strict=True):
        spoken = set(roles[first:end])
        yield Part(_MARKS.sub("", text), spoken.pop() if len(spoken) == 1 else "")


def words_in(parts: Iterable[Part]) -> tuple[tuple[str, str], ...]:
    """("user" | "assistant", words) of the parts that are messages."""
    return tuple((one.role, _unlabelled(one.text)) for one in parts if one.role)


def _unlabelled(text: str) -> str:
    label = next((one for one in _WORDS if text.startswith(one)), "")
    return text[len(label) :]


def take(parts: Sequence[Part], size: int) -> tuple[list[Part], list[Part]]:
    """The first parts that fit into `size` bytes, at least one, and the rest.

    A part that is too long by itself loses its middle, and says how much.
    """
    held = 0
    for at, part in enumerate(parts):
        held += part.size
        if held > size:
            if at:
                return list(parts[:at]), list(parts[at:])
            return [_shortened(part, size)], list(parts[1:])
    return list(parts), []


def without_oldest(parts: Sequence[Part]) -> list[Part]:
    """The parts without their oldest fourth, and without results whose calls went with it."""
    total = sum(len(one.text) for one in parts)
    gone = 0
    for at, part in enumerate(parts):
        if gone * DROPPED_SHARE >= total and not part.text.startswith(_RESULT):
            return list(parts[at:])
        gone += len(part.text)
    return []


def _shortened(part: Part, size: int) -> Part:
    """A part of so many bytes at most, but for a note where its middle was."""
    data = part.text.encode("utf-8", "replace")
    half = max(0, size // 2 - 64)
    head = data[:half].decode("utf-8", "ignore")
    tail = data[len(data) - half :].decode("utf-8", "ignore")
    left_out = len(part.text) - len(head) - len(tail)
    return Part(head + LEFT_OUT.format(count=left_out) + tail, part.role)

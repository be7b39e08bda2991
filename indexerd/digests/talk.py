"""A conversation as redacted text, in parts that stay whole: what a summary is made from.

In: parts in pi's line format (digests/serialize.py), each with its speech. Out: the same, redacted
as one text, so that a secret that spans two messages is seen; chunks of them that fit a model; and
for the built-in model the messages that were said.

Whose words a part is, is known from its speech, and never read out of its text: a tool's output
may hold lines that look like somebody's message. Between the parts stand numbers, in characters
that are taken out of every text first; where redaction took such a mark away, two parts are one,
which is nobody's unless both were the same one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from indexerd.digests.spoken import whose
from indexerd.privacy.redactor import Redactor
from indexerd.sessions.clipped import LEFT_OUT
from indexerd.sessions.context import ContextMessage

LABELS = ("User", "Assistant", "Assistant thinking", "Assistant tool calls", "Tool result")
_ROLES = {"User": "user", "Assistant": "assistant"}
_LABEL = re.compile(rf"\[({'|'.join(LABELS)})\]: ")
# Separators of old: no text needs them, redaction takes them for white space, and they are ASCII.
_BEGIN, _ZERO, _ONE, _END = "\x1e", "\x1c", "\x1d", "\x1f"
_SIGNS = (_BEGIN, _ZERO, _ONE, _END)
_DIGITS = str.maketrans({"0": _ZERO, "1": _ONE})
_NUMBERS = str.maketrans({_ZERO: "0", _ONE: "1"})
_MARK = re.compile(rf"{_BEGIN}([{_ZERO}{_ONE}]{{1,64}}){_END}")
_MARKS = re.compile(rf"[{_BEGIN}{_ZERO}{_ONE}{_END}]+")
DROPPED_SHARE = 4  # of what is too large, a fourth goes at a time


class Part(str):
    """A message, a call or a result as text. `role`: user or assistant, whose words it is."""

    __slots__ = ("role",)
    role: str

    def __new__(cls, text: str, role: str = "") -> Self:
        """`role` is "" for what nobody said."""
        part = super().__new__(cls, text)
        part.role = role
        return part


@dataclass(frozen=True, slots=True)
class Talk:
    """Parts, oldest first, and what was taken out of them."""

    parts: tuple[str, ...] = ()
    redactions: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n\n".join(self.parts)


NO_TALK = Talk()


def talk_of(lines: Iterable[tuple[ContextMessage, str]], clean: Redactor) -> Talk:
    """Redact the parts of a conversation (`serialize.lines_of`) together, and split them again."""
    roles, marked = list[str](), list[str]()
    for speech, text in lines:
        marked.append(_mark(len(roles)) + _unmarked(text))
        label = _LABEL.match(text)  # our own: no text of theirs stands before it
        roles.append(whose(speech) if label and label[1] in _ROLES else "")
    if not marked:
        return NO_TALK
    cleaned, counts = clean("\n\n".join(marked))
    return Talk(tuple(_parts(cleaned, roles)), counts)


def _mark(number: int) -> str:
    return _BEGIN + f"{number:b}".translate(_DIGITS) + _END


def _parts(cleaned: str, roles: Sequence[str]) -> Iterable[Part]:
    """The text in parts again, each with whose words it is."""
    before, *split = _MARK.split(cleaned)
    numbers = [int(one.translate(_NUMBERS), 2) for one in split[::2]]
    texts = split[1::2]
    if before:  # the first mark is gone: nothing stood before it
        numbers, texts = [0, *numbers], [before, *texts]
    texts[:-1] = [one.removesuffix("\n\n") for one in texts[:-1]]
    ends = [*numbers[1:], len(roles)]
    for first, end, text in zip(numbers, ends, texts, strict=True):
        spoken = set(roles[first:end])
        yield Part(_unmarked(text), spoken.pop() if len(spoken) == 1 else "")


def _unmarked(text: str) -> str:
    """A text without the characters that marks are made of."""
    return _MARKS.sub("", text) if any(one in text for one in _SIGNS) else text


def said_in(parts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """("user" | "assistant", text) of the parts that are messages.

    A text that is no `Part` goes by the label that it begins with.
    """
    found = []
    for part in parts:
        label = _LABEL.match(part)
        role = part.role if isinstance(part, Part) else _ROLES.get(label[1]) if label else None
        if role:
            found.append((role, part[label.end() :] if label else str(part)))
    return tuple(found)


def taken(parts: Sequence[str], size: int) -> tuple[list[str], list[str]]:
    """The first parts that fit into `size` bytes, at least one, and the rest.

    A part that is too long by itself loses its middle, and says how much.
    """
    held = 0
    for at, part in enumerate(parts):
        held += len(part.encode("utf-8", "replace")) + 2
        if held > size:
            if at:
                return list(parts[:at]), list(parts[at:])
            return [_shortened(part, size)], list(parts[1:])
    return list(parts), []


def without_oldest(parts: Sequence[str]) -> list[str]:
    """The parts without their oldest fourth, and without results whose calls went with it."""
    total = sum(len(part) for part in parts)
    gone = 0
    for at, part in enumerate(parts):
        if gone * DROPPED_SHARE >= total and not part.startswith("[Tool result]: "):
            return list(parts[at:])
        gone += len(part)
    return []


def _shortened(part: str, size: int) -> str:
    """A text with so many bytes at most, but for a note where its middle was."""
    data = part.encode("utf-8", "replace")
    half = max(0, size // 2 - 64)
    head = data[:half].decode("utf-8", "ignore")
    tail = data[len(data) - half :].decode("utf-8", "ignore")
    text = head + LEFT_OUT.format(count=len(part) - len(head) - len(tail)) + tail
    return Part(text, part.role) if isinstance(part, Part) else text

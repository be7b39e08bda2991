"""A conversation as redacted text, in parts that stay whole: what a summary is made from.

In: text in pi's line format (core/serialize.py), redacted as a whole, so that a secret that spans
two messages is seen. Out: its parts, each a message, a call or a result; chunks of them that fit a
model; and for the built-in model the messages that were said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from indexerd.core.transcript import Redactor

LABELS = ("User", "Assistant", "Assistant thinking", "Assistant tool calls", "Tool result")
_ROLES = {"User": "user", "Assistant": "assistant"}
_BORDER = re.compile(rf"\n\n(?=\[(?:{'|'.join(LABELS)})\]: )")
_LABEL = re.compile(rf"\[({'|'.join(LABELS)})\]: ")
_LEFT_OUT = "\n[... {count} characters left out ...]\n"
DROPPED_SHARE = 4  # of what is too large, a fourth goes at a time


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


def talk_of(text: str, clean: Redactor) -> Talk:
    """Redact a serialised conversation, and split it at its messages."""
    if not text:
        return NO_TALK
    cleaned, counts = clean(text)
    return Talk(tuple(_BORDER.split(cleaned)), counts)


def said_in(parts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """("user" | "assistant", text) of the parts that are messages."""
    found = []
    for part in parts:
        label = _LABEL.match(part)
        role = _ROLES.get(label[1]) if label else None
        if label and role:
            found.append((role, part[label.end() :]))
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
    return head + _LEFT_OUT.format(count=len(part) - len(head) - len(tail)) + tail

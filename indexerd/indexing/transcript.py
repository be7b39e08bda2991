"""The transcript that is sent to a model: the newest text within a cap.

Sections are `User: …` or `Assistant: …`, separated by blank lines, and read newest first until the
cap is passed. The joined text is redacted before it is truncated, so a secret is found whole even
if the cut would split it or it spans two messages. Sections that an earlier summary covers are left
out, unless a secret spans the border between them and the new ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from indexerd.privacy.redact import Redactor

MARKER = "[Conversation truncated — only the most recent portion is shown]"
MESSAGE_MAX = 4 * 1024 * 1024  # characters of one message that are read
# Read beyond the cap, measured after redaction: if the beginning of a secret was not read, its rest
# is no longer than this, so the cut removes it.
BEYOND_BYTES = 4096
BEYOND_LINES = 64
_SPEAKER = re.compile(r"\n(?<!\n\n)\n(?:\n\n)*(User|Assistant): ")  # starts a section

_T = TypeVar("_T")


class Section(NamedTuple):
    """One message with text. `role` is user or assistant."""

    role: str
    text: str
    old: bool = False  # covered by an earlier summary

    def __str__(self) -> str:
        return f"{self.role.capitalize()}: {self.text}"


class Caps(NamedTuple):
    """Limits of one text, in UTF-8 bytes and in lines."""

    max_bytes: int
    max_lines: float = math.inf

    def passed(self, text: str) -> bool:
        return size_of(text) > self.max_bytes or text.count("\n") >= self.max_lines


# What a local model reads costs nothing, but one thread reads for all sessions.
LOCAL_CAPS = Caps(2_000_000, 20_000)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text to send, and facts about what was left out."""

    text: str
    truncated: bool  # the text lacks some of its sections
    redactions: dict[str, int]  # in the text
    sections: tuple[Section, ...]  # all that were read: redacted, oldest first
    only_new: bool  # the text holds no old section
    cut: bool  # the whole history, old and new, is larger than the cap


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def assemble(
    newest_first: Iterable[Section], caps: Caps, redact: Redactor, read: Caps | None = None
) -> Transcript:
    """Read sections, newest first, until `read` is passed; redact, cut to `caps`, mark the text."""
    taken, text, counts = redact_newest(newest_first, str, read or caps, redact)
    sections, cut = _sections(text), caps.passed(text)
    fresh = [str(section) for section in taken if not section.old]
    only_new = len(fresh) == len(taken)
    if fresh and not only_new:
        new, new_counts = redact("\n\n".join(fresh))
        only_new = text.endswith(f"\n\n{new}")
        text, counts = (new, new_counts) if only_new else (text, counts)
    kept, truncated = truncate_tail(text, caps)
    sent = f"{kept}\n\n{MARKER}" if truncated else kept
    return Transcript(sent, truncated, counts, sections, only_new, cut)


def redact_newest(
    newest_first: Iterable[_T], render: Callable[[_T], str], caps: Caps, redact: Redactor
) -> tuple[list[_T], str, dict[str, int]]:
    """Read items until they pass the caps, and redact them as one text.

    Returns the items, oldest first; their redacted text, joined by blank lines; and the counts of
    redactions. If redaction shrinks the text too much, twice as much is read.
    """
    source, taken, texts = iter(newest_first), list[_T](), list[str]()
    size = lines = -2
    wanted = limit = Caps(caps.max_bytes + BEYOND_BYTES, caps.max_lines + BEYOND_LINES)
    while True:
        more = False
        for item in source:
            rendered = render(item)
            taken.append(item)
            texts.append(rendered)
            size, lines = size + size_of(rendered) + 2, lines + rendered.count("\n") + 2
            if more := size > limit.max_bytes or lines >= limit.max_lines:
                break
        text, counts = redact("\n\n".join(reversed(texts)))
        if not more or wanted.passed(text):
            return taken[::-1], text, counts
        limit = Caps(2 * limit.max_bytes, 2 * limit.max_lines)


def truncate_tail(text: str, caps: Caps) -> tuple[str, bool]:
    r"""Cut a text to the caps from its end, as pi's truncateTail does; return also if it was cut.

    Whole lines (split at `\n` only) are kept; if the last line is too long, its end is.
    """
    lines = text.split("\n")
    if len(lines) <= caps.max_lines and size_of(text) <= caps.max_bytes:
        return text, False
    kept: list[str] = []
    room = caps.max_bytes + 1  # no newline comes after the last
    for line in reversed(lines):
        room -= size_of(line) + 1
        if len(kept) >= caps.max_lines or room < 0:
            break
        kept.append(line)
    if not kept:
        data = lines[-1].encode("utf-8", "replace")
        kept = [data[-caps.max_bytes :].decode("utf-8", "ignore")]
    return "\n".join(reversed(kept)), True


def _sections(redacted: str) -> tuple[Section, ...]:
    """Split the redacted text into sections again, for local models."""
    _before, *parts = _SPEAKER.split(f"\n\n{redacted}")
    return tuple(map(Section, map(str.lower, parts[::2]), parts[1::2]))

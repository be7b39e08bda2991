"""The transcript that is sent to a model: the newest text within a cap.

Sections are `User: …` or `Assistant: …`, separated by blank lines, and read newest first until the
cap is passed. The joined text is redacted before it is truncated, so a secret is found whole even
if the cut would split it or it spans two messages. Sections that an earlier summary covers are left
out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from indexerd.privacy.redact import Redactor

MARKER = "[Conversation truncated — only the most recent portion is shown]"
MESSAGE_MAX = 512 * 1024  # characters of one message that are read: a longer one is pasted
# Read beyond the cap, measured after redaction: if the beginning of a secret was not read, its rest
# is no longer than this, so the cut removes it.
BEYOND_BYTES = 4096
BEYOND_LINES = 64


@dataclass(frozen=True, slots=True)
class Section:
    """A message or a part of one. `role`: user, assistant, summary, or "" of a machine's text."""

    head: str
    role: str
    text: str
    old: bool = False  # covered by an earlier summary
    secrets: Sequence[str] = ()  # the kind of each that was removed

    def __str__(self) -> str:
        return self.head + self.text


_S = TypeVar("_S", bound=Section)


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
    sections = redact_newest(newest_first, read or caps, redact)
    fresh = [section for section in sections if not section.old]
    kept, truncated = truncate_tail(text_of(fresh or sections), caps)
    sent = f"{kept}\n\n{MARKER}" if truncated else kept
    counts, cut = secrets_in(fresh or sections), caps.passed(text_of(sections))
    return Transcript(sent, truncated, counts, tuple(sections), bool(fresh), cut)


def text_of(sections: Iterable[Section]) -> str:
    return "\n\n".join(map(str, sections))


def secrets_in(sections: Iterable[Section]) -> Counter[str]:
    """Count the secrets removed from sections, by kind."""
    return Counter(kind for section in sections for kind in section.secrets)


def redact_sections(sections: Sequence[_S], redact: Redactor) -> list[_S]:
    """Redact sections as one text, because a secret may span several.

    Each keeps its role and its heading, unless that contains a secret; one of which nothing is left
    is dropped.
    """
    found = redact.pieces([text for each in sections for text in (f"\n\n{each.head}", each.text)])
    safe = (
        replace(each, head=head.strip("\n") if more else each.head, text=text, secrets=more + kinds)
        if more or text != each.text
        else each
        for each, (head, more), (text, kinds) in zip(sections, found[::2], found[1::2], strict=True)
    )
    return [section for section in safe if section.text.strip() or section.secrets]


def redact_newest(newest_first: Iterable[_S], caps: Caps, redact: Redactor) -> list[_S]:
    """Read sections until they pass the caps, and redact them; return them oldest first.

    If redaction shrinks the text too much, twice as much is read.
    """
    source, taken = iter(newest_first), list[_S]()
    size = lines = -2
    wanted = limit = Caps(caps.max_bytes + BEYOND_BYTES, caps.max_lines + BEYOND_LINES)
    while True:
        more = False
        for section in source:
            taken.append(section)
            text = str(section)
            size, lines = size + size_of(text) + 2, lines + text.count("\n") + 2
            if more := size > limit.max_bytes or lines >= limit.max_lines:
                break
        safe = redact_sections(taken[::-1], redact)
        if not more or wanted.passed(text_of(safe)):
            return safe
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

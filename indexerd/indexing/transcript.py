"""What of a conversation is sent: text, within a cap, newest kept.

Only user and assistant text counts; every section is `User: …` or `Assistant: …`, split by a
blank line. Entries are read newest first, until the cap is passed. Redaction comes before
truncation, over the joined text, so that a secret cut by the border, or spread over two messages,
is whole when it is looked for.

Sections may be marked as old: an earlier summary tells them already. Then only what is new is
sent, unless a secret spans the border, so that what is new cannot be told from the redacted text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from indexerd.privacy.redact import Redactor

MARKER = "[Conversation truncated — only the most recent portion is shown]"
LABELS = {"user": "User: ", "assistant": "Assistant: "}

# Of one message no more than this is looked at: it is far beyond any cap, and bounds the work.
MESSAGE_MAX = 4 * 1024 * 1024
# Read beyond the cap, counted after redaction: of a secret that begins in a message before those
# read, no more than this can stand at the beginning, and it is cut away.
BEYOND_BYTES = 4096
BEYOND_LINES = 64

_T = TypeVar("_T")


class Section(NamedTuple):
    """One message that says something. `role` is user or assistant."""

    role: str
    text: str
    old: bool = False  # an earlier summary tells it

    def __str__(self) -> str:
        return LABELS[self.role] + self.text


class Caps(NamedTuple):
    """Limits of one text, in UTF-8 bytes and in lines."""

    max_bytes: int
    max_lines: float = math.inf

    def passed(self, text: str) -> bool:
        return size_of(text) > self.max_bytes or text.count("\n") >= self.max_lines


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text to send, as it will be sent."""

    text: str
    truncated: bool  # of what the text should hold, some is left out
    redactions: dict[str, int]  # of what is sent
    sections: tuple[Section, ...]  # redacted, oldest first, as far as they were read
    only_new: bool  # the text holds nothing that is old
    cut: bool  # of the whole history, old and new, some is left out


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def assemble(newest_first: Iterable[Section], caps: Caps, redact: Redactor) -> Transcript:
    """Take sections newest first until the cap is passed, redact, cut, mark."""
    taken, text, counts = redact_newest(newest_first, str, caps, redact)
    sections, cut = _sections(text), caps.passed(text)
    fresh = [str(one) for one in taken if not one.old]
    only_new = len(fresh) == len(taken)
    if fresh and not only_new:
        new, found = redact("\n\n".join(fresh))
        only_new = text.endswith(f"\n\n{new}")
        text, counts = (new, found) if only_new else (text, counts)
    kept, truncated = truncate_tail(text, caps)
    sent = f"{kept}\n\n{MARKER}" if truncated else kept
    return Transcript(sent, truncated, counts, sections, only_new, cut)


def redact_newest(
    newest_first: Iterable[_T], render: Callable[[_T], str], caps: Caps, redact: Redactor
) -> tuple[list[_T], str, dict[str, int]]:
    """Read as many items as it takes to pass the caps, and redact them as one text.

    Returns the items, oldest first, the redacted text, blank lines between them, and how much was
    redacted. Redaction can shrink a text: then twice as much is read, until nothing is left.
    """
    source, taken, texts = iter(newest_first), list[_T](), list[str]()
    size = lines = -2
    wanted = limit = Caps(caps.max_bytes + BEYOND_BYTES, caps.max_lines + BEYOND_LINES)
    while True:
        more = False
        for one in source:
            said = render(one)
            taken.append(one)
            texts.append(said)
            size, lines = size + size_of(said) + 2, lines + said.count("\n") + 2
            if more := size > limit.max_bytes or lines >= limit.max_lines:
                break
        text, counts = redact("\n\n".join(reversed(texts)))
        if not more or wanted.passed(text):
            return taken[::-1], text, counts
        limit = Caps(2 * limit.max_bytes, 2 * limit.max_lines)


def truncate_tail(text: str, caps: Caps) -> tuple[str, bool]:
    r"""Keep the end of a text within the caps; True where any was left out.

    The rules are those of pi's truncateTail: whole lines from the end while both limits hold; a
    last line that is alone too long keeps its end; lines split at `\n` only.
    """
    lines = text.split("\n")
    if len(lines) <= caps.max_lines and size_of(text) <= caps.max_bytes:
        return text, False
    kept: list[str] = []
    left = caps.max_bytes + 1  # no newline comes after the last
    for line in reversed(lines):
        left -= size_of(line) + 1
        if len(kept) >= caps.max_lines or left < 0:
            break
        kept.append(line)
    if not kept:  # the end of its last line, from a character's border
        data = lines[-1].encode("utf-8", "replace")
        kept = [data[-caps.max_bytes :].decode("utf-8", "ignore")]
    return "\n".join(reversed(kept)), True


def _sections(redacted: str) -> tuple[Section, ...]:
    """Split the redacted text into sections again: a local model works on messages."""
    found: list[Section] = []
    for part in redacted.split("\n\n"):
        role = next((role for role, label in LABELS.items() if part.startswith(label)), None)
        if role is not None:
            found.append(Section(role, part[len(LABELS[role]) :]))
        elif found:
            last = found.pop()
            found.append(Section(last.role, f"{last.text}\n\n{part}"))
    return tuple(found)

r"""What of a conversation is sent: text, within a cap, newest kept (S0.12 to S0.17).

Only user and assistant text counts; every section is `User: …` or `Assistant: …`, split by a
blank line. The caller reads entries newest first and stops once `enough` says that the cap is
passed: what lies before cannot matter, however long the session is. Redaction comes before
truncation, over the joined text, so that a secret cut by the border, or spread over two
messages, is whole when it is looked for.

Sections may be marked as old: an earlier summary tells them already. Then only what is new is
sent, unless a secret spans the border, so that what is new cannot be told from the redacted text.

The byte rules are those of pi's truncateTail: whole lines from the end while both limits hold
(a line costs its UTF-8 bytes, and one for the newline, except the last); a last line that is
alone too long keeps its end, cut at a character's border; lines split at `\\n` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from indexerd.privacy.redact import Redactor

MARKER = "[Conversation truncated — only the most recent portion is shown]"
LABELS = {"user": "User: ", "assistant": "Assistant: "}
EMPTY = "no user/assistant conversation to index"

# Of one message no more than this is looked at: it is far beyond any cap, and bounds the work.
MESSAGE_MAX = 4 * 1024 * 1024
# Read beyond the cap, counted after redaction: of a secret that begins in a message before those
# read, no more than this can stand at the beginning, and it is cut away.
BEYOND_BYTES = 4096
BEYOND_LINES = 64


@dataclass(frozen=True, slots=True)
class Section:
    """One message that says something. `role` is user or assistant."""

    role: str
    text: str
    old: bool = False  # said before the border from which on it is new


@dataclass(frozen=True, slots=True)
class Cut:
    """Text within the cap, and whether any was left out."""

    text: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text to send, as it will be sent."""

    text: str
    truncated: bool  # of what the text should hold, some is left out
    redactions: dict[str, int] = field(default_factory=dict)  # of what is sent
    sections: tuple[Section, ...] = ()  # redacted, oldest first, as far as they were read
    since: bool = True  # the text holds nothing that is old
    cut: bool = False  # of the whole history, old and new, some is left out

    @property
    def bytes(self) -> int:
        """UTF-8 size."""
        return len(self.text.encode("utf-8", "replace"))


def render(sections: Iterable[Section]) -> str:
    """Sections as text; those without a word are dropped."""
    return "\n\n".join(LABELS[one.role] + one.text for one in sections if one.text)


def truncate_tail(text: str, max_bytes: int, max_lines: int) -> Cut:
    """Keep the end of a text: at most `max_bytes` UTF-8 bytes and `max_lines` lines."""
    lines = text.split("\n")
    if len(lines) <= max_lines and len(text.encode("utf-8", "replace")) <= max_bytes:
        return Cut(text, truncated=False)
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        cost = len(line.encode("utf-8", "replace")) + (1 if kept else 0)
        if len(kept) >= max_lines:
            break
        if size + cost > max_bytes:
            if not kept:
                kept.append(_end_of(line, max_bytes))
            break
        kept.append(line)
        size += cost
    return Cut("\n".join(reversed(kept)), truncated=True)


def _end_of(line: str, max_bytes: int) -> str:
    """The last `max_bytes` of a line, moved forward to a character's border."""
    return line.encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of one transcript."""

    max_bytes: int
    max_lines: int

    def passed(self, text: str) -> bool:
        """Whether a text is longer than what will be kept of it."""
        return (
            len(text.encode("utf-8", "replace")) > self.max_bytes
            or text.count("\n") >= self.max_lines
        )


def assemble(newest_first: Iterable[Section], caps: Caps, redact: Redactor) -> Transcript:
    """Take sections newest first until the cap is passed, redact, cut, mark.

    The iterable is consumed only as far as needed. Redaction can shrink a text: then twice as
    much is taken, until the redacted text passes the cap, or nothing is left.
    """
    source = iter(newest_first)
    taken: list[Section] = []
    text, counts = "", dict[str, int]()
    wanted = limit = Caps(caps.max_bytes + BEYOND_BYTES, caps.max_lines + BEYOND_LINES)
    more = True
    while more and not wanted.passed(text):
        more = _take(source, taken, limit)
        text, counts = redact(render(reversed(taken)))
        limit = Caps(2 * limit.max_bytes, 2 * limit.max_lines)
    sections = _sections(text)
    cut = caps.passed(text)
    fresh = [one for one in reversed(taken) if not one.old]
    since = len(fresh) == len(taken)
    if fresh and not since:
        new, found = redact(render(fresh))
        since = text.endswith(f"\n\n{new}")
        text, counts = (new, found) if since else (text, counts)
    kept = truncate_tail(text, caps.max_bytes, caps.max_lines)
    sent = f"{kept.text}\n\n{MARKER}" if kept.truncated else kept.text
    return Transcript(sent, kept.truncated, counts, sections, since, cut)


def _take(source: Iterable[Section], taken: list[Section], limit: Caps) -> bool:
    """Take sections until their text passes the limit; False at the source's end."""
    costs = [_cost(one) for one in taken]
    size, newlines = (sum(each) - 2 for each in zip((0, 0), *costs, strict=True))
    for section in source:
        if not section.text:
            continue
        one = Section(section.role, section.text[-MESSAGE_MAX:], section.old)
        taken.append(one)
        more_bytes, more_newlines = _cost(one)
        size, newlines = size + more_bytes, newlines + more_newlines
        if size > limit.max_bytes or newlines >= limit.max_lines:
            return True
    return False


def _cost(one: Section) -> tuple[int, int]:
    """Bytes and newlines of a section's text and of the blank line that splits it off."""
    said = LABELS[one.role] + one.text
    return len(said.encode("utf-8", "replace")) + 2, said.count("\n") + 2


def _sections(redacted: str) -> tuple[Section, ...]:
    """The redacted text as sections again: a local model works on messages."""
    found: list[Section] = []
    starts = tuple((label, role) for role, label in LABELS.items())
    for part in redacted.split("\n\n"):
        role = next((role for label, role in starts if part.startswith(label)), None)
        if role is not None:
            found.append(Section(role, part[len(LABELS[role]) :]))
        elif found:
            last = found[-1]
            found[-1] = Section(last.role, f"{last.text}\n\n{part}")
    return tuple(found)

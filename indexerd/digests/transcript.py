"""What of a conversation is summarized, and its text: redacted, in parts that stay whole (S3.28).

Left out is what a machine put under the user's role: environments, instruction files, reminders,
approvals, notes that a tool was run, "go on". Of what a human said, their own words stay, without
what stood around them. Of Codex's calls, what asks for a permission is left out. What pi's
extensions, commands and summaries say stays as it is: pi's own summaries are made of it.

The parts (sessions/serialize.py) are redacted as one text, so that a secret that spans two
messages is seen, and split again. Whose words a part is, is known from its message, and never
read out of its text: a tool's output may hold lines that look like somebody's message. Between
the parts stand numbers, in characters that are taken out of every text first; where redaction
took such a mark away, two parts are one, which is nobody's unless both were the same one's.

What surprised us: Codex may put the first prompt behind instructions, in one message; in a
sub-agent's session nobody typed anything, and what its parent asked has the user's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from indexerd.events import Compaction, Kind, ToolCall
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.redact import Redactor
from indexerd.sessions.clipped import LEFT_OUT, Clipped
from indexerd.sessions.context import ContextMessage
from indexerd.sessions.serialize import arguments
from indexerd.sessions.state import SessionState

# What stays of texts that no human typed and no model answered (CUSTOM), by its beginnings: the
# human's own commands and what they printed, another agent's messages.
_CUSTOM = {"claude": ("<command-", "<bash-std"), "opencode": ()}
_PARENTS = {"claude": Kind.TOOL, "codex": Kind.CUSTOM, "opencode": Kind.OTHER}
_MACHINES = frozenset({Kind.OTHER, Kind.SYSTEM})
_PROMPTS = frozenset({"system", "developer"})
_APPROVALS = {"additional_permissions", "justification", "prefix_rule", "sandbox_permissions"}
_APPROVALS |= {"with_escalated_permissions"}
_OPENING, _CLOSING = "<system-reminder>", "</system-reminder>"
_LEADING = lazy_pattern(rf"\s*{_OPENING}.*?{_CLOSING}\s*", re.DOTALL)

# What Claude Code puts before and behind a summary.
_CONTINUED = lazy_pattern(
    r"\s*This session is being continued from a previous conversation[^.\n]{0,200}\.\s*"
    r"(?:The (?:conversation is summarized below|summary below covers[^.:\n]{0,200})[.:]\s*)?"
)
_GO_ON = (
    "\nPlease continue the conversation from where we left ",
    "\nContinue the conversation from where it left ",
    "\nIf you need specific details from before compaction",
)
_GO_ON_MAX = 2000  # characters at the end among which that is looked for


# -- which messages ------------------------------------------------------------------------------


def summarizable_messages(
    messages: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """The messages that are summarized, in their order, each under the kind of who said it."""
    keep = _Filter(state, agent)
    return (one for message in messages for one in keep(message))


def conversation(
    messages: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """The same without an agent's summaries of earlier messages."""
    for one in summarizable_messages(messages, state, agent):
        if one.role not in ("compactionSummary", "branchSummary"):
            yield one


def summary_words(text: str, agent: str) -> str:
    """An agent's summary without what Claude Code says around it: how it came, and to go on."""
    if agent != "claude":
        return text
    text = _unreminded(text)
    frame = _CONTINUED.match(text)
    text = _unreminded(text[frame.end() :]) if frame else text
    found = [text.find(one, max(0, len(text) - _GO_ON_MAX)) for one in _GO_ON]
    ends = [at for at in found if at >= 0]
    return text[: min(ends)].rstrip() if ends else text


def speaker(message: ContextMessage) -> str:
    """Whose words a summarizable message is: user, assistant, or "" for nobody's."""
    if message.role == "user":
        return "user" if message.entry.kind is Kind.USER else ""
    return "assistant" if message.role == "assistant" else ""


class _Filter:
    """What stays of one session's messages."""

    def __init__(self, state: SessionState, agent: str) -> None:
        self._state, self._agent = state, agent
        child = state.header is not None and state.header.subagent
        self._parent = _PARENTS.get(agent) if child else None  # the kind of what a parent asks
        self._human: dict[str, frozenset[str]] = {}  # by the id of a compaction

    def __call__(self, message: ContextMessage) -> Iterator[ContextMessage]:
        role, kind, agent = message.role, message.entry.kind, self._agent
        if role == "user":
            yield from [_own(message)] if kind is Kind.USER else self._under_user(message)
        elif role == "assistant":
            if kind is Kind.COMPACTION:
                message = _as(message, Kind.ASSISTANT)
            if message.calls and agent == "codex":
                message = replace(message, calls=tuple(map(_without_approvals, message.calls)))
            yield message
        elif role == "custom":
            if "".join(message.texts).lstrip().startswith(_CUSTOM.get(agent, ("",))):
                yield message
        elif role == "toolResult" and agent == "claude":
            yield from _bare(message)
        elif role == "compactionSummary":
            words = summary_words("".join(message.texts), agent)
            yield message if (words,) == message.texts else replace(message, texts=(words,))
        elif role not in _PROMPTS and kind not in _MACHINES:
            yield message

    def _under_user(self, message: ContextMessage) -> Iterator[ContextMessage]:
        """What stands under the user's role on an entry that is no human's."""
        entry, held = message.entry, message.entry.compaction or Compaction()
        if entry.kind is Kind.COMPACTION:  # what it brings along; some agents note who said it
            retained = held.retained or ()
            if entry.id not in self._human:
                self._human[entry.id] = frozenset(one.text for one in retained if one.human)
            human = "".join(message.texts) in self._human[entry.id]
            if human or (retained and self._agent == "pi"):
                yield _as(message, Kind.USER)
            elif not held.whole:
                yield message
        elif entry.kind is self._parent:
            yield from _bare(_as(message, Kind.USER))
        elif entry.kind is Kind.OTHER and entry.sent is not None:
            row = self._state.row(entry.id)  # the tree knows of words behind instructions
            if row is not None and self._state.kind(row) is Kind.USER:
                yield _own(_as(message, Kind.USER))


def _as(message: ContextMessage, kind: Kind) -> ContextMessage:
    """The same, under the kind of who said it."""
    role = "user" if kind is Kind.USER else message.role
    return replace(message, role=role, entry=msgspec.structs.replace(message.entry, kind=kind))


def _own(message: ContextMessage) -> ContextMessage:
    """A human's own words instead of all that the model got, unless an edit replaced them."""
    if message.entry.sent is not None and message.texts == message.entry.sent:
        return replace(message, texts=message.entry.texts)
    return message


def _bare(message: ContextMessage) -> Iterator[ContextMessage]:
    """A message without reminders around its texts; nothing where those are all."""
    texts = tuple(map(_unreminded, message.texts))
    if texts == message.texts:
        yield message
    elif any(texts) or message.images:
        yield replace(message, texts=tuple(filter(None, texts)))


def _unreminded(text: str) -> str:
    """A text without the reminders that it begins and ends with. Linear."""
    if _OPENING not in text:
        return text
    start, end = 0, len(text)
    while found := _LEADING.match(text, start):
        start = found.end()
    last = _trimmed(text, start, end)
    while text.endswith(_CLOSING, start, last):
        mark = text.rfind(_OPENING, start, last)
        if mark < 0:
            break
        end = last = _trimmed(text, start, mark)
    bare = text[start:end]
    return Clipped(bare, text.lost) if isinstance(text, Clipped) else bare


def _trimmed(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1].isspace():
        end -= 1
    return end


def _without_approvals(call: ToolCall) -> ToolCall:
    given = arguments(call)
    if not isinstance(given, dict) or _APPROVALS.isdisjoint(given):
        return call
    kept = {key: one for key, one in given.items() if key not in _APPROVALS}
    return msgspec.structs.replace(call, arguments=kept)


# -- their text ----------------------------------------------------------------------------------

_WORDS = ("[User]: ", "[Assistant]: ")
_RESULT = "[Tool result]: "
# Separators of old: no text needs them, redaction takes them for white space, and they are ASCII.
_BEGIN, _ZERO, _ONE, _END = "\x1e", "\x1c", "\x1d", "\x1f"
_MARK = re.compile(rf"{_BEGIN}([{_ZERO}{_ONE}]{{1,64}}){_END}")
_MARKS = re.compile(rf"[{_BEGIN}{_ZERO}{_ONE}{_END}]+")


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
        number = f"{len(roles):b}".replace("0", _ZERO).replace("1", _ONE)
        marked.append(_BEGIN + number + _END + _MARKS.sub("", text))
        roles.append(speaker(message) if text.startswith(_WORDS) else "")
    if not marked:
        return NO_PARTS
    cleaned, counts = clean("\n\n".join(marked))
    return RedactedTranscript(tuple(_split(cleaned, roles)), counts)


def _split(cleaned: str, roles: Sequence[str]) -> Iterator[Part]:
    before, *split = _MARK.split(cleaned)
    numbers = [int(one.replace(_ZERO, "0").replace(_ONE, "1"), 2) for one in split[::2]]
    texts = split[1::2]
    if before:  # the first mark is gone: nothing stood before it
        numbers, texts = [0, *numbers], [before, *texts]
    texts[:-1] = [one.removesuffix("\n\n") for one in texts[:-1]]
    ends = [*numbers[1:], len(roles)]
    for first, end, text in zip(numbers, ends, texts, strict=True):
        whose = set(roles[first:end])
        yield Part(_MARKS.sub("", text), whose.pop() if len(whose) == 1 else "")


def words_in(parts: Iterable[Part]) -> tuple[tuple[str, str], ...]:
    """("user" | "assistant", words) of the parts that are messages."""
    return tuple((one.role, one.text[len(_label(one.text)) :]) for one in parts if one.role)


def _label(text: str) -> str:
    return next((one for one in _WORDS if text.startswith(one)), "")


def take(parts: Sequence[Part], size: int) -> tuple[list[Part], list[Part]]:
    """The first parts that fit into `size` bytes, at least one, and the rest.

    A part that is too long by itself loses its middle, and says how much.
    """
    held = 0
    for at, part in enumerate(parts):
        held += part.size
        if held > size:
            first = parts[:at] or [_shortened(part, size)]
            return list(first), list(parts[max(1, at) :])
    return list(parts), []


def without_oldest(parts: Sequence[Part]) -> list[Part]:
    """The parts without their oldest fourth, and without results whose calls went with it."""
    total = sum(len(one.text) for one in parts)
    gone = 0
    for at, part in enumerate(parts):
        if 4 * gone >= total and not part.text.startswith(_RESULT):
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

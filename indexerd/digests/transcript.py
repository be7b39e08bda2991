"""What of a conversation is summarized, and its text: redacted, in parts that stay whole.

Left out is what a machine put under the user's role: environments, instruction files, reminders,
notes that a tool was run, "go on"; of Codex's calls, what asks for a permission. What pi's
extensions, commands and summaries say stays: pi's own summaries are made of it.

The parts (sessions/serialize.py) are redacted as one text, so that a secret that spans two
messages is seen, and split again at the numbers between them; where redaction took such a number
away, two parts become one. Whose words a part is, is known from its message, never from its text.

What surprised us: Codex may put the first prompt behind instructions, in one message; in a
sub-agent's session nobody typed anything, and what its parent asked has the user's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from indexerd.digests.compact_pi import estimate_tokens
from indexerd.events import Compaction, Kind, ToolCall
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.redact import Redactor
from indexerd.sessions.clipped import Clipped, clip
from indexerd.sessions.context import ContextMessage
from indexerd.sessions.serialize import arguments
from indexerd.sessions.state import SessionState

# Texts under CUSTOM that stay, by their beginnings: the human's own commands and their output.
_CUSTOM = {"claude": ("<command-", "<bash-std"), "opencode": ()}
_PARENTS = {"claude": Kind.TOOL, "codex": Kind.CUSTOM, "opencode": Kind.OTHER}
_APPROVALS = {"additional_permissions", "justification", "prefix_rule", "sandbox_permissions"}
_APPROVALS |= {"with_escalated_permissions"}
_OPENING, _CLOSING = "<system-reminder>", "</system-reminder>"

# What Claude Code puts before and behind a summary.
_CONTINUED = lazy_pattern(
    r"\s*This session is being continued from a previous conversation[^.\n]{0,200}\.\s*"
    r"(?:The (?:conversation is summarized below|summary below covers[^.:\n]{0,200})[.:]\s*)?"
)
_GO_ON = lazy_pattern(
    r"\n(?:Please continue the conversation from where we left "
    r"|Continue the conversation from where it left "
    r"|If you need specific details from before compaction)"
)
_GO_ON_MAX = 2000  # characters at the end among which that is looked for


# -- which messages ------------------------------------------------------------------------------


def summarizable_messages(
    messages: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """The messages that are summarized, in their order, each under the kind of who said it."""
    for one in messages:
        role, kind = one.role, one.entry.kind
        if role == "user":
            found = _own(one) if kind is Kind.USER else _under_user(one, state, agent)
        elif role == "assistant":
            said = _as(one, Kind.ASSISTANT) if kind is Kind.COMPACTION else one
            calls = map(_without_approvals, said.calls) if agent == "codex" else said.calls
            found = replace(said, calls=tuple(calls))
        elif role == "custom":
            stays = "".join(one.texts).lstrip().startswith(_CUSTOM.get(agent, ("",)))
            found = one if stays else None
        elif role == "toolResult" and agent == "claude":
            found = _without_reminders(one)
        elif role == "compactionSummary":
            found = replace(one, texts=(summary_words("".join(one.texts), agent),))
        else:
            machine = role in ("system", "developer") or kind in (Kind.OTHER, Kind.SYSTEM)
            found = None if machine else one
        if found is not None:
            yield found


def tokens_of(messages: Iterable[ContextMessage], state: SessionState, agent: str) -> int:
    """About how many tokens these are, without an agent's summaries of earlier messages."""
    said = summarizable_messages(messages, state, agent)
    summaries = ("compactionSummary", "branchSummary")
    return sum(estimate_tokens(one) for one in said if one.role not in summaries)


def summary_words(text: str, agent: str) -> str:
    """An agent's summary without what Claude Code says around it: how it came, and to go on."""
    if agent != "claude":
        return text
    text = _unreminded(text)
    frame = _CONTINUED.match(text)
    text = text[frame.end() :] if frame else text
    end = _GO_ON.search(text, max(0, len(text) - _GO_ON_MAX))
    return text[: end.start()].rstrip() if end else text


def speaker(message: ContextMessage) -> str:
    """Whose words a summarizable message is: user, assistant, or "" for nobody's."""
    if message.role == "user":
        return "user" if message.entry.kind is Kind.USER else ""
    return "assistant" if message.role == "assistant" else ""


def _under_user(message: ContextMessage, state: SessionState, agent: str) -> ContextMessage | None:
    """What stays of words under the user's role on an entry that is no human's."""
    entry, held = message.entry, message.entry.compaction or Compaction()
    if entry.kind is Kind.COMPACTION:  # what it brings along; some agents note who said it
        text, retained = "".join(message.texts), held.retained or ()
        if (retained and agent == "pi") or any(one.human and one.text == text for one in retained):
            return _as(message, Kind.USER)
        return None if held.whole else message
    child = state.header is not None and state.header.subagent
    if child and entry.kind is _PARENTS.get(agent):
        return _without_reminders(_as(message, Kind.USER))
    if entry.kind is Kind.OTHER and entry.sent is not None:
        row = state.row(entry.id)  # the tree knows of words behind instructions
        if row is not None and state.kind(row) is Kind.USER:
            return _own(_as(message, Kind.USER))
    return None


def _as(message: ContextMessage, kind: Kind) -> ContextMessage:
    role = "user" if kind is Kind.USER else message.role
    return replace(message, role=role, entry=msgspec.structs.replace(message.entry, kind=kind))


def _own(message: ContextMessage) -> ContextMessage:
    """A human's own words instead of all that the model got, unless an edit replaced them."""
    if message.entry.sent is not None and message.texts == message.entry.sent:
        return replace(message, texts=message.entry.texts)
    return message


def _without_reminders(message: ContextMessage) -> ContextMessage | None:
    texts = tuple(map(_unreminded, message.texts))
    if texts == message.texts:
        return message
    return replace(message, texts=texts) if any(texts) or message.images else None


def _unreminded(text: str) -> str:
    """A text without reminders. Linear."""
    first, *rest = text.split(_OPENING)
    if not rest:
        return text
    ends = ((one, *one.partition(_CLOSING)) for one in rest)
    kept = (after if mark else _OPENING + whole for whole, _, mark, after in ends)
    bare = "".join([first, *kept]).strip()
    return Clipped(bare, text.lost) if isinstance(text, Clipped) else bare


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


NO_PARTS = RedactedTranscript()


def redact_parts(
    lines: Iterable[tuple[ContextMessage, str]], clean: Redactor
) -> RedactedTranscript:
    """Redact the parts of a conversation (`serialize.parts_of`) together."""
    roles, marked = list[str](), list[str]()
    for message, text in lines:
        number = f"{len(roles):b}".replace("0", _ZERO).replace("1", _ONE)
        marked.append(f"{_BEGIN}{number}{_END}" + _MARKS.sub("", text))
        roles.append(speaker(message) if text.startswith(_WORDS) else "")
    if not marked:
        return NO_PARTS
    cleaned, counts = clean("\n\n".join(marked))
    before, *split = _MARK.split(cleaned)
    numbers = [int(one.replace(_ZERO, "0").replace(_ONE, "1"), 2) for one in split[::2]]
    texts = split[1::2]
    if before:  # the first mark is gone: nothing stood before it
        numbers, texts = [0, *numbers], [before, *texts]
    parts = list[Part]()
    for first, end, text in zip(numbers, [*numbers[1:], len(roles)], texts, strict=True):
        whose = set(roles[first:end])
        plain = _MARKS.sub("", text).removesuffix("" if end == len(roles) else "\n\n")
        parts.append(Part(plain, whose.pop() if len(whose) == 1 else ""))
    return RedactedTranscript(tuple(parts), counts)


def words_in(parts: Iterable[Part]) -> tuple[tuple[str, str], ...]:
    """("user" | "assistant", words) of the parts that are messages."""
    named = ((one, next((w for w in _WORDS if one.text.startswith(w)), "")) for one in parts)
    return tuple((one.role, one.text[len(label) :]) for one, label in named if one.role)


def take(parts: Sequence[Part], size: int) -> tuple[list[Part], list[Part]]:
    """The first parts that fit into `size` bytes, at least one, and the rest.

    A part that is too long by itself loses its middle.
    """
    held = 0
    for at, part in enumerate(parts):
        held += part.size
        if held > size:
            first = parts[:at] or [
                Part(clip(part.text, size // 8, size // 8), part.role)
            ]  # 4 bytes a character
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

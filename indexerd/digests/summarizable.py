"""What of a conversation is summarized: what people, agents and tools said, and no more (S3.28).

Left out is what a machine put under the user's role: environments, instruction files, reminders,
approvals, notes that a tool was run, "go on". Of what a human said, their own words stay, without
what stood around them. Of Codex's calls, what asks for a permission is left out. What pi's
extensions, commands and summaries say stays as it is: pi's own summaries are made of it.

What surprised us: Codex may put the first prompt behind instructions, in one message; in a
sub-agent's session nobody typed anything, and what its parent asked has the user's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from indexerd.events import Compaction, Kind, ToolCall
from indexerd.privacy.patterns import lazy_pattern
from indexerd.sessions.clipped import Clipped
from indexerd.sessions.context import ContextMessage
from indexerd.sessions.serialize import arguments
from indexerd.sessions.state import SessionState

# What stays of texts that no human typed and no model answered (CUSTOM), by its beginnings: the
# human's own commands and what they printed, another agent's messages.
_CUSTOM = {"claude": ("<command-", "<bash-std"), "opencode": ()}
_PARENTS = {"claude": Kind.TOOL, "codex": Kind.CUSTOM, "opencode": Kind.OTHER}
_MACHINES = frozenset({Kind.OTHER, Kind.SYSTEM})
_PROMPTS = frozenset({"system", "developer"})
_APPROVALS = frozenset(
    {
        "additional_permissions",
        "justification",
        "prefix_rule",
        "sandbox_permissions",
        "with_escalated_permissions",
    }
)
_REMINDER = ("<system-reminder>", "</system-reminder>")
_LEADING = lazy_pattern(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)

# What Claude Code puts before and behind a summary.
_CONTINUED = lazy_pattern(
    r"\s*This session is being continued from a previous conversation[^.\n]{0,200}\.\s*"
    r"(?:The (?:conversation is summarized below|summary below covers[^.:\n]{0,200})[.:]\s*)?"
)
_CLOSING = (
    "\nPlease continue the conversation from where we left ",
    "\nContinue the conversation from where it left ",
    "\nIf you need specific details from before compaction",
)
_CLOSING_MAX = 2000  # characters at the end among which that is looked for


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
    said = summarizable_messages(messages, state, agent)
    return (one for one in said if one.role not in ("compactionSummary", "branchSummary"))


def summary_words(text: str, agent: str) -> str:
    """An agent's summary without what says to the next model how it came, and to go on.

    Claude Code puts that around it; what other agents put there their texts do not hold.
    """
    if agent != "claude":
        return text
    text = _unreminded(text)
    frame = _CONTINUED.match(text)
    text = _unreminded(text[frame.end() :]) if frame else text
    found = [text.find(one, max(0, len(text) - _CLOSING_MAX)) for one in _CLOSING]
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
        self._custom = _CUSTOM.get(agent, ("",))
        self._human: dict[str, frozenset[str]] = {}  # by the id of a compaction

    def __call__(self, message: ContextMessage) -> Iterator[ContextMessage]:
        role, kind = message.role, message.entry.kind
        if role == "user":
            yield from [_own(message)] if kind is Kind.USER else self._under_user(message)
        elif role == "assistant":
            yield self._answer(message)
        elif role == "custom":
            if "".join(message.texts).lstrip().startswith(self._custom):
                yield message
        elif role == "toolResult" and self._agent == "claude":
            yield from _bare(message)
        elif role == "compactionSummary":
            words = summary_words("".join(message.texts), self._agent)
            yield message if (words,) == message.texts else replace(message, texts=(words,))
        elif role not in _PROMPTS and kind not in _MACHINES:
            yield message

    def _under_user(self, message: ContextMessage) -> Iterator[ContextMessage]:
        """What stands under the user's role on an entry that is no human's."""
        entry = message.entry
        if entry.kind is Kind.COMPACTION:
            yield from self._kept_by_compaction(message)
        elif entry.kind is self._parent:
            yield from _bare(_as(message, Kind.USER))
        elif entry.kind is Kind.OTHER and entry.sent is not None:
            row = self._state.row(entry.id)  # the tree knows of words behind instructions
            if row is not None and self._state.kind(row) is Kind.USER:
                yield _own(_as(message, Kind.USER))

    def _kept_by_compaction(self, message: ContextMessage) -> Iterator[ContextMessage]:
        """What a compaction brings along; some agents note who said it."""
        entry, held = message.entry, message.entry.compaction or Compaction()
        retained = held.retained or ()
        if entry.id not in self._human:
            self._human[entry.id] = frozenset(one.text for one in retained if one.human)
        if "".join(message.texts) in self._human[entry.id] or (retained and self._agent == "pi"):
            yield _as(message, Kind.USER)
        elif not held.whole:
            yield message

    def _answer(self, message: ContextMessage) -> ContextMessage:
        if message.entry.kind is Kind.COMPACTION:
            message = _as(message, Kind.ASSISTANT)
        if message.calls and self._agent == "codex":
            return replace(message, calls=tuple(map(_without_approvals, message.calls)))
        return message


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
    opening, closing = _REMINDER
    if opening not in text:
        return text
    start, end = 0, len(text)
    while found := _LEADING.match(text, start):
        start = found.end()
    last = _trimmed(text, start, end)
    while text.endswith(closing, start, last):
        mark = text.rfind(opening, start, last)
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

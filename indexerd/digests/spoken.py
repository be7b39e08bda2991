"""What of a conversation goes into a summary: what people, agents and tools said, and no more.

In: speeches of any agent (sessions/context.py), and the session's state. Out: those that are to be
summed up, each under the kind of whoever said it. Left out is what a machine put into the user's
mouth: environments, instruction files, reminders, approvals, notes that a tool was run, "go on"
(S3.28). Of what a human said, their own words stay, without what stood around them. Of Codex'
calls, what asks for a permission is left out. What pi's extensions, commands and summaries say
stays as it is: pi's own summaries are made of it.

What surprised us: Codex may put the first prompt behind instructions, in one message; in a
sub-agent's session nobody typed anything, and what its parent asked has the user's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from indexerd.digests.serialize import arguments
from indexerd.events import Kind, ToolCall
from indexerd.privacy.late import late
from indexerd.sessions.clipped import Clipped
from indexerd.sessions.context import ContextMessage
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
_LEADING = late(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)

# What Claude Code puts before and behind a summary.
_CONTINUED = late(
    r"\s*This session is being continued from a previous conversation[^.\n]{0,200}\.\s*"
    r"(?:The (?:conversation is summarized below|summary below covers[^.:\n]{0,200})[.:]\s*)?"
)
_CLOSING = (
    "\nPlease continue the conversation from where we left ",
    "\nContinue the conversation from where it left ",
    "\nIf you need specific details from before compaction",
)
_CLOSING_MAX = 2000  # characters at the end among which that is looked for


def summed(
    speeches: Iterable[ContextMessage], state: SessionState, agent: str
) -> list[ContextMessage]:
    """The speeches that are summed up, in their order."""
    return list(passing(speeches, state, agent))


def passing(
    speeches: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """The same one by one: for whoever keeps none of them, or little."""
    sieve = _Sieve(state, agent)
    return (one for speech in speeches for one in sieve.stays(speech))


def conversation(
    speeches: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """Those that belong to messages, one by one: an agent's summaries of them do not."""
    said = passing(speeches, state, agent)
    return (one for one in said if one.role not in ("compactionSummary", "branchSummary"))


def summary_words(text: str, agent: str) -> str:
    """An agent's own summary without what tells the next model how it came, and to go on.

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


def whose(speech: ContextMessage) -> str:
    """Whose words a speech of `summed` is: user, assistant, or "" for nobody's."""
    if speech.role == "user":
        return "user" if speech.entry.kind is Kind.USER else ""
    return "assistant" if speech.role == "assistant" else ""


class _Sieve:
    """What stays of one session's speeches."""

    def __init__(self, state: SessionState, agent: str) -> None:
        self._state, self._agent = state, agent
        child = state.header is not None and state.header.subagent
        self._parent = _PARENTS.get(agent) if child else None  # the kind of what a parent asks
        self._custom = _CUSTOM.get(agent, ("",))
        self._human: dict[str, frozenset[str]] = {}  # by the id of a compaction

    def stays(self, speech: ContextMessage) -> Iterator[ContextMessage]:
        role, kind = speech.role, speech.entry.kind
        if role == "user":
            yield from [_own(speech)] if kind is Kind.USER else self._put(speech)
        elif role == "assistant":
            yield from self._answer(speech)
        elif role == "custom":
            yield from self._noted(speech)
        elif role == "toolResult" and self._agent == "claude":
            yield from _bare(speech)
        elif role == "compactionSummary":
            words = summary_words("".join(speech.texts), self._agent)
            yield speech if (words,) == speech.texts else replace(speech, texts=(words,))
        elif role not in _PROMPTS and kind not in _MACHINES:
            yield speech

    def _put(self, speech: ContextMessage) -> Iterator[ContextMessage]:
        """What stands under the user's role on an entry that is no human's."""
        entry = speech.entry
        if entry.kind is Kind.COMPACTION:
            yield from self._brought(speech)
        elif entry.kind is self._parent:
            yield from _bare(_as(speech, Kind.USER))
        elif entry.kind is Kind.OTHER and "sent" in entry.details:
            row = self._state.row(entry.id)  # the tree knows of words behind instructions
            if row is not None and self._state.kind(row) is Kind.USER:
                yield _own(_as(speech, Kind.USER))

    def _brought(self, speech: ContextMessage) -> Iterator[ContextMessage]:
        """What a compaction brings along; some agents' tell who said it."""
        entry = speech.entry
        retained = [one for one in entry.details.get("retained", ()) if isinstance(one, dict)]
        if entry.id not in self._human:
            texts = (str(one.get("text")) for one in retained if one.get("human"))
            self._human[entry.id] = frozenset(texts)
        if "".join(speech.texts) in self._human[entry.id] or (retained and self._agent == "pi"):
            yield _as(speech, Kind.USER)
        elif not entry.details.get("whole"):
            yield speech

    def _answer(self, speech: ContextMessage) -> Iterator[ContextMessage]:
        if speech.entry.kind is Kind.COMPACTION:
            speech = _as(speech, Kind.ASSISTANT)
        if speech.calls and self._agent == "codex":
            speech = replace(speech, calls=tuple(map(_unasking, speech.calls)))
        yield speech

    def _noted(self, speech: ContextMessage) -> Iterator[ContextMessage]:
        if "".join(speech.texts).lstrip().startswith(self._custom):
            yield speech


def _as(speech: ContextMessage, kind: Kind) -> ContextMessage:
    """The same, under the kind of who said it."""
    role = "user" if kind is Kind.USER else speech.role
    return replace(speech, role=role, entry=msgspec.structs.replace(speech.entry, kind=kind))


def _own(speech: ContextMessage) -> ContextMessage:
    """A human's own words in the place of all that the model got, unless an edit replaced them."""
    sent = speech.entry.details.get("sent")
    if sent is not None and speech.texts == tuple(sent):
        return replace(speech, texts=speech.entry.texts)
    return speech


def _bare(speech: ContextMessage) -> Iterator[ContextMessage]:
    """A speech without reminders around its texts; nothing where those are all."""
    texts = tuple(map(_unreminded, speech.texts))
    if texts == speech.texts:
        yield speech
    elif any(texts) or speech.images:
        yield replace(speech, texts=tuple(filter(None, texts)))


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


def _unasking(call: ToolCall) -> ToolCall:
    """A call without what it says of permissions."""
    given = arguments(call)
    if not isinstance(given, dict) or _APPROVALS.isdisjoint(given):
        return call
    return msgspec.structs.replace(
        call, arguments={key: one for key, one in given.items() if key not in _APPROVALS}
    )

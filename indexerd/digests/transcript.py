"""What of a conversation is summarized, and its text: redacted as a whole, in parts.

Left out is what a machine put under the user's role: environments, instruction files, reminders,
notes that a tool was run, "go on"; of Codex's calls, what asks for a permission. What pi's
extensions, commands and summaries say stays: pi's own summaries are made of it.

What surprised us: Codex may put the first prompt behind instructions, in one message; in a
sub-agent's session nobody typed anything, and what its parent asked has the user's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from indexerd.agents.json_lines import own_words
from indexerd.digests.compact_pi import estimate_tokens
from indexerd.events import Compaction, Kind, ToolCall
from indexerd.privacy.redact import Redactor
from indexerd.sessions.clipped import Clipped, arguments
from indexerd.sessions.context import ContextMessage
from indexerd.sessions.serialize import TOOL_RESULT_MAX, parts_of
from indexerd.sessions.state import SessionState

# Texts under CUSTOM that stay, by their beginnings: the human's own commands and their output.
_CUSTOM = {"claude": ("<command-", "<bash-std"), "opencode": ()}
_PARENTS = {"claude": Kind.TOOL, "codex": Kind.CUSTOM, "opencode": Kind.OTHER}
_APPROVALS = {"additional_permissions", "justification", "prefix_rule", "sandbox_permissions"}
_APPROVALS |= {"with_escalated_permissions"}
_REMINDER = re.compile(
    r"<system-reminder>(?:(?!<system-reminder>).)*?</system-reminder>", re.DOTALL
)

# What Claude Code puts before and behind a summary.
_CONTINUED = re.compile(
    r"\s*This session is being continued from a previous conversation[^.\n]{0,200}\.\s*"
    r"(?:The (?:conversation is summarized below|summary below covers[^.:\n]{0,200})[.:]\s*)?"
)
_GO_ON = re.compile(
    r"\n(?:Please continue the conversation from where we left "
    r"|Continue the conversation from where it left "
    r"|If you need specific details from before compaction)"
)
_GO_ON_MAX = 2000  # characters at the end among which that is looked for

# Separators of old: no text needs them, redaction takes them for white space, and they are ASCII.
_USER, _ASSISTANT, _OTHER = "\x1c", "\x1d", "\x1e"
_ROLES = {_USER: "user", _ASSISTANT: "assistant", _OTHER: ""}
_MARKS = str.maketrans(dict.fromkeys(_ROLES))


class Part(NamedTuple):
    """A message, a call or a result as text. `role`: user or assistant, whose words it is."""

    text: str
    role: str = ""

    @property
    def size(self) -> int:
        """Bytes of it, and of the blank line after it."""
        return len(self.text.encode("utf-8", "replace")) + 2


class RedactedTranscript(NamedTuple):
    """Parts, oldest first, and the counts of what was redacted in them."""

    parts: list[Part]
    redactions: dict[str, int]

    def words(self) -> list[tuple[str, str]]:
        return words_in(self.parts)


NO_PARTS = RedactedTranscript([], {})


def words_in(parts: Iterable[Part]) -> list[tuple[str, str]]:
    """("user" | "assistant", their own words) of the parts that are messages."""
    return [(one.role, own_words(one.text.partition("]: ")[2])) for one in parts if one.role]


def redact_parts(
    said: Iterable[ContextMessage], clean: Redactor, tool_result_max: int = TOOL_RESULT_MAX
) -> RedactedTranscript:
    """The text of messages, redacted as one, so that a secret that spans two of them is seen.

    Each part begins with a mark of whose words it is, as its text could be anybody's; where
    redaction took a mark away, two parts become one.
    """
    marked = list[str]()
    for message, text in parts_of(said, tool_result_max=tool_result_max):
        role = speaker(message) if text.startswith(("[User]: ", "[Assistant]: ")) else ""
        mark = {"user": _USER, "assistant": _ASSISTANT}.get(role, _OTHER)
        marked.append(f"{mark}{text.translate(_MARKS)}\n\n")
    cleaned, counts = clean("".join(marked))
    before, *split = re.split(f"([{_USER}{_ASSISTANT}{_OTHER}])", cleaned)
    pairs = [(_OTHER, before)] if before else []  # the first mark is gone
    pairs += zip(split[::2], split[1::2], strict=True)
    return RedactedTranscript(
        [Part(text.removesuffix("\n\n"), _ROLES[mark]) for mark, text in pairs], counts
    )


def summarizable_messages(
    messages: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """The messages that are summarized, in their order, each under the kind of who said it."""
    for one in messages:
        role, kind = one.role, one.entry.kind
        found: ContextMessage | None = one
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
        elif role in ("system", "developer") or kind in (Kind.OTHER, Kind.SYSTEM):
            found = None
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
    row = state.row(entry.id) if entry.kind is Kind.OTHER and entry.sent is not None else None
    if row is not None and state.kind(row) is Kind.USER:  # words behind instructions
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
    bare = _REMINDER.sub("", text)
    if bare == text:
        return text
    return Clipped(bare.strip(), text.lost) if isinstance(text, Clipped) else bare.strip()


def _without_approvals(call: ToolCall) -> ToolCall:
    given = arguments(call)
    if not isinstance(given, dict) or _APPROVALS.isdisjoint(given):
        return call
    kept = {key: one for key, one in given.items() if key not in _APPROVALS}
    return msgspec.structs.replace(call, arguments=kept)

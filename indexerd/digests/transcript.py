"""Select the messages of a conversation to summarize, and redact their text as a whole.

Machine-made text in the user's role is left out, and so are permission requests in Codex's calls.
Pitfalls: Codex may put the first prompt after instructions in the same message; in a sub-agent's
session nobody typed anything, and the parent's request counts as the user's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from indexerd.agents.json_lines import own_words
from indexerd.digests.compact_pi import estimate_tokens
from indexerd.entries import Compaction, Kind, ToolCall
from indexerd.indexing.transcript import Section, redact_sections
from indexerd.privacy.redact import Redactor
from indexerd.sessions.clipped import arguments
from indexerd.sessions.context import TOOL_RESULT_MAX, ContextMessage, parts_of
from indexerd.sessions.state import SessionState

# Beginnings of CUSTOM texts that stay: the user's own commands and their output.
_CUSTOM = {"claude": ("<command-", "<bash-std"), "opencode": ()}
_PARENTS = {"claude": Kind.TOOL, "codex": Kind.CUSTOM, "opencode": Kind.OTHER}
_APPROVALS = {"additional_permissions", "justification", "prefix_rule", "sandbox_permissions"}
_APPROVALS |= {"with_escalated_permissions"}


def words_in(parts: Iterable[Section]) -> list[tuple[str, str]]:
    return [(part.role, own_words(part.text)) for part in parts if part.role]


def redact_parts(
    messages: Iterable[ContextMessage], clean: Redactor, tool_result_max: int = TOOL_RESULT_MAX
) -> list[Section]:
    """Redact messages, calls and results; those that are no message have the role ""."""
    parts = list[Section]()
    for message, written in parts_of(messages, tool_result_max=tool_result_max):
        label, mark, text = written.partition("]: ")
        role = speaker(message) if label in ("[User", "[Assistant") else ""
        parts.append(Section(label + mark, role, text))
    return redact_sections(parts, clean)


def summarizable_messages(
    messages: Iterable[ContextMessage], state: SessionState, agent: str
) -> Iterator[ContextMessage]:
    """Select the messages to summarize, each with the kind of its real speaker."""
    for message in messages:
        role, kind = message.role, message.entry.kind
        selected: ContextMessage | None = message
        if role == "user":
            selected = _own(message) if kind is Kind.USER else _under_user(message, state, agent)
        elif message.result and message.result.reply:
            selected = replace(_as(message, Kind.USER), texts=(message.result.reply,), result=None)
        elif role == "assistant":
            spoken = _as(message, Kind.ASSISTANT) if kind is Kind.COMPACTION else message
            calls = map(_without_approvals, spoken.calls) if agent == "codex" else spoken.calls
            selected = replace(spoken, calls=tuple(calls))
        elif role == "custom":
            stays = "".join(message.texts).lstrip().startswith(_CUSTOM.get(agent, ("",)))
            selected = message if stays else None
        elif role in ("system", "developer") or kind in (Kind.OTHER, Kind.SYSTEM):
            selected = None
        if selected is not None:
            yield selected


def message_tokens(messages: Iterable[ContextMessage], state: SessionState, agent: str) -> int:
    """Estimate the tokens of messages, without the agent's summaries of earlier ones."""
    selected = summarizable_messages(messages, state, agent)
    summaries = ("compactionSummary", "branchSummary")
    return sum(estimate_tokens(message) for message in selected if message.role not in summaries)


def speaker(message: ContextMessage) -> str:
    """Return who wrote a summarizable message: user, assistant, or "" for a machine."""
    typed = message.role == "assistant" or message.entry.kind is Kind.USER
    return message.role if typed and message.role in ("user", "assistant") else ""


def _under_user(message: ContextMessage, state: SessionState, agent: str) -> ContextMessage | None:
    """Return the part to keep of a message in the user's role that no person wrote."""
    entry, compaction = message.entry, message.entry.compaction or Compaction()
    if entry.kind is Kind.COMPACTION:  # messages kept in it; some agents note who wrote them
        text, retained = "".join(message.texts), compaction.retained or ()
        if (retained and agent == "pi") or any(t.human and t.text == text for t in retained):
            return _as(message, Kind.USER)
        if compaction.whole:
            return None
        is_summary = text == "".join(entry.as_sent)  # shown without the client's words
        return replace(message, texts=entry.texts) if is_summary else message
    child = state.header is not None and state.header.subagent
    if child and entry.kind is _PARENTS.get(agent):
        return _as(message, Kind.USER)
    row = state.row(entry.id) if entry.kind is Kind.OTHER and entry.sent is not None else None
    if row is not None and state.kind(row) is Kind.USER:  # words behind instructions
        return _own(_as(message, Kind.USER))
    return None


def _as(message: ContextMessage, kind: Kind) -> ContextMessage:
    role = "user" if kind is Kind.USER else message.role
    return replace(message, role=role, entry=msgspec.structs.replace(message.entry, kind=kind))


def _own(message: ContextMessage) -> ContextMessage:
    """Keep only the person's own words of the text sent to the model, unless it was edited."""
    if message.entry.sent is not None and message.texts == message.entry.sent:
        return replace(message, texts=message.entry.texts)
    return message


def _without_approvals(call: ToolCall) -> ToolCall:
    values = arguments(call)
    if not isinstance(values, dict) or _APPROVALS.isdisjoint(values):
        return call
    kept = {key: value for key, value in values.items() if key not in _APPROVALS}
    return msgspec.structs.replace(call, arguments=kept)

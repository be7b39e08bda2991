"""One line of a pi session, as far as it matters, and what kind of entry it is."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw, Struct

from indexerd.agents.base import TIME_MAX
from indexerd.agents.lines import NOTHING, NUMBERS, PREVIEWED, blocks, decoder, is_object, safe_line
from indexerd.events import JS_SPACE, Kind, Turn, code
from indexerd.times import iso_ms


class Message(Struct, rename="camel"):
    """What was said, by a human, a model, a tool or a program."""

    role: str | None = None
    content: Raw = NOTHING
    provider: str | None = None
    model: str | None = None
    usage: Raw = NOTHING
    stop_reason: str | None = None
    timestamp: Any = None
    error_message: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool | None = None
    custom_type: str | None = None
    display: bool | None = None
    command: str | None = None
    output: str | None = None
    exit_code: int | None = None
    cancelled: bool | None = None
    truncated: bool | None = None
    full_output_path: str | None = None
    exclude_from_context: bool | None = None
    sections: Raw = NOTHING
    tools_added: Raw = NOTHING
    tools_removed: Raw = NOTHING


class Line(Struct, rename="camel"):
    """A whole line, whatever its type; the fields of a session's header come last."""

    type: str | None = None
    id: str | None = None
    parent_id: str | None = None
    timestamp: str | None = None
    message: Message | None = None
    content: Raw = NOTHING
    summary: str | None = None
    name: str | None = None
    label: str | None = None
    target_id: str | None = None
    model_id: str | None = None
    provider: str | None = None
    thinking_level: str | None = None
    custom_type: str | None = None
    data: Raw = NOTHING
    display: bool | None = None
    usage: Raw = NOTHING
    from_id: str | None = None
    from_hook: bool | None = None
    details: Raw = NOTHING
    tokens_before: int | float | None = None
    first_kept_entry_id: str | None = None
    first_kept_entry_index: Any = None
    system_message: Message | None = None
    retained_tail: Raw = NOTHING
    replacement: Raw = NOTHING
    version: Any = None
    cwd: str | None = None
    parent_session: str | None = None
    branched_from: str | None = None


decode = decoder(Line)
decode_message = decoder(Message)

USER = code(Kind.USER, message=True)
ANSWERS = {turn: code(Kind.ASSISTANT, turn=turn, message=True) for turn in Turn}
_TURNS = {"toolUse": Turn.OPEN, "error": Turn.FAILED, "aborted": Turn.FAILED}
_ROLES = {
    "user": Kind.USER,
    "toolResult": Kind.TOOL,
    "system": Kind.SYSTEM,
    "bashExecution": Kind.BASH,
    "custom": Kind.CUSTOM,
    "hookMessage": Kind.CUSTOM,  # what version 2 called it
}
_TYPES = {
    "custom_message": Kind.CUSTOM,
    "compaction": Kind.COMPACTION,
    "branch_summary": Kind.BRANCH_SUMMARY,
    "model_change": Kind.SETTING,
    "thinking_level_change": Kind.SETTING,
    "active_tools_change": Kind.SETTING,
    "leaf": Kind.SETTING,
    "label": Kind.LABEL,
    "session_info": Kind.NAME,
}
_WORDS = {  # the field that says what an entry without a message is about
    "compaction": "summary",
    "branch_summary": "summary",
    "session_info": "name",
    "label": "label",
    "model_change": "model_id",
    "thinking_level_change": "thinking_level",
    "custom": "custom_type",
    "context_edit": "target_id",
}
_WRAPPED = re.compile(r"<(skill|file)\b[^>]{0,500}>.*?</\1>", re.DOTALL)


def code_of(line: Line) -> int:
    """The packed code of an entry."""
    if line.type != "message":
        return code(_TYPES.get(line.type or "", Kind.OTHER), paid=is_object(line.usage))
    message = line.message
    if message is None:
        return code(Kind.OTHER, message=True)
    if message.role == "assistant":
        return ANSWERS[_TURNS.get(message.stop_reason or "", Turn.ENDED)]
    kind = _ROLES.get(message.role or "", Kind.OTHER)
    return code(kind, message=True, paid=is_object(message.usage))


def texts_of(line: Line) -> list[str]:
    """What an entry says; of one that is not said to anybody, what tells it from others."""
    if line.type == "message":
        return said(line.message) if line.message else []
    if line.type == "custom_message":
        return [one.text for one in blocks(line.content) if one.type == "text"]
    field = _WORDS.get(line.type or "")
    word = getattr(line, field) if field else None
    return [word] if word else []


def said(message: Message) -> list[str]:
    """The texts of a message; of a command that the user ran, what pi would show of it."""
    if message.role == "bashExecution":
        return [f"$ {message.command or ''}\n{message.output or ''}"]
    return [one.text for one in blocks(message.content) if one.type == "text"]


def words(line: Line) -> str:
    """The texts, each trimmed, empty ones dropped, joined by a newline (S0.12)."""
    return "\n".join(part for text in texts_of(line) if (part := text.strip(JS_SPACE)))


def when(line: Line) -> int:
    """When a message was said, in ms since the epoch: its own stamp, else the entry's."""
    own: Any = line.message.timestamp if line.message else None
    if type(own) in NUMBERS and 0 < own < TIME_MAX:
        return int(own)
    return iso_ms(line.timestamp or "")


def made_id(row: int) -> str:
    """The id of an entry of version 1, which has none of its own (S1.8)."""
    return f"{row:08x}"


def preview(text: str) -> str:
    """A message as one line of at most 200 characters, without skill and file wrappers."""
    head = text[:PREVIEWED]
    return safe_line(_WRAPPED.sub(" ", head)) or safe_line(head)

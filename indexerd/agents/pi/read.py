"""One pi line in full: what a transcript, a search or a preview needs of it.

Wrong types read as absent, texts come scrubbed of lone surrogates, and the only error is
ValueError for a line that is no JSON object.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from indexerd.core.clean import clean_line, scrub
from indexerd.core.redact import redact
from indexerd.core.times import iso_ms
from indexerd.events import KIND_MASK, Entry, Kind, ToolCall, Turn, code
from indexerd.meta import FIRST_MESSAGE_MAX

_ROLES = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
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
_TURNS = {"toolUse": Turn.OPEN, "error": Turn.FAILED, "aborted": Turn.FAILED}
_MS_MAX = 253_402_300_800_000  # the year 10000
_decode = msgspec.json.Decoder().decode


def parse(line: bytes) -> Any:
    """One line's JSON value; ValueError for a line that holds none. Bad UTF-8 becomes U+FFFD."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def turn_of(stop_reason: str) -> Turn:
    """How the turn stands after an assistant message that stopped for this reason."""
    return _TURNS.get(stop_reason, Turn.ENDED)


def packed_code(held: dict[str, Any]) -> int:
    """The one-byte code of a parsed entry."""
    kind_of = string(held.get("type"))
    if kind_of != "message":
        return code(_TYPES.get(kind_of, Kind.OTHER))
    message = message_of(held)
    kind = _ROLES.get(string(message.get("role")), Kind.OTHER)
    if kind != Kind.ASSISTANT:
        return code(kind, message=True)
    return code(kind, turn=turn_of(string(message.get("stopReason"))), message=True)


def read(line: bytes, entry_id: str) -> Entry:
    """Parse one entry's line in full; ValueError when it holds no JSON object."""
    held = parse(line)
    if not isinstance(held, dict):
        raise ValueError("not an object")
    return read_entry(held, entry_id)


def read_entry(held: dict[str, Any], entry_id: str) -> Entry:
    """The full form of a parsed line. Wrong types are read as absent."""
    kind_of = string(held.get("type"))
    message = message_of(held)
    role = message.get("role") if kind_of == "message" else None
    content = message.get("content") if kind_of == "message" else held.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [content] if isinstance(content, str) else _block_texts(blocks)
    return Entry(
        id=entry_id or scrub(string(held.get("id"))),
        kind=Kind(packed_code(held) & KIND_MASK),
        type=scrub(kind_of),
        role=scrub(role) if isinstance(role, str) else None,
        timestamp=scrub(string(held.get("timestamp"))),
        texts=tuple(scrub(text) for text in texts),
        tools=tuple(_tool(block) for block in blocks if _is_block(block, "toolCall")),
        model=string(message.get("model")) or None,
    )


def _is_block(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _block_texts(blocks: list[Any]) -> list[str]:
    return [string(block.get("text")) for block in blocks if _is_block(block, "text")]


def _tool(block: dict[str, Any]) -> ToolCall:
    arguments = block.get("arguments")
    given: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    path = given.get("path") or given.get("file_path")
    return ToolCall(
        name=scrub(string(block.get("name"))),
        path=scrub(path) if isinstance(path, str) and path else None,
        detail=scrub(string(given.get("command")) or string(given.get("pattern"))),
    )


_WRAPPED = re.compile(r"<(skill|file)\b[^>]{0,500}>.*?</\1>", re.DOTALL)


def preview(text: str) -> str:
    """A message as one line of at most 200 characters, without skill and file wrappers."""
    head = text[:20_000]
    return safe_line(_WRAPPED.sub(" ", head)) or safe_line(head)


def safe_line(text: str) -> str:
    """Text as one line that may be stored and shown: without secrets, at most 200 characters."""
    return clean_line(redact(text[:20_000]).text, FIRST_MESSAGE_MAX)


def when(held: dict[str, Any]) -> int:
    """When a message was said, in ms since the epoch: its own stamp, else the entry's."""
    own = message_of(held).get("timestamp")
    if isinstance(own, int | float) and not isinstance(own, bool) and 0 < own < _MS_MAX:
        return int(own)
    return iso_ms(string(held.get("timestamp")))


def string(value: Any) -> str:
    """The value if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def message_of(held: dict[str, Any]) -> dict[str, Any]:
    """The `message` of an entry, or an empty one."""
    message = held.get("message")
    return message if isinstance(message, dict) else {}

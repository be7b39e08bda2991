"""One pi line as far as search and facts need it: what was said, and what was called.

In: a line and its entry's id. Out: what `read` gives, without thoughts, pictures, results, details
and arguments; ValueError as there. Most lines are decoded by type, which skips all that is not
asked for; one that is no plain message of a human or a model, or that does not fit the types, is
read in full. What surprised us: to take a parsed line apart took longer than to parse it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from indexerd.agents.lines import string
from indexerd.agents.pi.read import counted, read, tool
from indexerd.events import Entry, Kind, Tokens, ToolCall

_KINDS = {"user": Kind.USER, "assistant": Kind.ASSISTANT}


class _Cost(msgspec.Struct):
    total: Any = None


class _Usage(msgspec.Struct, rename="camel"):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: _Cost | None = None


class _Given(msgspec.Struct):
    """The arguments that say what a call is for."""

    path: Any = None
    file_path: Any = None
    command: Any = None
    pattern: Any = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    name: str = ""
    arguments: _Given | None = None


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Block] = ""
    model: str = ""
    usage: _Usage | None = None


class _Line(msgspec.Struct):
    type: str = ""
    id: str = ""
    timestamp: str = ""
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line).decode


def told(line: bytes, entry_id: str) -> Entry:
    """What an entry tells; ValueError when its line holds no JSON object."""
    try:
        held = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read(line, entry_id)
    message = held.message
    kind = _KINDS.get(message.role) if message is not None and held.type == "message" else None
    if message is None or kind is None:
        return read(line, entry_id)
    content = message.content
    blocks = content if isinstance(content, list) else [_Block("text", content)]
    return Entry(
        id=entry_id or held.id,
        kind=kind,
        type=held.type,
        role=message.role,
        timestamp=held.timestamp,
        texts=tuple([one.text for one in blocks if one.type == "text"]),
        tools=tuple([_call(one) for one in blocks if one.type == "toolCall"]),
        model=message.model or None,
        tokens=_tokens(message.usage) if kind is Kind.ASSISTANT and message.usage else None,
    )


def _call(block: _Block) -> ToolCall:
    given = block.arguments
    if given is None:
        return tool(block.name, "", "")
    path = string(given.path) or string(given.file_path)
    return tool(block.name, path, string(given.command) or string(given.pattern))


def _tokens(usage: _Usage) -> Tokens:
    total = usage.cost.total if usage.cost is not None else None
    counts = usage.input, usage.output, usage.cache_read, usage.cache_write
    return counted(counts, usage.total_tokens, total)

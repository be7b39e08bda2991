"""One pi line in full: what a transcript, a search or a preview needs of it.

Wrong types read as absent, texts come scrubbed of lone surrogates, and the only error is
ValueError for a line that is no JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from indexerd.agents.lines import parse, safe_line, string
from indexerd.events import (
    JS_SPACE,
    KIND_MASK,
    Entry,
    Kind,
    Tokens,
    ToolCall,
    ToolResult,
    Turn,
    code,
)
from indexerd.privacy.sanitize import scrub
from indexerd.times import iso_ms

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
_TOKENS_MAX, _USD_MAX = 1 << 40, 1_000_000
_WRITES = frozenset({"write", "edit"})
_NEW_ROLES = {"hookMessage": "custom"}
_WORDS = {  # the field that says what an entry without a message is about
    "compaction": "summary",
    "branch_summary": "summary",
    "session_info": "name",
    "label": "label",
    "model_change": "modelId",
    "thinking_level_change": "thinkingLevel",
    "custom": "customType",
    "context_edit": "targetId",
}
_OF_MESSAGE = ("provider", "stopReason", "errorMessage", "customType", "display")
_OF_COMMAND = ("exitCode", "cancelled", "truncated", "fullOutputPath", "excludeFromContext")
_OF_PROMPT = (("sections", dict), ("toolsAdded", list), ("toolsRemoved", list))
_OF_TYPE = {  # what else is kept of each type's entries, by the names that pi gives it
    "custom_message": ("customType", "display"),
    "custom": ("customType", "data"),
    "model_change": ("provider", "modelId"),
    "thinking_level_change": ("thinkingLevel",),
    "context_edit": ("targetId",),
    "compaction": ("tokensBefore", "fromHook", "details"),
    "branch_summary": ("fromId", "fromHook", "details"),
}
_KEY_TYPES: dict[str, type | tuple[type, ...]] = {
    "display": bool,
    "fromHook": bool,
    "cancelled": bool,
    "truncated": bool,
    "excludeFromContext": bool,
    "exitCode": int,
    "tokensBefore": (int, float),
    "data": object,
    "details": object,
}
_MS_MAX = 253_402_300_800_000  # the year 10000
_ROWS_MAX = 0xFFFF_FFFF


def turn_of(stop_reason: str) -> Turn:
    """How the turn stands after an assistant message that stopped for this reason."""
    return _TURNS.get(stop_reason, Turn.ENDED)


def packed_code(held: dict[str, Any]) -> int:
    """The one-byte code of a parsed entry."""
    kind_of = string(held.get("type"))
    if kind_of != "message":
        return code(_TYPES.get(kind_of, Kind.OTHER), paid=isinstance(held.get("usage"), dict))
    message = message_of(held)
    kind = _ROLES.get(string(message.get("role")), Kind.OTHER)
    if kind != Kind.ASSISTANT:
        return code(kind, message=True, paid=isinstance(message.get("usage"), dict))
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
    role = string(message.get("role")) if kind_of == "message" else ""
    blocks = _blocks(message if kind_of == "message" else held)
    found_id = entry_id or scrub(string(held.get("id")))
    return Entry(
        id=found_id,
        kind=Kind(packed_code(held) & KIND_MASK),
        type=scrub(kind_of),
        role=_NEW_ROLES.get(role, scrub(role)) or None,
        timestamp=scrub(string(held.get("timestamp"))),
        texts=tuple(scrub(text) for text in _texts(held)),
        tools=_calls(blocks) if kind_of == "message" else (),
        model=string(message.get("model")) or None,
        tokens=_tokens(message if kind_of == "message" else held),
        thinking=_thinking(blocks),
        images=_images(blocks),
        results=_results(message) if role == "toolResult" else (),
        failed=_failed(message) if role == "toolResult" else (),
        details=_details(held, found_id),
    )


def _tokens(said: dict[str, Any]) -> Tokens | None:
    """What an answer, a tool or a summary cost, as pi recorded it: a failed answer, nothing."""
    usage = said.get("usage")
    if not isinstance(usage, dict):
        return None
    cost = usage.get("cost")
    counts = [usage.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    total = cost.get("total") if isinstance(cost, dict) else None
    return counted(counts, usage.get("totalTokens"), total)


def counted(counts: Sequence[Any], total: Any, cost: Any) -> Tokens:
    """The tokens of a call: given, made, read from and written to the cache; and what it cost.

    A number that cannot be is none.
    """
    given, output, read_back, written = map(_count, counts)
    known = type(cost) in {int, float} and 0 <= cost < _USD_MAX
    return Tokens(
        input=given,
        output=output,
        cache_read=read_back,
        cache_write=written,
        cost_usd=float(cost) if known else None,
        total=_count(total) or given + output + read_back + written,
    )


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < _TOKENS_MAX else 0


def _texts(held: dict[str, Any]) -> list[str]:
    """What an entry says; of one that is not said to anybody, what tells it from others."""
    kind_of = string(held.get("type"))
    if kind_of == "message":
        return _said(message_of(held))
    if kind_of == "custom_message":
        return _block_texts(held.get("content"))
    word = string(held.get(_WORDS.get(kind_of, "")))
    return [word] if word else []


def words(held: dict[str, Any]) -> str:
    """What `read_entry(held, "").text` is, without the rest of the entry."""
    parts = (scrub(text).strip(JS_SPACE) for text in _texts(held))
    return "\n".join(part for part in parts if part)


def _said(message: dict[str, Any]) -> list[str]:
    if message.get("role") == "bashExecution":
        return [f"$ {string(message.get('command'))}\n{string(message.get('output'))}"]
    return _block_texts(message.get("content"))


def _block_texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [string(block.get("text")) for block in blocks if _is_block(block, "text")]


def _blocks(held: dict[str, Any]) -> list[Any]:
    content = held.get("content")
    return content if isinstance(content, list) else []


def _calls(blocks: list[Any]) -> tuple[ToolCall, ...]:
    return tuple(_tool(block) for block in blocks if _is_block(block, "toolCall"))


def _thinking(blocks: list[Any]) -> tuple[str, ...]:
    thoughts = (block for block in blocks if _is_block(block, "thinking"))
    return tuple(scrub(string(block.get("thinking"))) for block in thoughts)


def _images(blocks: list[Any]) -> int:
    return sum(_is_block(block, "image") for block in blocks)


def _results(message: dict[str, Any]) -> tuple[ToolResult, ...]:
    call, name = (scrub(string(message.get(key))) for key in ("toolCallId", "toolName"))
    return (ToolResult(call, name, scrub("".join(_said(message)))),)


def _failed(message: dict[str, Any]) -> tuple[str, ...]:
    """The call whose result this is, where pi marked it as an error: also one that names none."""
    return (scrub(string(message.get("toolCallId"))),) if message.get("isError") is True else ()


def _is_block(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _details(held: dict[str, Any], entry_id: str) -> dict[str, Any]:
    """What else an entry of its type holds, as sessions/context.py describes it."""
    kind_of = string(held.get("type"))
    if kind_of == "message":
        message = message_of(held)
        found = _picked(message, _OF_MESSAGE)
        if message.get("role") == "bashExecution":
            found["ran"] = _ran(message)
        return found | _prompt(message)
    found = _picked(held, _OF_TYPE.get(kind_of, ()))
    if kind_of == "compaction":
        found |= _compaction(held, entry_id)
    elif kind_of == "context_edit":
        new = held.get("replacement", ...)
        if new is None:
            found["replacement"] = None
        elif isinstance(new, dict):
            found |= _replacement(new)
    return found


def _ran(message: dict[str, Any]) -> dict[str, Any]:
    """How a command ended that the user ran; of some (`!!`) the model is told nothing."""
    return _picked(message, _OF_COMMAND) | {
        "command": scrub(string(message.get("command"))),
        "output": scrub(string(message.get("output"))),
    }


def _prompt(message: dict[str, Any]) -> dict[str, Any]:
    """What a system message says of the prompt beside its texts, as it was stored."""
    held = {key: message[key] for key, kind in _OF_PROMPT if isinstance(message.get(key), kind)}
    return {"prompt": held} if held else {}


def _replacement(new: dict[str, Any]) -> dict[str, Any]:
    """All that an edited entry says from then on."""
    blocks = _blocks(new)
    return {
        "replacement": [scrub(text) for text in _block_texts(new.get("content"))],
        "newThinking": _thinking(blocks),
        "newCalls": _calls(blocks),
        "newImages": _images(blocks),
    }


def _picked(held: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """These fields, as far as they are there and of the right type."""
    found = {}
    for key in keys:
        value = held.get(key)
        if value is not None and isinstance(value, _KEY_TYPES.get(key, str)):
            found[key] = scrub(value) if isinstance(value, str) else value
    return found


def _compaction(held: dict[str, Any], entry_id: str) -> dict[str, Any]:
    kept: Any = held.get("firstKeptEntryId")
    index: Any = held.get("firstKeptEntryIndex")
    if entry_id and held.get("id") != entry_id:  # version 1: the id was made, and says the row
        counted = type(index) is int and 1 <= index <= _ROWS_MAX  # the header is 0
        kept = made_id(index - 1) if counted else None
    system, tail = held.get("systemMessage"), held.get("retainedTail")
    found: dict[str, Any] = {"kept": scrub(kept) if isinstance(kept, str) else None}
    if isinstance(system, dict):
        found |= {"system": scrub("".join(_said(system)))} | _prompt(system)
    if isinstance(tail, list):
        found["retained"] = [_retained(one) for one in tail if isinstance(one, dict)]
    return found


def _retained(message: dict[str, Any]) -> dict[str, str]:
    return {"role": scrub(string(message.get("role"))), "text": scrub("".join(_said(message)))}


def made_id(row: int) -> str:
    """The id of an entry of version 1, which has none of its own (S1.8)."""
    return f"{row:08x}"


def _tool(block: dict[str, Any]) -> ToolCall:
    arguments = block.get("arguments")
    given: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    path = scrub(string(given.get("path")) or string(given.get("file_path")))
    said = scrub(string(given.get("command")) or string(given.get("pattern")))
    return tool(scrub(string(block.get("name"))), path, said, arguments)


def tool(name: str, path: str, said: str, arguments: Any = None) -> ToolCall:
    """A call, by its tool, the file it names, and the command or pattern it was given."""
    return ToolCall(
        name=name,
        detail=said or path,
        reads=(path,) if path and name == "read" else (),
        writes=(path,) if path and name in _WRITES else (),
        arguments=arguments,
    )


_WRAPPED = re.compile(r"<(skill|file)\b[^>]{0,500}>.*?</\1>", re.DOTALL)


def preview(text: str) -> str:
    """A message as one line of at most 200 characters, without skill and file wrappers."""
    head = text[:20_000]
    return safe_line(_WRAPPED.sub(" ", head)) or safe_line(head)


def when(held: dict[str, Any]) -> int:
    """When a message was said, in ms since the epoch: its own stamp, else the entry's."""
    own = message_of(held).get("timestamp")
    if isinstance(own, int | float) and not isinstance(own, bool) and 0 < own < _MS_MAX:
        return int(own)
    return iso_ms(string(held.get("timestamp")))


def message_of(held: dict[str, Any]) -> dict[str, Any]:
    """The `message` of an entry, or an empty one."""
    message = held.get("message")
    return message if isinstance(message, dict) else {}

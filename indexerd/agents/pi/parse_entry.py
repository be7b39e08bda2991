"""Parse one line of a pi session in full."""

from __future__ import annotations

from typing import Any

from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    as_list,
    call_of,
    number,
    parse_object,
    string,
    texts_in,
    tokens_of,
)
from indexerd.events import (
    Command,
    Compaction,
    Edit,
    Entry,
    Kind,
    Retained,
    Tokens,
    ToolCall,
    ToolResult,
)

ROLES = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "toolResult": Kind.TOOL,
    "system": Kind.SYSTEM,
    "bashExecution": Kind.BASH,
    "custom": Kind.CUSTOM,
    "hookMessage": Kind.CUSTOM,  # its name in version 2
}
TYPES = {
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
    "model_change": "modelId",
    "thinking_level_change": "thinkingLevel",
    "custom": "customType",
    "context_edit": "targetId",
}
_PROMPT = {"sections": dict, "toolsAdded": list, "toolsRemoved": list}
_ROWS_MAX = 1 << 32


def made_id(row: int) -> str:
    """Make the id of an entry of version 1, which has none of its own."""
    return f"{row:08x}"


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line; ValueError where it holds no JSON object."""
    return entry_of(parse_object(data), entry_id)


def entry_of(line: Fields, entry_id: str = "") -> Entry:
    kind, message = string(line.get("type")), as_dict(line.get("message"))
    says = message if kind == "message" else line
    content = as_blocks(says.get("content"))
    fields = _message(message, content) if kind == "message" else _other(line, kind, entry_id)
    return Entry(
        id=entry_id or string(line.get("id")),
        type=kind,
        timestamp=string(line.get("timestamp")),
        tokens=_tokens(says.get("usage")),
        provider=string(says.get("provider")) or None,
        custom_type=string(says.get("customType")) or None,
        display=_flag(says.get("display")),
        images=_images(content),
        **fields,
    )


def _message(message: Fields, content: list[Fields]) -> Fields:
    role, texts, call = string(message.get("role")), _texts(message), message.get("toolCallId")
    fields: Fields = {
        "kind": ROLES.get(role, Kind.OTHER),
        "role": "custom" if role == "hookMessage" else role or None,
        "texts": texts,
        "tools": _calls(content),
        "model": string(message.get("model")) or None,
        "thinking": _thinking(content),
        "stop_reason": string(message.get("stopReason")),
        "error": string(message.get("errorMessage")),
        "prompt": _prompt(message),
    }
    if role == "toolResult":
        result = ToolResult(string(call), string(message.get("toolName")), "".join(texts))
        fields["results"] = (result,)
        fields["failed"] = (result.call,) if message.get("isError") is True else ()
    elif role == "bashExecution":
        fields["ran"] = _ran(message)
    return fields


def _other(line: Fields, kind: str, entry_id: str) -> Fields:
    word = string(line.get(_WORDS[kind])) if kind in _WORDS else ""
    fields: Fields = {"kind": TYPES.get(kind, Kind.OTHER), "role": None}
    fields |= {"texts": (word,)} if word else {}
    match kind:
        case "custom_message":
            fields["texts"] = _texts(line)
        case "custom":
            fields["data"] = line.get("data")
        case "model_change":
            fields["next_model"] = word or None
        case "thinking_level_change":
            level = line.get("thinkingLevel")
            fields["thinking_level"] = level if isinstance(level, str) else None
        case "context_edit":
            fields["edit"] = _edit(line, word)
        case "compaction":
            fields["compaction"] = _compaction(line, entry_id)
            fields["prompt"] = _prompt(as_dict(line.get("systemMessage")))
        case "branch_summary":
            fields["from_id"] = string(line.get("fromId")) or None
    if kind in ("compaction", "branch_summary"):
        fields |= {"from_hook": _flag(line.get("fromHook")), "stored": line.get("details")}
    return fields


def _texts(message: Fields) -> tuple[str, ...]:
    """Return a message's texts; of a command that the user ran, what pi would show of it."""
    if message.get("role") == "bashExecution":
        return (f"$ {string(message.get('command'))}\n{string(message.get('output'))}",)
    return tuple(texts_in(as_blocks(message.get("content"))))


def _thinking(content: list[Fields]) -> tuple[str, ...]:
    return tuple([string(one.get("thinking")) for one in content if one.get("type") == "thinking"])


def _images(content: list[Fields]) -> int:
    return sum([one.get("type") == "image" for one in content])


def _flag(held: Any) -> bool | None:
    return held if isinstance(held, bool) else None


def _calls(content: list[Fields]) -> tuple[ToolCall, ...]:
    calls = [one for one in content if one.get("type") == "toolCall"]
    return tuple([call_of(string(one.get("name")), one.get("arguments")) for one in calls])


def _tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    cost = as_dict(usage.get("cost")).get("total")
    return tokens_of(counts, total=usage.get("totalTokens"), cost=cost)


def _ran(message: Fields) -> Command:
    """Parse a command that the user ran; the model is told nothing of some (`!!`)."""
    code = message.get("exitCode")
    return Command(
        command=string(message.get("command")),
        output=string(message.get("output")),
        exit_code=code if type(code) is int else None,
        cancelled=message.get("cancelled") is True,
        truncated=message.get("truncated") is True,
        output_file=string(message.get("fullOutputPath")) or None,
        hidden=message.get("excludeFromContext") is True,
    )


def _prompt(message: Fields) -> Fields | None:
    """Return the parts of a system prompt that stand outside its texts, as stored."""
    parts = {
        key: message[key] for key, kind in _PROMPT.items() if isinstance(message.get(key), kind)
    }
    return parts or None


def _edit(line: Fields, target: str) -> Edit | None:
    """Parse what replaces an earlier entry; None where the edit says nothing."""
    replacement = line.get("replacement", "")
    if replacement is None:
        return Edit(target, removed=True)
    if not isinstance(replacement, dict):
        return None
    found = as_blocks(replacement.get("content"))
    return Edit(
        target,
        texts=tuple(texts_in(found)),
        thinking=_thinking(found),
        calls=_calls(found),
        images=_images(found),
    )


def _compaction(line: Fields, entry_id: str) -> Compaction:
    kept, index = line.get("firstKeptEntryId"), line.get("firstKeptEntryIndex")
    if entry_id and line.get("id") != entry_id:  # version 1: the id was made, and says the row
        at = number(index, _ROWS_MAX) if type(index) is int else 0  # the header is 0
        kept = made_id(at - 1) if at else None
    tail, system = line.get("retainedTail"), line.get("systemMessage")
    before = line.get("tokensBefore")
    messages = [one for one in as_list(tail) if isinstance(one, dict)]
    retained = tuple([Retained(string(one.get("role")), "".join(_texts(one))) for one in messages])
    return Compaction(
        kept=kept if isinstance(kept, str) else None,
        retained=retained if isinstance(tail, list) else None,
        system="".join(_texts(system)) if isinstance(system, dict) else None,
        tokens_before=before if type(before) in (int, float) else None,
    )

"""One pi line in full: what a transcript, a search or a preview needs of it."""

from __future__ import annotations

from typing import Any

from indexerd.agents import json_lines as lines
from indexerd.agents.json_lines import as_blocks, as_dict, string, texts_in
from indexerd.events import Command, Compaction, Edit, Entry, Kind, Retained, ToolCall, ToolResult

ROLES = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "toolResult": Kind.TOOL,
    "system": Kind.SYSTEM,
    "bashExecution": Kind.BASH,
    "custom": Kind.CUSTOM,
    "hookMessage": Kind.CUSTOM,  # what version 2 called it
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
_WRITES = frozenset({"write", "edit"})
_PROMPT = {"sections": dict, "toolsAdded": list, "toolsRemoved": list}
_ROWS_MAX = 1 << 32
_Fields = dict[str, Any]  # of a line, and of an entry


def made_id(row: int) -> str:
    """The id of an entry of version 1, which has none of its own."""
    return f"{row:08x}"


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line in full; ValueError where it holds no JSON object."""
    line = lines.parse_object(data)
    kind, message = string(line.get("type")), as_dict(line.get("message"))
    fields = _message(message) if kind == "message" else _other(line, kind, entry_id)
    return Entry(
        id=entry_id or string(line.get("id")),
        type=kind,
        timestamp=string(line.get("timestamp")),
        # What an answer, a tool or a summary cost: a failed answer, nothing.
        tokens=_tokens((message if kind == "message" else line).get("usage")),
        **fields,
    )


def _message(message: _Fields) -> _Fields:
    role, texts = string(message.get("role")), _texts(message)
    call, content = string(message.get("toolCallId")), as_blocks(message.get("content"))
    fields: _Fields = {
        "kind": ROLES.get(role, Kind.OTHER),
        "role": "custom" if role == "hookMessage" else role or None,
        "texts": tuple(texts),
        "tools": _calls(content),
        "model": string(message.get("model")) or None,
        "thinking": _thinking(content),
        "images": _images(content),
        "provider": string(message.get("provider")) or None,
        "stop_reason": string(message.get("stopReason")),
        "error": string(message.get("errorMessage")),
        "custom_type": string(message.get("customType")) or None,
        "display": _flag(message.get("display")),
        "prompt": _prompt(message),
    }
    if role == "toolResult":
        fields["results"] = (ToolResult(call, string(message.get("toolName")), "".join(texts)),)
        # The call that pi marked as an error: also one that names none.
        fields["failed"] = (call,) if message.get("isError") is True else ()
    elif role == "bashExecution":
        fields["ran"] = _ran(message)
    return fields


def _other(line: _Fields, kind: str, entry_id: str) -> _Fields:
    """The fields of an entry that is no message."""
    word = string(line.get(_WORDS[kind])) if kind in _WORDS else ""
    fields: _Fields = {"kind": TYPES.get(kind, Kind.OTHER), "role": None}
    fields |= {"texts": (word,)} if word else {}
    custom_type = string(line.get("customType")) or None
    if kind == "custom_message":
        content, display = as_blocks(line.get("content")), _flag(line.get("display"))
        fields |= {"texts": tuple(texts_in(content)), "images": _images(content)}
        fields |= {"custom_type": custom_type, "display": display}
    elif kind == "custom":
        fields |= {"custom_type": custom_type, "data": line.get("data")}
    elif kind == "model_change":
        fields |= {"provider": string(line.get("provider")) or None, "next_model": word or None}
    elif kind == "thinking_level_change":
        level = line.get("thinkingLevel")
        fields["thinking_level"] = level if isinstance(level, str) else None
    elif kind == "context_edit":
        fields["edit"] = _edit(line, word)
    elif kind in ("compaction", "branch_summary"):
        fields |= {"from_hook": _flag(line.get("fromHook")), "stored": line.get("details")}
    if kind == "branch_summary":
        fields["from_id"] = string(line.get("fromId")) or None
    elif kind == "compaction":
        fields["compaction"] = _compaction(line, entry_id)
        fields["prompt"] = _prompt(as_dict(line.get("systemMessage")))
    return fields


def _texts(message: _Fields) -> list[str]:
    """The texts of a message; of a command that the user ran, what pi would show of it."""
    if message.get("role") == "bashExecution":
        return [f"$ {string(message.get('command'))}\n{string(message.get('output'))}"]
    return texts_in(as_blocks(message.get("content")))


def _thinking(content: list[_Fields]) -> tuple[str, ...]:
    return tuple([string(one.get("thinking")) for one in content if one.get("type") == "thinking"])


def _images(content: list[_Fields]) -> int:
    return sum([one.get("type") == "image" for one in content])


def _flag(held: Any) -> bool | None:
    return held if isinstance(held, bool) else None


def _calls(content: list[_Fields]) -> tuple[ToolCall, ...]:
    return tuple([_call(one) for one in content if one.get("type") == "toolCall"])


def _call(block: _Fields) -> ToolCall:
    name, given = string(block.get("name")), as_dict(block.get("arguments"))
    path = string(given.get("path")) or string(given.get("file_path"))
    return ToolCall(
        name=name,
        detail=string(given.get("command")) or string(given.get("pattern")) or path,
        reads=(path,) if path and name == "read" else (),
        writes=(path,) if path and name in _WRITES else (),
        arguments=block.get("arguments"),
    )


def _tokens(usage: Any) -> Any:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    cost = as_dict(usage.get("cost")).get("total")
    return lines.tokens_of(counts, total=usage.get("totalTokens"), cost=cost)


def _ran(message: _Fields) -> Command:
    """How a command ended that the user ran; of some (`!!`) the model is told nothing."""
    code, file = message.get("exitCode"), message.get("fullOutputPath")
    return Command(
        command=string(message.get("command")),
        output=string(message.get("output")),
        exit_code=code if type(code) is int else None,
        cancelled=message.get("cancelled") is True,
        truncated=message.get("truncated") is True,
        output_file=file if isinstance(file, str) else None,
        hidden=message.get("excludeFromContext") is True,
    )


def _prompt(message: _Fields) -> _Fields | None:
    """What a system message says of the prompt beside its texts, as it was stored."""
    return {
        k: message[k] for k, kind in _PROMPT.items() if isinstance(message.get(k), kind)
    } or None


def _edit(line: _Fields, target: str) -> Edit | None:
    """All that an edited entry says from then on; None where the edit says nothing."""
    if "replacement" not in line:
        return None
    replacement = line["replacement"]
    if replacement is None:
        return Edit(target, removed=True)
    if not isinstance(replacement, dict):
        return None
    found = as_blocks(replacement.get("content"))
    texts, thinking = tuple(texts_in(found)), _thinking(found)
    return Edit(target, False, texts, thinking, _calls(found), _images(found))  # noqa: FBT003


def _compaction(line: _Fields, entry_id: str) -> Compaction:
    kept, index = line.get("firstKeptEntryId"), line.get("firstKeptEntryIndex")
    if entry_id and line.get("id") != entry_id:  # version 1: the id was made, and says the row
        at = lines.number(index, _ROWS_MAX) if type(index) is int else 0  # the header is 0
        kept = made_id(at - 1) if at else None
    tail, system, before = (
        line.get("retainedTail"),
        line.get("systemMessage"),
        line.get("tokensBefore"),
    )
    messages = [one for one in tail if isinstance(one, dict)] if isinstance(tail, list) else []
    retained = tuple([Retained(string(one.get("role")), "".join(_texts(one))) for one in messages])
    return Compaction(
        kept=kept if isinstance(kept, str) else None,
        retained=retained if isinstance(tail, list) else None,
        system="".join(_texts(system)) if isinstance(system, dict) else None,
        tokens_before=before if type(before) in (int, float) else None,
    )

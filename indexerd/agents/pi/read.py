"""One pi line in full: what a transcript, a search or a preview needs of it."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from indexerd.agents.lines import (
    NOTHING,
    Block,
    as_dict,
    as_list,
    blocks,
    decoder,
    is_object,
    mapping,
    pick,
    string,
    texts_in,
    tokens_of,
    value,
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
    "model_change": "model_id",
    "thinking_level_change": "thinking_level",
    "custom": "custom_type",
    "context_edit": "target_id",
}
_WRITES = frozenset({"write", "edit"})
_ROWS_MAX = 0xFFFF_FFFF


class Message(Struct, rename="camel"):
    """What was said, by a human, a model, a tool or a program."""

    role: str | None = None
    content: Raw = NOTHING
    provider: str | None = None
    model: str | None = None
    usage: Raw = NOTHING
    stop_reason: str | None = None
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
    """A whole entry, whatever its type."""

    type: str | None = None
    id: str | None = None
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


_decode = decoder(Line)
_decode_message = decoder(Message)


def made_id(row: int) -> str:
    """The id of an entry of version 1, which has none of its own (S1.8)."""
    return f"{row:08x}"


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line in full; ValueError where it holds no JSON object."""
    line = _decode(data)
    entry_id, kind = entry_id or line.id or "", line.type or ""
    if kind == "message":
        return _message(line, line.message or Message(), entry_id)
    fields: dict[str, Any] = {}
    if kind == "custom_message":
        found = blocks(line.content)
        fields = {"custom_type": line.custom_type, "display": line.display}
        fields |= {"texts": tuple(texts_in(found)), "images": _images(found)}
    elif kind == "custom":
        fields = {"custom_type": line.custom_type, "data": value(line.data)}
    elif kind == "model_change":
        fields = {"provider": line.provider, "next_model": line.model_id}
    elif kind == "thinking_level_change":
        fields = {"thinking_level": line.thinking_level}
    elif kind == "context_edit":
        fields = {"edit": _edit(line)}
    elif kind == "compaction":
        fields = {"compaction": _compaction(line, entry_id), "stored": value(line.details)}
        fields |= {"from_hook": line.from_hook}
        fields |= {"prompt": _prompt(line.system_message)} if line.system_message else {}
    elif kind == "branch_summary":
        fields = {"from_id": line.from_id, "stored": value(line.details)}
        fields |= {"from_hook": line.from_hook}
    word = getattr(line, _WORDS[kind]) if kind in _WORDS else None
    fields |= {"texts": (word,)} if word else {}
    return Entry(
        id=entry_id,
        kind=TYPES.get(kind, Kind.OTHER),
        type=kind,
        role=None,
        timestamp=line.timestamp or "",
        tokens=_tokens(line.usage),
        **fields,
    )


def _message(line: Line, message: Message, entry_id: str) -> Entry:
    role = message.role or ""
    found = blocks(message.content)
    is_result, ran = role == "toolResult", role == "bashExecution"
    texts = _texts(message)
    call = message.tool_call_id or ""
    result = ToolResult(call, message.tool_name or "", "".join(texts)) if is_result else None
    return Entry(
        id=entry_id,
        kind=ROLES.get(role, Kind.OTHER),
        type="message",
        role="custom" if role == "hookMessage" else role or None,
        timestamp=line.timestamp or "",
        texts=tuple(texts),
        tools=_calls(found),
        model=message.model or None,
        tokens=_tokens(message.usage),
        thinking=_thinking(found),
        images=_images(found),
        results=(result,) if result else (),
        # The call that pi marked as an error: also one that names none.
        failed=(call,) if is_result and message.is_error else (),
        provider=message.provider,
        stop_reason=message.stop_reason or "",
        error=message.error_message or "",
        custom_type=message.custom_type,
        display=message.display,
        prompt=_prompt(message),
        ran=_ran(message) if ran else None,
    )


def _texts(message: Message) -> list[str]:
    """The texts of a message; of a command that the user ran, what pi would show of it."""
    if message.role == "bashExecution":
        return [f"$ {message.command or ''}\n{message.output or ''}"]
    return texts_in(blocks(message.content))


def _thinking(found: list[Block]) -> tuple[str, ...]:
    return tuple([one.thinking for one in found if one.type == "thinking"])


def _images(found: list[Block]) -> int:
    return sum([one.type == "image" for one in found])


def _calls(found: list[Block]) -> tuple[ToolCall, ...]:
    return tuple([_call(one) for one in found if one.type == "toolCall"])


def _call(block: Block) -> ToolCall:
    arguments, name = value(block.arguments), block.name
    given = as_dict(arguments)
    path = string(given.get("path")) or string(given.get("file_path"))
    return ToolCall(
        name=name,
        detail=string(given.get("command")) or string(given.get("pattern")) or path,
        reads=(path,) if path and name == "read" else (),
        writes=(path,) if path and name in _WRITES else (),
        arguments=arguments,
    )


def _tokens(usage: Raw) -> Tokens | None:
    """What an answer, a tool or a summary cost, as pi recorded it: a failed answer, nothing."""
    if not is_object(usage):
        return None
    held = mapping(usage)
    counts = [held.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    cost = as_dict(held.get("cost")).get("total")
    return tokens_of(counts, total=held.get("totalTokens"), cost=cost)


def _ran(message: Message) -> Command:
    """How a command ended that the user ran; of some (`!!`) the model is told nothing."""
    return Command(
        command=message.command or "",
        output=message.output or "",
        exit_code=message.exit_code,
        cancelled=bool(message.cancelled),
        truncated=bool(message.truncated),
        output_file=message.full_output_path,
        hidden=bool(message.exclude_from_context),
    )


def _prompt(message: Message) -> dict[str, Any] | None:
    """What a system message says of the prompt beside its texts, as it was stored."""
    held = (
        ("sections", dict, message.sections),
        ("toolsAdded", list, message.tools_added),
        ("toolsRemoved", list, message.tools_removed),
    )
    found = {key: one for key, kind, raw in held if isinstance(one := value(raw), kind)}
    return found or None


def _edit(line: Line) -> Edit | None:
    """All that an edited entry says from then on; None where the edit says nothing."""
    if bytes(line.replacement).strip() == b"null":
        return Edit(line.target_id or "", removed=True)
    if not is_object(line.replacement):
        return None
    found = blocks(_decode_message(line.replacement).content)
    return Edit(
        line.target_id or "",
        texts=tuple(texts_in(found)),
        thinking=_thinking(found),
        calls=_calls(found),
        images=_images(found),
    )


def _compaction(line: Line, entry_id: str) -> Compaction:
    kept, index = line.first_kept_entry_id, line.first_kept_entry_index
    if entry_id and line.id != entry_id:  # version 1: the id was made, and says the row
        known = type(index) is int and 1 <= index <= _ROWS_MAX  # the header is 0
        kept = made_id(index - 1) if known else None
    tail = value(line.retained_tail)
    messages = [pick(Message, one) for one in as_list(tail) if isinstance(one, dict)]
    retained = [Retained(one.role or "", "".join(_texts(one))) for one in messages]
    return Compaction(
        kept=kept,
        retained=tuple(retained) if isinstance(tail, list) else None,
        system="".join(_texts(line.system_message)) if line.system_message else None,
        tokens_before=line.tokens_before,
    )

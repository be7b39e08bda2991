"""One pi line in full: what a transcript, a search or a preview needs of it."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from indexerd.agents.lines import Block, blocks, is_object, mapping, pick, string, tokens_of, value
from indexerd.agents.pi.lines import (
    Line,
    Message,
    code_of,
    decode,
    decode_message,
    made_id,
    said,
    texts_of,
)
from indexerd.events import (
    KIND_MASK,
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

_WRITES = frozenset({"write", "edit"})
_NEW_ROLES = {"hookMessage": "custom"}
_KINDS = tuple(Kind)
_ROWS_MAX = 0xFFFF_FFFF


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's line in full; ValueError where it holds no JSON object."""
    line = decode(data)
    if line is None:
        raise ValueError("not an object")
    entry_id = entry_id or line.id or ""
    kind = _KINDS[code_of(line) & KIND_MASK]
    if line.type == "message":
        return _message(line, line.message or Message(), kind, entry_id)
    of_content = blocks(line.content) if line.type == "custom_message" else []
    compaction = line.system_message if line.type == "compaction" else None
    return Entry(
        id=entry_id,
        kind=kind,
        type=line.type or "",
        role=None,
        timestamp=line.timestamp or "",
        texts=tuple(texts_of(line)),
        tokens=_tokens(line.usage),
        images=_images(of_content),
        prompt=_prompt(compaction) if compaction else None,
        edit=_edit(line) if line.type == "context_edit" else None,
        compaction=_compaction(line, entry_id) if line.type == "compaction" else None,
        **_fields(line),
    )


def _fields(line: Line) -> dict[str, Any]:  # noqa: PLR0911 - one type each
    """What else is kept of each type's entries."""
    match line.type:
        case "custom_message":
            return {"custom_type": line.custom_type, "display": line.display}
        case "custom":
            return {"custom_type": line.custom_type, "data": value(line.data)}
        case "model_change":
            return {"provider": line.provider, "next_model": line.model_id}
        case "thinking_level_change":
            return {"thinking_level": line.thinking_level}
        case "compaction":
            return {"from_hook": line.from_hook, "stored": value(line.details)}
        case "branch_summary":
            stored = value(line.details)
            return {"from_id": line.from_id, "from_hook": line.from_hook, "stored": stored}
    return {}


def _message(line: Line, message: Message, kind: Kind, entry_id: str) -> Entry:
    role = message.role or ""
    found = blocks(message.content)
    is_result, ran = role == "toolResult", role == "bashExecution"
    texts = said(message) if ran else [one.text for one in found if one.type == "text"]
    call = message.tool_call_id or ""
    result = ToolResult(call, message.tool_name or "", "".join(texts)) if is_result else None
    return Entry(
        id=entry_id,
        kind=kind,
        type="message",
        role=_NEW_ROLES.get(role, role) or None,
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


def _thinking(found: list[Block]) -> tuple[str, ...]:
    return tuple([one.thinking for one in found if one.type == "thinking"])


def _images(found: list[Block]) -> int:
    return sum([one.type == "image" for one in found])


def _calls(found: list[Block]) -> tuple[ToolCall, ...]:
    return tuple([_call(one) for one in found if one.type == "toolCall"])


def _call(block: Block) -> ToolCall:
    arguments, name = value(block.arguments), block.name
    given: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
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
    cost = held.get("cost")
    counts = [held.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    spent = cost.get("total") if isinstance(cost, dict) else None
    return tokens_of(counts, total=held.get("totalTokens"), cost=spent)


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
    found = {
        "sections": value(message.sections),
        "toolsAdded": value(message.tools_added),
        "toolsRemoved": value(message.tools_removed),
    }
    kinds = {"sections": dict}
    return {k: one for k, one in found.items() if isinstance(one, kinds.get(k, list))} or None


def _edit(line: Line) -> Edit | None:
    """All that an edited entry says from then on; None where the edit says nothing."""
    if bytes(line.replacement).strip() == b"null":
        return Edit(line.target_id or "", removed=True)
    new = decode_message(line.replacement) if is_object(line.replacement) else None
    if new is None:
        return None
    found = blocks(new.content)
    texts = tuple([one.text for one in found if one.type == "text"])
    calls, images = _calls(found), _images(found)
    return Edit(line.target_id or "", False, texts, _thinking(found), calls, images)  # noqa: FBT003


def _compaction(line: Line, entry_id: str) -> Compaction:
    kept, index = line.first_kept_entry_id, line.first_kept_entry_index
    if entry_id and line.id != entry_id:  # version 1: the id was made, and says the row
        known = type(index) is int and 1 <= index <= _ROWS_MAX  # the header is 0
        kept = made_id(index - 1) if known else None
    return Compaction(
        kept=kept,
        retained=_retained(line.retained_tail),
        system="".join(said(line.system_message)) if line.system_message else None,
        tokens_before=line.tokens_before,
    )


def _retained(tail: Raw) -> tuple[Retained, ...] | None:
    held = value(tail)
    if not isinstance(held, list):
        return None
    messages = [pick(Message, one) for one in held if isinstance(one, dict)]
    return tuple([Retained(one.role or "", "".join(said(one))) for one in messages])

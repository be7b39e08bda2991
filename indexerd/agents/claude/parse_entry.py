"""Parse one Claude Code line in full.

A summary's row begins with the line before it, its `compact_boundary`: only that line says which
earlier messages were kept. A hook's text for the model is in a line of type `attachment`, and its
output is sent only at the start of a session and with a prompt. Neither is part of the talk, so
both are only in `sent`, like the client's tags around commands, outputs and notices.
"""

from __future__ import annotations

import re

from indexerd.agents.base import PROMPTED, LineClass
from indexerd.agents.claude.human import (
    INTERRUPTED,
    content_of,
    heading_of,
    plan_of,
    prompt_words,
    reply_in,
    result_texts,
    said,
    shown,
    task_of,
    words,
)
from indexerd.agents.json_lines import (
    Fields,
    as_blocks,
    as_dict,
    as_list,
    call_of,
    number,
    of_type,
    parse_object,
    recorded_tokens,
    string,
    texts_in,
)
from indexerd.entries import Compaction, Entry, Kind, Tokens, ToolCall, ToolResult

_KEYS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_NO_ANSWER = "<synthetic>", ("No response requested.",)  # by the client, in a resumed session
_SHELL = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry's lines; ValueError if the last is not a JSON object."""
    before, _, last = data.strip().rpartition(b"\n")
    line = parse_object(last)
    kind, message = string(line.get("type")), as_dict(line.get("message"))
    child = line.get("isSidechain") is True
    what, content = said(line, child=child), content_of(line)
    is_answer, is_user = kind == "assistant", kind == "user"
    task = task_of(content) if child and what.code == PROMPTED else ""
    # Some providers run tools of their own within an answer.
    results = of_type(content, "tool_result") if (is_user and not task) or is_answer else []
    denied = bool(line.get("toolDenialKind"))
    bad = [result for result in results if denied or result.get("is_error") is True]
    talks = isinstance(line.get("message"), dict) and (is_answer or is_user)
    role = string(message.get("role")) or kind if talks else None
    role = "toolResult" if results and is_user else "custom" if what.kind is Kind.CUSTOM else role
    texts = seen = tuple(_texts(line, what, content))
    if what.kind in (Kind.CUSTOM, Kind.SYSTEM, Kind.COMPACTION) or what.code == PROMPTED:
        seen = (task,) if task else tuple(filter(None, map(shown, texts)))
    hook = _of_hook(as_dict(line.get("attachment"))) if kind == "attachment" else ""
    sent = (f"<system-reminder>\n{hook}\n</system-reminder>",) if hook else texts
    thinking = [string(block.get("thinking")) for block in content] if is_answer else []
    held = [] if is_answer else _held(line, what, content)
    return Entry(
        id=entry_id or string(line.get("uuid")),
        kind=what.kind,
        type=kind,
        role="user" if what.queued else role,
        timestamp=string(line.get("timestamp")),
        texts=seen,
        tools=_tools(line, content),
        failed=tuple(filter(None, (string(result.get("tool_use_id")) for result in bad))),
        model=string(message.get("model")) or None,
        tokens=_tokens(line, message) if is_answer else None,
        thinking=tuple(filter(None, thinking)),
        images=len(of_type(held, "image")),
        attached=tuple([_title(block) for block in of_type(held, "document")]),
        results=tuple([_result(line, result, len(results)) for result in results]),
        sent=sent if sent != seen else None,
        sent_as="user" if hook or what.code == PROMPTED else None,
        restarts=what.code == PROMPTED and line.get("parentUuid", "") is None,
        compaction=_compaction(before) if what.kind is Kind.COMPACTION else None,
        error="Interrupted" if what.code == INTERRUPTED else "",
        display=False if (message.get("model"), texts) == _NO_ANSWER else None,
        plan=plan_of(line)[0] if what.code == PROMPTED else _plan_in(content),
    )


def _plan_in(content: list[Fields]) -> str:
    plans = [block for block in content if block.get("name") == "ExitPlanMode"]
    return heading_of(string(as_dict(plans[0].get("input")).get("plan"))) if plans else ""


def _texts(line: Fields, what: LineClass, content: list[Fields]) -> list[str]:
    if what.queued or line.get("type") == "attachment":
        of = prompt_words if what.kind is Kind.USER else words
        return of(_queued(line)) if what.queued else []
    if "message" not in line:
        blocks = as_blocks(line.get("content")) if line.get("type") == "system" else []
        return [text for text in texts_in(blocks) if text]
    if what.kind is Kind.USER:
        return prompt_words(content)
    texts = texts_in(content)
    if what.kind is Kind.TOOL:
        texts += [text for block in content for text in result_texts(block)]
    elif what.kind is Kind.COMPACTION:
        texts = ["\n".join(texts)]
    elif what.kind is Kind.BASH:
        texts = [command for text in texts for command in _SHELL.findall(text)] or texts
    return [] if what.code == INTERRUPTED else texts


def _result(line: Fields, block: Fields, results: int) -> ToolResult:
    return ToolResult(
        call=string(block.get("tool_use_id")),
        text="".join(result_texts(block)),
        patch=_patch(line, results),
        reply=reply_in(line, block, results),
    )


def _patch(line: Fields, results: int) -> tuple[str, ...]:
    """Return the diff that a line stores with its only result: "@@" before each part."""
    stored, lines = as_dict(line.get("toolUseResult")), list[str]()
    if results == 1 and stored.get("type") == "create":  # perhaps again, after it was deleted
        written = string(stored.get("content")).removesuffix("\n")
        return tuple(f"+{text}" for text in written.split("\n")) if written else ()
    for part in map(as_dict, as_list(stored.get("structuredPatch")) if results == 1 else ()):
        lines += ["@@", *(text for text in as_list(part.get("lines")) if isinstance(text, str))]
    return tuple(lines[1:])


def _queued(line: Fields) -> list[Fields]:
    """Return the blocks of a prompt that was typed while the agent worked."""
    return as_blocks(as_dict(line.get("attachment")).get("prompt") or line.get("content"))


def _held(line: Fields, what: LineClass, content: list[Fields]) -> list[Fields]:
    """Return the blocks of a user's line, with those within its results."""
    if what.queued:
        content = _queued(line)
    inner = [as_blocks(result.get("content")) for result in of_type(content, "tool_result")]
    return [block for blocks in (content, *inner) for block in blocks]


def _title(document: Fields) -> str:
    source = as_dict(document.get("source"))
    return string(document.get("title")) or string(source.get("media_type"))


def _tool(name: object) -> str:
    return string(name).removeprefix("mcp__acp__")  # Zed calls the client's tools by a server


def _tools(line: Fields, content: list[Fields]) -> tuple[ToolCall, ...]:
    if line.get("type") == "assistant":
        calls = [block for block in content if string(block.get("type")).endswith("tool_use")]
        fields = [(call.get("name"), call.get("input"), call.get("id")) for call in calls]
        return tuple([call_of(_tool(name), value, string(own)) for name, value, own in fields])
    attachment = as_dict(line.get("attachment"))
    named = string(attachment.get("filename")) if attachment.get("type") == "file" else ""
    return (ToolCall(name="", reads=(named,)),) if named else ()


def _tokens(line: Fields, message: Fields) -> Tokens | None:
    usage, cost = as_dict(message.get("usage")), line.get("costUSD")
    if not usage and cost is None:
        return None
    hour = as_dict(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")
    counts, answer = map(usage.get, _KEYS), string(message.get("id"))
    return recorded_tokens(counts, hour=hour, cost=cost, answer=answer)


def _compaction(before: bytes) -> Compaction:
    """Find in a boundary's line the first message that its compaction kept."""
    try:
        metadata = as_dict(parse_object(before).get("compactMetadata"))
    except ValueError:
        metadata = {}
    ids = as_list(as_dict(metadata.get("preservedMessages")).get("uuids"))
    kept = as_dict(metadata.get("preservedSegment")).get("headUuid") or next(iter(ids), None)
    return Compaction(string(kept) or None, tokens_before=number(metadata.get("preTokens")) or None)


def _of_hook(attachment: Fields) -> str:
    """Return a hook's text for the model, in Claude Code's wording."""
    name, content = string(attachment.get("hookName")), attachment.get("content")
    match attachment.get("type"):
        case "hook_additional_context":
            several = content if isinstance(content, list) else [content]
            if text := "\n".join(part for part in several if isinstance(part, str)):
                return f"{name} hook additional context: {text}"
        case "hook_success":
            prints = ("SessionStart", "UserPromptSubmit", "UserPromptExpansion")
            if string(content) and attachment.get("hookEvent") in prints:
                return f"{name} hook success: {content}"
    return ""

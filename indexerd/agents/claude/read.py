"""One Claude Code line in full: what a transcript, a search or the facts need of it.

Texts are what was said, without thinking, calls, and what the client or an editor puts around a
prompt; of an interruption nothing was said. What a hook told the model is nobody's words: it is in
`sent` alone. A call's arguments are as they stand in the line, not scrubbed.

A summary's row begins with the line before it, its `compact_boundary`: only that one says which
earlier messages were kept, and so `read` takes both lines at once.

**Hooks** speak to the model in lines of type `attachment`, in words that Claude Code puts around
theirs. What surprised us: the text stands in the file behind the prompt, and is sent before it, in
the same message; what a hook printed is sent for the beginning of a session and for a prompt only;
a message to the user and an error that blocks nothing are not sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from indexerd.agents.claude.human import INTERRUPTED, PROMPTED, Said, prompt_words, said, words
from indexerd.agents.claude.lines import Line, decode
from indexerd.agents.claude.tree import HOOKS
from indexerd.agents.lines import (
    Block,
    as_blocks,
    blocks,
    count,
    listed,
    mapping,
    parse,
    string,
    tokens_of,
    value,
)
from indexerd.events import Compaction, Entry, Kind, Tokens, ToolCall, ToolResult
from indexerd.privacy.sanitize import scrub

DETAIL_MAX = 4096  # characters of what a call was for

_READS = frozenset({"Read", "NotebookRead"})
_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_DETAILS = (  # what a call was for, in the first of these that is there
    *("command", "pattern", "file_path", "notebook_path", "path", "url", "query"),
    *("description", "prompt", "skill", "subject"),
)
_TAGS = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)
_PRINTS = ("SessionStart", "UserPromptSubmit", "UserPromptExpansion")  # events; a tuple: any type


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry in full; ValueError where it holds no JSON object."""
    before, _, last = data.strip().rpartition(b"\n")
    line = decode(last)
    if line is None:
        raise ValueError("not an object")
    what, message, held = said(line, child=bool(line.is_sidechain)), line.message, line.attachment
    content = blocks(message.content) if message else []
    answers, hook = line.type == "assistant", held is not None and held.type in HOOKS
    sent = tuple(_of_hook(parse(last)["attachment"])) if hook else ()
    return Entry(
        id=entry_id or line.uuid,
        kind=what.kind,
        type=line.type,
        role=_role_of(line, what),
        timestamp=line.timestamp,
        texts=tuple(_texts(line, what, content)),
        tools=_tools(line, content),
        failed=_failed(line, content),
        model=message.model or None if message else None,
        tokens=_tokens(line),
        # What the model let us see of its thoughts; those it kept to itself have no text.
        thinking=tuple([one.thinking for one in content if answers and one.thinking]),
        images=_images(line, what, content) if not answers else 0,
        results=_results(content) if line.type == "user" else (),
        sent=sent or None,
        sent_as="user" if sent or what.code == PROMPTED else None,
        ahead=bool(sent),
        compaction=_compaction(before) if what.kind is Kind.COMPACTION else None,
    )


def _role_of(line: Line, what: Said) -> str | None:
    """Who said it, as Claude Code calls them."""
    if what.queued:
        return "user"
    if line.message is None or line.type not in ("user", "assistant"):
        return None
    return line.message.role or line.type


def _texts(line: Line, what: Said, content: list[Block]) -> list[str]:
    if line.attachment is not None:
        said = prompt_words if what.kind is Kind.USER else words
        return said(blocks(line.attachment.prompt)) if what.queued else []
    if line.message is None:
        found = blocks(line.content) if line.type == "system" else []
        return [block.text for block in found if block.text]
    if what.kind is Kind.USER:
        return prompt_words(content)
    texts = [block.text for block in content if block.type == "text"]
    if what.kind is Kind.TOOL:
        texts += [text for block in content for text in _result_texts(block)]
    elif what.kind is Kind.COMPACTION:
        texts = ["\n".join(texts)]
    elif what.kind is Kind.BASH:
        texts = [found for text in texts for found in _TAGS.findall(text)] or texts
    return [] if what.code == INTERRUPTED else texts


def _images(line: Line, what: Said, content: list[Block]) -> int:
    if what.queued and line.attachment is not None:
        return sum([block.type == "image" for block in blocks(line.attachment.prompt)])
    inner = [one for block in content if block.type == "tool_result" for one in _parts(block)]
    return sum([one.type == "image" for one in (*content, *inner)])


# -- calls ---------------------------------------------------------------------------------------


def _tools(line: Line, content: list[Block]) -> tuple[ToolCall, ...]:
    held = line.attachment
    if line.type == "attachment":
        named = held is not None and held.type == "file" and held.filename
        return (ToolCall(name="", reads=(held.filename,)),) if held and named else ()
    if line.type != "assistant":
        return ()
    return tuple([_call(block) for block in content if block.type in _CALLS])


def _call(block: Block) -> ToolCall:
    arguments, name = value(block.input), block.name
    given: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    path = string(given.get("file_path")) or string(given.get("notebook_path"))
    detail = next((one for one in map(given.get, _DETAILS) if one and isinstance(one, str)), "")
    return ToolCall(
        name=name,
        detail=scrub(detail[:DETAIL_MAX]),
        id=block.id,
        reads=(path,) if path and name in _READS else (),
        writes=(path,) if path and name in _WRITES else (),
        arguments=arguments,
    )


def _parts(block: Block) -> list[Block]:
    """What a tool's result is made of, where it is more than a text."""
    return as_blocks(listed(block.content))


def _result_texts(block: Block) -> list[str]:
    if block.type != "tool_result":
        return []
    return [one.text for one in blocks(block.content)]


def _results(content: list[Block]) -> tuple[ToolResult, ...]:
    results = [block for block in content if block.type == "tool_result"]
    return tuple(
        [ToolResult(call=one.tool_use_id, text="".join(_result_texts(one))) for one in results]
    )


def _failed(line: Line, content: list[Block]) -> tuple[str, ...]:
    if line.type != "user":
        return ()
    results = [block for block in content if block.type == "tool_result" and block.tool_use_id]
    return tuple([one.tool_use_id for one in results if line.tool_denial_kind or one.is_error])


def _tokens(line: Line) -> Tokens | None:
    """What an answer cost, if its line says so."""
    if line.type != "assistant" or line.message is None:
        return None
    usage = mapping(line.message.usage)
    if not usage and line.cost is None:
        return None
    given, output = usage.get("input_tokens"), usage.get("output_tokens")
    cached, made = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    counts = (given, output, cached, made)
    return tokens_of(counts, cost=line.cost, answer=line.message.id)


# -- compactions and hooks -----------------------------------------------------------------------


def _compaction(before: bytes) -> Compaction:
    """What the line of its boundary says of a compaction."""
    try:
        boundary = decode(before)
    except ValueError:
        boundary = None
    held = mapping(boundary.compact_metadata) if boundary else {}
    return Compaction(kept=_kept(held), tokens_before=count(held.get("preTokens")) or None)


def _kept(held: dict[str, Any]) -> str | None:
    """The first of the messages that a compaction kept."""
    segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
    head = segment.get("headUuid") if isinstance(segment, dict) else None
    if not isinstance(head, str):
        ids = messages.get("uuids") if isinstance(messages, dict) else None
        head = ids[0] if isinstance(ids, list) and ids else None
    return string(head) or None


def _of_hook(held: dict[str, Any]) -> Iterator[str]:
    """The texts of a hook's attachment as the model gets them; wrong types read as absent."""
    for text in _hook_texts(held, string(held.get("hookName"))):
        yield f"<system-reminder>\n{scrub(text)}\n</system-reminder>"


def _hook_texts(held: dict[str, Any], name: str) -> Iterator[str]:  # noqa: C901 - one kind each
    content = held.get("content")
    match held.get("type"):
        case "hook_additional_context":
            several = content if isinstance(content, list) else [content]
            if text := "\n".join(one for one in several if isinstance(one, str)):
                yield f"{name} hook additional context: {text}"
        case "hook_success":
            if isinstance(content, str) and content and held.get("hookEvent") in _PRINTS:
                yield f"{name} hook success: {content}"
        case "hook_blocking_error":
            error = held.get("blockingError")
            wrong = error if isinstance(error, dict) else {}
            if why := string(wrong.get("blockingError")):
                command = string(wrong.get("command"))
                yield f'{name} hook blocking error from command: "{command}": {why}'
        case "hook_stopped_continuation":
            if why := string(held.get("message")):
                yield f"{name} hook stopped continuation: {why}"
        case "async_hook_response":  # of a hook that nobody waited for
            answer = held.get("response")
            given = answer if isinstance(answer, dict) else {}
            output = given.get("hookSpecificOutput")
            context = string(output.get("additionalContext")) if isinstance(output, dict) else ""
            if context and held.get("isPlainOutput") is True:
                context = f"{name} hook success: {context}"
            yield from (one for one in (string(given.get("systemMessage")), context) if one)

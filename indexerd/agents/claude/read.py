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

from indexerd.agents.base import PROMPTED
from indexerd.agents.claude.human import INTERRUPTED, Said, prompt_words, said, words
from indexerd.agents.claude.lines import Block, Line, blocks, decode
from indexerd.agents.claude.tree import HOOKS
from indexerd.agents.json_lines import as_dict, as_list, number, parse, string, tokens_of, value
from indexerd.events import Compaction, Entry, Kind, Tokens, ToolCall, ToolResult

_DETAIL_MAX = 4096  # characters of what a call was for
_READS = frozenset({"Read", "NotebookRead"})
_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_DETAILS = (  # what a call was for, in the first of these that is there  # noqa: SIM905 - a table
    "command pattern file_path notebook_path path url query description prompt skill subject"
).split()
_COUNTS = (
    "input_tokens output_tokens cache_read_input_tokens cache_creation_input_tokens".split()  # noqa: SIM905 - a table
)
_TAGS = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)
_PRINTS = ("SessionStart", "UserPromptSubmit", "UserPromptExpansion")  # events; a tuple: any type


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry in full; ValueError where it holds no JSON object."""
    before, _, last = data.strip().rpartition(b"\n")
    line = decode(last)
    what, message, held = said(line, child=bool(line.is_sidechain)), line.message, line.attachment
    content = blocks(message.content) if message else []
    answers, asks = line.type == "assistant", line.type == "user"
    hook = held is not None and held.type in HOOKS
    sent = tuple(_of_hook(as_dict(parse(last)["attachment"]))) if hook else ()
    results = [block for block in content if asks and block.type == "tool_result"]
    bad = [one for one in results if line.tool_denial_kind or one.is_error]
    role = (message.role or line.type) if message and (answers or asks) else None
    return Entry(
        id=entry_id or line.uuid,
        kind=what.kind,
        type=line.type,
        role="user" if what.queued else role,
        timestamp=line.timestamp,
        texts=tuple(_texts(line, what, content)),
        tools=_tools(line, content),
        failed=tuple([one.tool_use_id for one in bad if one.tool_use_id]),
        model=message.model or None if message else None,
        tokens=_tokens(line),
        # What the model let us see of its thoughts; those it kept to itself have no text.
        thinking=tuple([one.thinking for one in content if answers and one.thinking]),
        images=_images(line, what, content) if not answers else 0,
        results=tuple(
            [ToolResult(call=one.tool_use_id, text="".join(_result_texts(one))) for one in results]
        ),
        sent=sent or None,
        sent_as="user" if sent or what.code == PROMPTED else None,
        ahead=bool(sent),
        compaction=_compaction(before) if what.kind is Kind.COMPACTION else None,
    )


def _texts(line: Line, what: Said, content: list[Block]) -> list[str]:
    if line.attachment is not None:
        of = prompt_words if what.kind is Kind.USER else words
        return of(blocks(line.attachment.prompt)) if what.queued else []
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


def _result_texts(block: Block) -> list[str]:
    found = blocks(block.content) if block.type == "tool_result" else []
    return [one.text for one in found]


def _images(line: Line, what: Said, content: list[Block]) -> int:
    if what.queued and line.attachment is not None:
        content = blocks(line.attachment.prompt)
    inner = [blocks(one.content) for one in content if one.type == "tool_result"]
    return sum([one.type == "image" for several in (content, *inner) for one in several])


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
    given = as_dict(arguments)
    path = string(given.get("file_path")) or string(given.get("notebook_path"))
    return ToolCall(
        name=name,
        detail=next(filter(None, (string(given.get(key)) for key in _DETAILS)), "")[:_DETAIL_MAX],
        id=block.id,
        reads=(path,) if path and name in _READS else (),
        writes=(path,) if path and name in _WRITES else (),
        arguments=arguments,
    )


def _tokens(line: Line) -> Tokens | None:
    """What an answer cost, if its line says so."""
    if line.type != "assistant" or line.message is None:
        return None
    usage = as_dict(value(line.message.usage))
    if not usage and line.cost is None:
        return None
    return tokens_of(map(usage.get, _COUNTS), cost=line.cost, answer=line.message.id)


# -- compactions and hooks -----------------------------------------------------------------------


def _compaction(before: bytes) -> Compaction:
    """What the line of its boundary says of a compaction: the first of the messages it kept."""
    try:
        held = as_dict(value(decode(before).compact_metadata))
    except ValueError:
        held = {}
    kept = as_dict(held.get("preservedSegment")).get("headUuid")
    ids = as_list(as_dict(held.get("preservedMessages")).get("uuids"))
    if not isinstance(kept, str) and ids:
        kept = ids[0]
    before_it = number(held.get("preTokens")) or None
    return Compaction(kept=string(kept) or None, tokens_before=before_it)


def _of_hook(held: dict[str, Any]) -> Iterator[str]:
    """The texts of a hook's attachment as the model gets them; wrong types read as absent."""
    for text in _hook_texts(held, string(held.get("hookName"))):
        yield f"<system-reminder>\n{text}\n</system-reminder>"


def _hook_texts(held: dict[str, Any], name: str) -> Iterator[str]:
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
            wrong = as_dict(held.get("blockingError"))
            if why := string(wrong.get("blockingError")):
                command = string(wrong.get("command"))
                yield f'{name} hook blocking error from command: "{command}": {why}'
        case "hook_stopped_continuation":
            if why := string(held.get("message")):
                yield f"{name} hook stopped continuation: {why}"
        case "async_hook_response":  # of a hook that nobody waited for
            given = as_dict(held.get("response"))
            context = string(as_dict(given.get("hookSpecificOutput")).get("additionalContext"))
            if context and held.get("isPlainOutput") is True:
                context = f"{name} hook success: {context}"
            yield from (one for one in (string(given.get("systemMessage")), context) if one)

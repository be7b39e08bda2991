"""One Claude Code line in full: what a transcript, a search or the facts need of it.

Wrong types read as absent, texts come scrubbed of lone surrogates, and the only error is
ValueError for what is no JSON object. Texts are what was said, without thinking, calls, and what
the client or an editor puts around a prompt; of an interruption nothing was said. What a hook told
the model is nobody's words: it is in `sent` alone, for `context`. A call's arguments are the very
object of the line, not scrubbed.

A summary's row begins with the line before it, its `compact_boundary`: only that one says which
earlier messages were kept, and so `read` takes both lines at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from indexerd.agents.claude.hooks import HOOKS, told
from indexerd.agents.claude.kinds import (
    INTERRUPTED,
    PROMPTED,
    Said,
    own_words,
    said,
    unwrapped,
    words,
)
from indexerd.agents.claude.lines import Line, blocks, decode, loads, mapping, usage_of, values
from indexerd.agents.lines import safe_line, string
from indexerd.events import Entry, Kind, Tokens, ToolCall, ToolResult
from indexerd.privacy.sanitize import scrub

DETAIL_MAX = 4096  # characters of what a call was for
TOKENS_MAX = 1 << 53

_READS = frozenset({"Read", "NotebookRead"})
_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
DETAILS = (  # what a call was for, in the first of these that is there
    *("command", "pattern", "file_path", "notebook_path", "path", "url", "query"),
    *("description", "prompt", "skill", "subject"),
)
_TAGS = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)


def read(data: bytes, entry_id: str) -> Entry:
    """Parse one entry in full; ValueError when it holds no JSON object."""
    before, _, last = data.strip().rpartition(b"\n")
    line = decode(last)
    if line is None:
        raise ValueError("not an object")
    what = said(line, child=bool(line.is_sidechain))
    message = line.message
    content = values(message.content) if message else []
    return Entry(
        id=entry_id or scrub(line.uuid),
        kind=what.kind,
        type=scrub(line.type),
        role=role_of(line, what),
        timestamp=scrub(line.timestamp),
        texts=tuple([scrub(text) for text in _texts(line, what, content)]),
        tools=_tools(line, content),
        failed=_failed(line, content),
        model=scrub(message.model) or None if message else None,
        tokens=tokens_of(line),
        thinking=_thinking(content) if line.type == "assistant" else (),
        images=_images(line, what, content) if line.type != "assistant" else 0,
        results=_results(content) if line.type == "user" else (),
        details=_details(line, what, before, last),
    )


def preview(text: str) -> str:
    """A prompt as one line of at most 200 characters, without what was put around it."""
    head = text[:20_000]
    return safe_line(unwrapped(head)) or safe_line(head)


def _details(line: Line, what: Said, before: bytes, last: bytes) -> dict[str, Any]:
    if what.kind is Kind.COMPACTION:
        return _compaction(before)
    if what.code == PROMPTED:
        return {"sentAs": "user"}
    if line.attachment is not None and line.attachment.type in HOOKS:
        sent = tuple(scrub(text) for text in told(loads(last)["attachment"]))
        return {"sent": sent, "sentAs": "user", "ahead": True} if sent else {}
    return {}


def role_of(line: Line, what: Said) -> str | None:
    """Who said it, as Claude Code calls them."""
    if what.queued:
        return "user"
    if line.message is None or line.type not in ("user", "assistant"):
        return None
    return scrub(line.message.role) or line.type


def _texts(line: Line, what: Said, content: list[dict[str, Any]]) -> list[str]:
    if line.attachment is not None:
        return words(blocks(line.attachment.prompt)) if what.queued else []
    if line.message is None:
        found = blocks(line.content) if line.type == "system" else []
        return [block.text for block in found if block.text]
    if what.kind is Kind.USER:
        return own_words(blocks(line.message.content))
    texts = [string(block.get("text")) for block in content if block.get("type") == "text"]
    return _texts_of(what, texts, content)


def _texts_of(what: Said, texts: list[str], content: list[dict[str, Any]]) -> list[str]:
    if what.code == INTERRUPTED:
        return []
    if what.kind is Kind.TOOL:
        return texts + [text for block in content for text in _result_texts(block)]
    if what.kind is Kind.COMPACTION:
        return ["\n".join(texts)]
    if what.kind is Kind.BASH:
        return [found for text in texts for found in _TAGS.findall(text)] or texts
    return texts


def _result_texts(block: dict[str, Any]) -> list[str]:
    if block.get("type") != "tool_result":
        return []
    content = block.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [string(part.get("text")) for part in parts if isinstance(part, dict)]


def _thinking(content: list[dict[str, Any]]) -> tuple[str, ...]:
    """What the model let us see of its thoughts; those it kept to itself have no text."""
    found = [string(one.get("thinking")) for one in content if one.get("type") == "thinking"]
    return tuple([scrub(text) for text in found if text])


def _images(line: Line, what: Said, content: list[dict[str, Any]]) -> int:
    if what.queued and line.attachment is not None:
        return sum(block.type == "image" for block in blocks(line.attachment.prompt))
    return sum(map(_pictures, content))


def _pictures(block: dict[str, Any]) -> int:
    """How many pictures a block is, or a tool's result brings."""
    kind = block.get("type")
    if kind != "tool_result":
        return kind == "image"
    parts = block.get("content")
    inner = parts if isinstance(parts, list) else ()
    return sum(isinstance(one, dict) and one.get("type") == "image" for one in inner)


# -- calls ---------------------------------------------------------------------------------------


def _tools(line: Line, content: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    if line.type == "attachment":
        held = line.attachment
        named = held is not None and held.type == "file" and held.filename
        return (ToolCall(name="", reads=(scrub(held.filename),)),) if held and named else ()
    if line.type != "assistant":
        return ()
    return tuple([_call(block) for block in content if string(block.get("type")) in CALLS])


def _call(block: dict[str, Any]) -> ToolCall:
    given = block.get("input")
    held: dict[str, Any] = given if isinstance(given, dict) else {}
    return call(string(block.get("name")), string(block.get("id")), held.get, given)


def call(name: str, own_id: str, given: Callable[[str], Any], arguments: Any = None) -> ToolCall:
    """A call, by its tool, its id, and what it was given under a name."""
    name = scrub(name)
    path = scrub(string(given("file_path")) or string(given("notebook_path")))
    said = next((one for one in map(given, DETAILS) if one and isinstance(one, str)), "")
    return ToolCall(
        name=name,
        detail=scrub(said[:DETAIL_MAX]),
        id=scrub(own_id),
        reads=(path,) if path and name in _READS else (),
        writes=(path,) if path and name in _WRITES else (),
        arguments=arguments,
    )


def _results(content: list[dict[str, Any]]) -> tuple[ToolResult, ...]:
    return tuple(
        ToolResult(
            call=scrub(string(block.get("tool_use_id"))),
            text=scrub("".join(_result_texts(block))),
        )
        for block in content
        if block.get("type") == "tool_result"
    )


def _failed(line: Line, content: list[dict[str, Any]]) -> tuple[str, ...]:
    if line.type != "user":
        return ()
    results = [block for block in content if block.get("type") == "tool_result"]
    bad = [block for block in results if line.tool_denial_kind or block.get("is_error") is True]
    ids = (scrub(string(block.get("tool_use_id"))) for block in bad)
    return tuple(one for one in ids if one)


def _compaction(before: bytes) -> dict[str, Any]:
    """What the line of its boundary says of a compaction."""
    boundary = decode(before)
    held = mapping(boundary.compact_metadata) if boundary else {}
    tokens = _count(held.get("preTokens"))
    return {"kept": _kept(held)} | ({"tokensBefore": tokens} if tokens else {})


def _kept(held: dict[str, Any]) -> str | None:
    """The first of the messages that a compaction kept."""
    segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
    head = segment.get("headUuid") if isinstance(segment, dict) else None
    if not isinstance(head, str):
        ids = messages.get("uuids") if isinstance(messages, dict) else None
        head = ids[0] if isinstance(ids, list) and ids else None
    return scrub(head) if isinstance(head, str) and head else None


def tokens_of(line: Line) -> Tokens | None:
    """What an answer cost, if its line says so."""
    if line.type != "assistant" or line.message is None:
        return None
    usage, cost = usage_of(line.message.usage), line.cost
    if usage is None and cost is None:
        return None
    given, output, cached, written = map(_count, usage or (0, 0, 0, 0))
    return Tokens(
        input=given,
        output=output,
        cache_read=cached,
        cache_write=written,
        cost_usd=cost if cost is not None and math.isfinite(cost) and cost >= 0 else None,
        answer=scrub(line.message.id),
        total=given + output + cached + written,
    )


def _count(value: Any) -> int:
    return value if type(value) is int and 0 < value <= TOKENS_MAX else 0

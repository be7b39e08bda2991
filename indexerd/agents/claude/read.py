"""One Claude Code line in full: what a transcript, a search or the facts need of it.

Wrong types read as absent, texts come scrubbed of lone surrogates, and the only error is
ValueError for what is no JSON object. Texts are what was said, without thinking, calls, and what
the client or an editor puts around a prompt; of an interruption nothing was said. What a hook told
the model is nobody's words: it is in `sent` alone, for `context`.

A summary's row begins with the line before it, its `compact_boundary`: only that one says which
earlier messages were kept, and so `read` takes both lines at once.
"""

from __future__ import annotations

import math
import re
from typing import Any

from indexerd.agents.claude.hooks import HOOKS, told
from indexerd.agents.claude.kinds import INTERRUPTED, PROMPTED, Said, said, unwrapped, words
from indexerd.agents.claude.lines import Line, blocks, decode, loads, mapping, values
from indexerd.agents.lines import safe_line, string
from indexerd.core.clean import scrub
from indexerd.events import Entry, Kind, Tokens, ToolCall

DETAIL_MAX = 4096  # characters of what a call was for
TOKENS_MAX = 1 << 53

_READS = frozenset({"Read", "NotebookRead"})
_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_DETAILS = (
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
        role=_role(line, what),
        timestamp=scrub(line.timestamp),
        texts=tuple(scrub(text) for text in _texts(line, what, content)),
        tools=_tools(line, content),
        failed=_failed(line, content),
        model=scrub(message.model) or None if message else None,
        tokens=_tokens(line),
        details=_details(line, what, before, last),
    )


def preview(text: str) -> str:
    """A prompt as one line of at most 200 characters, without what was put around it."""
    head = text[:20_000]
    return safe_line(unwrapped(head)) or safe_line(head)


def _details(line: Line, what: Said, before: bytes, last: bytes) -> dict[str, Any]:
    if what.kind is Kind.COMPACTION:
        return {"kept": _kept(before)}
    if what.code == PROMPTED:
        return {"sentAs": "user"}
    if line.attachment is not None and line.attachment.type in HOOKS:
        sent = tuple(scrub(text) for text in told(loads(last)["attachment"]))
        return {"sent": sent, "sentAs": "user", "ahead": True} if sent else {}
    return {}


def _role(line: Line, what: Said) -> str | None:
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
        return words(blocks(line.message.content))
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


# -- calls ---------------------------------------------------------------------------------------


def _tools(line: Line, content: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    if line.type == "attachment":
        held = line.attachment
        named = held is not None and held.type == "file" and held.filename
        return (ToolCall(name="", reads=(scrub(held.filename),)),) if held and named else ()
    if line.type != "assistant":
        return ()
    return tuple(_call(block) for block in content if block.get("type") in _CALLS)


def _call(block: dict[str, Any]) -> ToolCall:
    given = block.get("input")
    held: dict[str, Any] = given if isinstance(given, dict) else {}
    name = scrub(string(block.get("name")))
    path = scrub(string(held.get("file_path")) or string(held.get("notebook_path")))
    details = (string(held.get(key)) for key in _DETAILS)
    return ToolCall(
        name=name,
        detail=scrub(next((one for one in details if one), "")[:DETAIL_MAX]),
        id=scrub(string(block.get("id"))),
        reads=(path,) if path and name in _READS else (),
        writes=(path,) if path and name in _WRITES else (),
    )


def _failed(line: Line, content: list[dict[str, Any]]) -> tuple[str, ...]:
    if line.type != "user":
        return ()
    results = [block for block in content if block.get("type") == "tool_result"]
    bad = [block for block in results if line.tool_denial_kind or block.get("is_error") is True]
    ids = (scrub(string(block.get("tool_use_id"))) for block in bad)
    return tuple(one for one in ids if one)


def _kept(before: bytes) -> str | None:
    """The first of the messages that a compaction kept, from its boundary's line."""
    boundary = decode(before)
    if boundary is None:
        return None
    held = mapping(boundary.compact_metadata)
    segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
    head = segment.get("headUuid") if isinstance(segment, dict) else None
    if not isinstance(head, str):
        ids = messages.get("uuids") if isinstance(messages, dict) else None
        head = ids[0] if isinstance(ids, list) and ids else None
    return scrub(head) if isinstance(head, str) and head else None


def _tokens(line: Line) -> Tokens | None:
    if line.type != "assistant" or line.message is None:
        return None
    usage, cost = mapping(line.message.usage), line.cost
    if not usage and cost is None:
        return None
    return Tokens(
        input=_count(usage.get("input_tokens")),
        output=_count(usage.get("output_tokens")),
        cache_read=_count(usage.get("cache_read_input_tokens")),
        cache_write=_count(usage.get("cache_creation_input_tokens")),
        cost_usd=cost if cost is not None and math.isfinite(cost) and cost >= 0 else None,
        answer=scrub(line.message.id),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and 0 < value <= TOKENS_MAX else 0

"""One Claude Code line as far as search and facts need it: what was said, and what was called.

In: a line and its entry's id. Out: what `read` gives, without thoughts, pictures, results, details
and arguments; ValueError as there. Answers and prompts are decoded by type, which skips all that
is not asked for; any other line, or one that does not fit the types, is read in full.
"""

from __future__ import annotations

from typing import Any

import msgspec

from indexerd.agents.claude.kinds import PROMPT, Said, own_words, said
from indexerd.agents.claude.lines import Line, blocks, decode
from indexerd.agents.claude.read import CALLS, call, read, role_of, tokens_of
from indexerd.events import Entry, Kind, ToolCall


class _Given(msgspec.Struct):
    """The arguments that say what a call is for."""

    command: Any = None
    pattern: Any = None
    file_path: Any = None
    notebook_path: Any = None
    path: Any = None
    url: Any = None
    query: Any = None
    description: Any = None
    prompt: Any = None
    skill: Any = None
    subject: Any = None

    def get(self, name: str) -> Any:
        """One of them."""
        return getattr(self, name)


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: _Given | None = None


_blocks = msgspec.json.Decoder(list[_Block]).decode


def told(data: bytes, entry_id: str) -> Entry:
    """What an entry tells; ValueError when it holds no JSON object."""
    line = decode(data) if b"\n" not in data else None
    if line is None or line.message is None or line.attachment is not None:
        return read(data, entry_id)
    what = said(line, child=bool(line.is_sidechain))
    found: list[_Block] = []
    if what.kind is Kind.ASSISTANT and line.type == "assistant":
        try:
            found = _blocks(line.message.content)
        except (ValueError, RecursionError):
            return read(data, entry_id)
        texts = [one.text for one in found if one.type == "text"]
    elif what.code == PROMPT:
        texts = own_words(blocks(line.message.content))
    else:
        return read(data, entry_id)
    return _entry(line, what, entry_id, texts, [_call(one) for one in found if one.type in CALLS])


def _entry(line: Line, what: Said, entry_id: str, texts: list[str], tools: list[ToolCall]) -> Entry:
    return Entry(
        id=entry_id or line.uuid,
        kind=what.kind,
        type=line.type,
        role=role_of(line, what),
        timestamp=line.timestamp,
        texts=tuple(texts),
        tools=tuple(tools),
        model=(line.message.model or None) if line.message else None,
        tokens=tokens_of(line),
    )


def _call(block: _Block) -> ToolCall:
    return call(block.name, block.id, (block.input or _Given()).get)

"""One line of a Claude Code file, with only the fields that matter, and one too long to hold.

Lines are long (prompts, tool results, base64 images repeat in several places) and little of them
matters: large values stay raw until somebody asks for them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

from indexerd.agents.base import Oversize
from indexerd.agents.lines import NOTHING, decoder
from indexerd.privacy.sanitize import scrub


class Message(Struct):
    """What was said. One answer of a model is several lines, with one `id`."""

    role: str = ""
    content: Raw = NOTHING
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: Raw = NOTHING


class Origin(Struct):
    """Who made a prompt."""

    kind: str | None = None


class Attachment(Struct, rename="camel"):
    """What is put beside a prompt; a prompt typed while the agent worked is one, too."""

    type: str = ""
    prompt: Raw = NOTHING
    command_mode: str | None = None
    origin: Origin | None = None
    is_meta: bool | None = None
    filename: str = ""
    timestamp: str = ""
    source: str = field(default="", name="source_uuid")


class Line(Struct, rename="camel"):
    """One line of the file, whatever its type."""

    parent_uuid: str | UnsetType | None = UNSET
    is_sidechain: bool | None = None
    type: str = ""
    message: Message | None = None
    uuid: str = ""
    timestamp: str = ""
    cwd: str = ""
    session_id: str = ""
    git_branch: str | None = None
    request_session_id: str | None = None  # on a copied answer: the session it was copied from
    session_kind: str | None = None
    logical_parent_uuid: str | None = None
    subtype: str = ""
    content: Raw = NOTHING  # of a system line
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    origin: Origin | None = None
    prompt_source: str | None = None
    plan_content: str | None = None  # on a prompt that the client wrote for a plan
    tool_use_result: Raw = NOTHING
    tool_denial_kind: str | None = None
    compact_metadata: Raw = NOTHING
    attachment: Attachment | None = None
    cost: Any = field(default=None, name="costUSD")
    custom_title: str | None = None
    ai_title: str | None = None
    agent_name: str | None = None
    summary: str | None = None
    leaf_uuid: str | None = None


decode = decoder(Line)


# -- a line too long to hold ---------------------------------------------------------------------

_TEXT = r'(?<!\\)"%s"\s*:\s*"((?:[^"\\]|\\.){0,2000}+)'
_TRUE = r'(?<!\\)"%s"\s*:\s*true'
_TYPE = re.compile(rb'(?<!\\)"type"\s*:\s*"(user|assistant|system|attachment|progress)"')
_KIND = re.compile(rb'(?<!\\)"attachment"\s*:\s*\{\s*"type"\s*:\s*"(\w{1,40})"')
_NO_PARENT = re.compile(rb'(?<!\\)"parentUuid"\s*:\s*null')
_RESULT = b'"toolUseResult"'


def from_ends(ends: Oversize) -> Line:
    """The line, as far as its two ends tell; its content says only of what kind it is.

    What is long is a picture, a tool's result or a file, in `message`, `toolUseResult` or
    `attachment`; the other fields stand before and after. An id that stands between two long
    values is lost: the line gets a made one, and the next line, which names an unknown parent,
    is put below it all the same.
    """
    known = _Ends(ends)
    kind = known.first(_TYPE)
    parent = known.text("parentUuid", first=True)
    line = Line(
        type=kind,
        uuid=known.uuid(),
        parent_uuid=parent or (None if _NO_PARENT.search(ends.head) else UNSET),
        timestamp=known.text("timestamp"),
        session_id=known.text("sessionId"),
        request_session_id=known.text("requestSessionId") or None,
        cwd=known.text("cwd"),
        git_branch=known.text("gitBranch"),
        is_sidechain=known.true("isSidechain"),
        is_meta=known.true("isMeta"),
        is_compact_summary=known.true("isCompactSummary"),
        is_api_error_message=known.true("isApiErrorMessage"),
    )
    if kind in ("user", "assistant"):
        stop = known.text("stop_reason") or None
        line.message = Message(role=kind, stop_reason=stop, content=_content(known))
    elif kind == "attachment":
        line.attachment = Attachment(type=known.first(_KIND), prompt=_content(known))
    return line


def _content(known: _Ends) -> Raw:
    """Blocks that stand for the content: a result of a tool, or words and a picture."""
    if known.has(b'"tool_result"') or known.has(_RESULT):
        found = [{"type": "tool_result", "is_error": known.true("is_error")}]
    else:
        words = known.text("text", first=True) or known.text("content", first=True)
        found = [{"type": "text", "text": words}, {"type": "image"}]
    return Raw(json.dumps(found).encode())


class _Ends:
    """Looks for fields in the two ends of a line."""

    def __init__(self, ends: Oversize) -> None:
        self._head, self._tail = ends.head, ends.tail

    def has(self, word: bytes) -> bool:
        return word in self._head or word in self._tail

    def true(self, key: str) -> bool:
        mark = re.compile((_TRUE % key).encode())
        return bool(mark.search(self._head) or mark.search(self._tail))

    def first(self, mark: re.Pattern[bytes]) -> str:
        found = mark.search(self._head) or mark.search(self._tail)
        return found[1].decode("ascii", "replace") if found else ""

    def text(self, key: str, *, first: bool = False) -> str:
        """A string field: the last in the line's end, or (`first`) the first in its beginning."""
        from_head = _finds(self._head, key)[:1]
        found = from_head if first else _finds(self._tail, key) or from_head
        return _unescaped(found[-1]) if found else ""

    def uuid(self) -> str:
        """The line's id; it stands between the message and what the tool's result holds."""
        before, mark, _ = self._head.partition(_RESULT)
        found = _finds(before, "uuid") if mark else []
        return _unescaped(found[-1]) if found else self.text("uuid")


def _finds(data: bytes, key: str) -> list[bytes]:
    found: list[bytes] = re.findall((_TEXT % key).encode(), data, re.DOTALL)
    return found


def _unescaped(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    try:
        return scrub(str(json.loads(f'"{text}"', strict=False)))
    except ValueError:  # cut inside an escape
        return text

"""A line too long to hold, as far as its two ends tell.

What is long is a picture, a tool's result or a file, in `message`, `toolUseResult` or
`attachment`; the other fields stand before and after. An id that stands between two long values
is lost: the line gets a made one, and the next line, which names an unknown parent, is put below
it all the same.
"""

from __future__ import annotations

import json
import re

from msgspec import UNSET, Raw

from indexerd.agents.claude.lines import Attachment, Line, Message
from indexerd.privacy.sanitize import scrub
from indexerd.sources.lines import Oversize

_TEXT = r'(?<!\\)"%s"\s*:\s*"((?:[^"\\]|\\.){0,2000}+)'
_TRUE = r'(?<!\\)"%s"\s*:\s*true'
_TYPE = re.compile(rb'(?<!\\)"type"\s*:\s*"(user|assistant|system|attachment|progress)"')
_KIND = re.compile(rb'(?<!\\)"attachment"\s*:\s*\{\s*"type"\s*:\s*"(\w{1,40})"')
_NO_PARENT = re.compile(rb'(?<!\\)"parentUuid"\s*:\s*null')
_RESULT = b'"toolUseResult"'


def line_of(ends: Oversize) -> Line:
    """The line, with what is known of it; its content says only of what kind it is."""
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
        line.message = Message(
            role=kind,
            stop_reason=known.text("stop_reason") or None,
            content=_content(known),
        )
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
        """Whether a word stands in either end."""
        return word in self._head or word in self._tail

    def true(self, key: str) -> bool:
        """Whether a field of that name is true somewhere."""
        mark = re.compile((_TRUE % key).encode())
        return bool(mark.search(self._head) or mark.search(self._tail))

    def first(self, mark: re.Pattern[bytes]) -> str:
        """The first find, in the beginning before the end."""
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

"""Segments: summaries of ranges of a path's messages, one a line of `<id>.digest.jsonl`.

A segment names the row of its last message. Where that row stands at the same position of a path,
all that came before it is the same, too: so branches share the segments of what they share. Lines
may have been written by any hand.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from indexerd.meta.model import parse_digest
from indexerd.meta.reader import digest_bytes, digest_name, read_digest
from indexerd.meta.writer import MetaWriter
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path
from indexerd.protocol.limits import PATH_MAX, USE_MAX
from indexerd.sessions.facts import FILES_MAX, TOOLS_MAX, USES_KEPT
from indexerd.sessions.facts import NAME_MAX as TOOL_MAX
from indexerd.sessions.positions import ROW_NAME_MAX, message_rows, names_on
from indexerd.sessions.state import SessionState
from indexerd.times import iso

POSITION_MAX = 10_000_000  # no path has as many messages
CONTENT_MAX = 20_000  # characters; a model is asked for a fifth of it at most
ID_MAX = 128
DECISIONS_MAX = 5  # of one segment
DECISION_MAX = 300  # characters of one

_storing = Lock()
_Position = Annotated[int, msgspec.Meta(ge=0, le=POSITION_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class ToolUse(msgspec.Struct, frozen=True):
    """How often a tool was used, and for what: at most three uses."""

    tool: str
    count: _Count = 0
    notable_uses: tuple[str, ...] = ()


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a range of messages, first and last included."""

    id: str
    covering: tuple[_Position, _Position] = msgspec.field(name="covering_messages")
    content: str
    key_decisions: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: tuple[ToolUse, ...] = ()
    generated_at: str = ""
    token_count: _Count = 0  # of the content
    model: str = ""
    leaf_id: str = msgspec.field(name="leafId")  # name of the last message (sessions/positions.py)
    kind: Literal["segment", "branch"] = "segment"  # branch: of one that was left; in no chain

    @property
    def messages(self) -> int:
        return self.covering[1] - self.covering[0] + 1


def new_segment(text: str, model: str, seconds: float, **facts: Any) -> Segment:
    """A segment that a model wrote just now, as readers will see it."""
    made = Segment(
        id=f"seg_{secrets.token_hex(6)}",
        content=text,
        generated_at=iso(seconds),
        token_count=-(-len(text) // 4),
        model=model,
        **facts,
    )
    return parse(encode(made)) or made


def parse(stored: object) -> Segment | None:
    """Read a line of the sidecar; None where it cannot be used. What is too long is cut."""
    if not isinstance(stored, Mapping):
        return None
    try:
        found = msgspec.convert({k: one for k, one in stored.items() if one is not None}, Segment)
    except (msgspec.ValidationError, RecursionError):
        return None
    paths = (escape_path(path[:PATH_MAX])[:PATH_MAX] for path in found.files_modified if path)
    tools = (
        ToolUse(_line(one.tool, TOOL_MAX), one.count, _lines(one.notable_uses, USES_KEPT, USE_MAX))
        for one in found.tools_used[:TOOLS_MAX]
    )
    found = replace(
        found,
        id=_line(found.id, ID_MAX),
        content=clean_text(found.content[: 2 * CONTENT_MAX], CONTENT_MAX),
        key_decisions=_lines(found.key_decisions, DECISIONS_MAX, DECISION_MAX),
        files_modified=tuple(dict.fromkeys(paths))[:FILES_MAX],
        tools_used=tuple(tools),
        generated_at=_line(found.generated_at, ID_MAX),
        model=_line(found.model, ROW_NAME_MAX),
        leaf_id=_line(found.leaf_id, ROW_NAME_MAX),
    )
    usable = found.messages > 0 and found.id and found.leaf_id and found.content
    return found if usable else None


def encode(segment: Segment) -> dict[str, Any]:
    """The line that `parse` reads, as a JSON object."""
    line: dict[str, Any] = msgspec.to_builtins(segment)
    if segment.kind == "segment":
        del line["kind"]
    return line


def _line(text: str, limit: int) -> str:
    return clean_line(text[: 8 * limit], limit)


def _lines(texts: Sequence[str], most: int, limit: int) -> tuple[str, ...]:
    return tuple(filter(None, (_line(text, limit) for text in texts[:most])))


def read_segments(home: Path | None, session_id: str, kind: str = "segment") -> list[Segment]:
    """The stored segments of every path, or the summaries of branches."""
    lines = read_digest(home / digest_name(session_id)) if home else []
    return [one for line in lines if (one := parse(line)) is not None and one.kind == kind]


def store_segment(writer: MetaWriter, home: Path, session_id: str, segment: Segment) -> None:
    """Add a line to a session's sidecar; lines of other hands stay as they are.

    The summary of a branch replaces an older one of it.
    """
    mine = segment.kind, segment.leaf_id
    with _storing:  # all of it is read and written again
        lines = [line for line in digest_bytes(home / digest_name(session_id)).split(b"\n") if line]
        if segment.kind == "branch":
            parsed = ((line, parse_digest(line)) for line in lines)
            marks = ("kind", "leafId")
            lines = [a for a, b in parsed if not b or tuple(map(b[0].get, marks)) != mine]
        writer.write_digest(home, session_id, [*lines, encode(segment)])


def chain(state: SessionState, rows: Sequence[int], segments: Iterable[Segment]) -> list[Segment]:
    """The segments that hold on a path, oldest first, from message 0 on and without a gap.

    `rows` are the path's message rows. Where a hand made segments that overlap, those are taken
    that together reach furthest; of two that reach as far, the one that was stored later.
    """
    likely = [one for one in segments if one.kind == "segment" and one.covering[1] < len(rows)]
    names = names_on(state, rows[-1], {rows[one.covering[1]] for one in likely}) if likely else {}
    best: dict[int, list[Segment]] = {}  # by its first message
    for one in sorted(likely, key=lambda one: -one.covering[0]):  # stable: later comes later
        first, last = one.covering
        found = [one, *best.get(last + 1, ())]
        if names.get(rows[last]) == one.leaf_id and covered(found) >= covered(best.get(first, ())):
            best[first] = found
    return best.get(0, [])


def chain_at(state: SessionState, home: Path | None, session_id: str) -> list[Segment]:
    """The stored segments that hold on the path to a state's leaf, oldest first."""
    return chain(state, message_rows(state), read_segments(home, session_id))


def covered(chain: Sequence[Segment]) -> int:
    """How many messages, from the first on, a chain covers."""
    return chain[-1].covering[1] + 1 if chain else 0

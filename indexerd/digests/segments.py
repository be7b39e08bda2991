"""Segments: summarized stretches of a path, as `<id>.digest.jsonl` keeps them, one a line.

A segment belongs to a path, not to a file: it names the row of its last message, and where that
row stands at the same position, all that came before it is the same, too. So branches share what
they share, and lose nothing when one is left. Lines may have been written by any hand.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

import msgspec

from indexerd.errors import InvalidMetaError
from indexerd.meta.model import META_BYTES_MAX, parse_digest
from indexerd.meta.reader import digest_bytes, digest_name, read_digest
from indexerd.meta.writer import MetaWriter
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path
from indexerd.protocol.limits import USE_MAX
from indexerd.sessions.facts import FILES_MAX, PATH_MAX, TOOLS_MAX, USES_KEPT
from indexerd.sessions.facts import NAME_MAX as TOOL_MAX
from indexerd.sessions.positions import ROW_NAME_MAX, message_rows, names_on
from indexerd.sessions.state import SessionState

POSITION_MAX = 10_000_000  # no path has as many messages
COUNT_MAX = 1_000_000_000
CONTENT_MAX = 20_000  # characters; a model is asked for a fifth of it at most (S2.9)
ID_MAX = 128
DECISIONS_MAX = 5  # of one segment (S2.13)
DECISION_MAX = 300  # characters of one
LINE_ROOM = 256 * 1024  # bytes that one more line may take

_storing = Lock()


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How often a tool was used, and for what: at most three uses (S2.12)."""

    tool: str
    count: int
    notable_uses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """The summary of the messages `first` to `last` of a path, both included (S2.8)."""

    id: str
    first: int
    last: int
    content: str
    key_decisions: tuple[str, ...]
    files_modified: tuple[str, ...]
    tools_used: tuple[ToolUse, ...]
    generated_at: str
    token_count: int  # of the content
    model: str
    leaf_id: str  # the name (sessions/positions.py) of the last message
    kind: str = "segment"  # or "branch": the summary of one that was left; never part of a chain

    @property
    def messages(self) -> int:
        """How many messages it covers."""
        return self.last - self.first + 1


def new_id() -> str:
    """An id for a new segment."""
    return f"seg_{secrets.token_hex(6)}"


def text_tokens(text: str) -> int:
    """About how many tokens a summary is: characters by 4, rounded up."""
    return -(-len(text) // 4)


# -- as they are stored --------------------------------------------------------------------------

_Position = Annotated[int, msgspec.Meta(ge=0, le=POSITION_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]


class _Use(msgspec.Struct):
    tool: str
    count: _Count = 0
    notable_uses: list[str] = []


class _Stored(msgspec.Struct):
    id: str
    covering_messages: tuple[_Position, _Position]
    content: str
    leaf_id: str = msgspec.field(name="leafId")
    key_decisions: list[str] = []
    files_modified: list[str] = []
    tools_used: list[_Use] = []
    generated_at: str = ""
    token_count: _Count = 0
    model: str = ""
    kind: Literal["segment", "branch"] = "segment"


def parse(held: object) -> Segment | None:
    """A segment of a line of the sidecar; None where it cannot be used.

    Id, range, content and leaf must be there. What else is absent or null is empty; what has a
    wrong type makes the line unusable; what is unknown is passed over; what is too long is cut.
    """
    if not isinstance(held, Mapping):
        return None
    try:
        stored = msgspec.convert(
            {key: one for key, one in held.items() if one is not None}, _Stored
        )
    except (msgspec.ValidationError, RecursionError):
        return None
    first, last = stored.covering_messages
    content = clean_text(stored.content[: 2 * CONTENT_MAX], CONTENT_MAX)
    found_id, leaf_id = _line(stored.id, ID_MAX), _line(stored.leaf_id, ROW_NAME_MAX)
    if first > last or not (found_id and leaf_id and content):
        return None
    return Segment(
        id=found_id,
        first=first,
        last=last,
        content=content,
        key_decisions=_lines(stored.key_decisions, DECISIONS_MAX, DECISION_MAX),
        files_modified=_paths(stored.files_modified),
        tools_used=tuple(map(_use, stored.tools_used[:TOOLS_MAX])),
        generated_at=_line(stored.generated_at, ID_MAX),
        token_count=stored.token_count,
        model=_line(stored.model, ROW_NAME_MAX),
        leaf_id=leaf_id,
        kind=stored.kind,
    )


def encode(segment: Segment) -> dict[str, Any]:
    """The line that `parse` reads, as a JSON object."""
    branch = {"kind": segment.kind} if segment.kind != "segment" else {}
    return {
        "id": segment.id,
        "covering_messages": [segment.first, segment.last],
        "content": segment.content,
        "key_decisions": list(segment.key_decisions),
        "files_modified": list(segment.files_modified),
        "tools_used": [
            {"tool": one.tool, "count": one.count, "notable_uses": list(one.notable_uses)}
            for one in segment.tools_used
        ],
        "generated_at": segment.generated_at,
        "token_count": segment.token_count,
        "model": segment.model,
        "leafId": segment.leaf_id,
    } | branch


def _use(stored: _Use) -> ToolUse:
    uses = _lines(stored.notable_uses, USES_KEPT, USE_MAX)
    return ToolUse(_line(stored.tool, TOOL_MAX), stored.count, uses)


def _line(text: str, limit: int) -> str:
    return clean_line(text[: 8 * limit], limit)


def _lines(texts: Sequence[str], most: int, limit: int) -> tuple[str, ...]:
    return tuple(filter(None, (_line(text, limit) for text in texts[:most])))


def _paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Distinct paths, fit to be looked at: a newline in one must not look like two."""
    shown = (escape_path(path[:PATH_MAX])[:PATH_MAX] for path in paths if path)
    return tuple(dict.fromkeys(shown))[:FILES_MAX]


def read_segments(home: Path | None, session_id: str, kind: str = "segment") -> list[Segment]:
    """The stored segments of every path, or the summaries of branches.

    AccessError or InvalidMetaError where they cannot be read.
    """
    lines = read_digest(home / digest_name(session_id)) if home else []
    return [one for line in lines if (one := parse(line)) is not None and one.kind == kind]


def require_room(home: Path, session_id: str) -> None:
    """Raise InvalidMetaError where one more line would not fit: before anything is paid for it."""
    path = home / digest_name(session_id)
    if len(digest_bytes(path)) + LINE_ROOM > META_BYTES_MAX:
        raise InvalidMetaError(
            f"{path} has no room for one more line",
            hint="move it away, or take lines out of it that you need no more",
        )


def store_segment(writer: MetaWriter, home: Path, session_id: str, segment: Segment) -> None:
    """Add a line to a session's sidecar; lines of other hands stay as they are.

    The summary of a branch takes the place of an older one of it. Who stores reads what is there
    and writes all of it anew: only one does so at a time.
    """
    mine = segment.kind, segment.leaf_id
    with _storing:
        data = digest_bytes(home / digest_name(session_id))
        lines = [line for line in data.split(b"\n") if line.strip()]
        if segment.kind == "branch":
            lines = [
                line
                for line in lines
                if all((one.get("kind"), one.get("leafId")) != mine for one in parse_digest(line))
            ]
        writer.write_digest(home, session_id, [*lines, encode(segment)])


# -- chains --------------------------------------------------------------------------------------


def chain(state: SessionState, rows: Sequence[int], segments: Iterable[Segment]) -> list[Segment]:
    """The segments that hold on a path, oldest first, from message 0 on and without a gap.

    `rows` are the path's message rows. Where a hand made segments that overlap, those are taken
    that together reach furthest; of two that reach as far, the one that was stored later.
    """
    likely = [one for one in segments if one.kind == "segment" and one.last < len(rows)]
    if not likely:
        return []
    names = names_on(state, rows[-1], {rows[one.last] for one in likely})
    reach: dict[int, tuple[int, Segment]] = {}  # first -> how far one gets from there, and how
    for one in sorted(likely, key=lambda one: -one.first):  # stable: stored later comes later
        if names.get(rows[one.last]) != one.leaf_id:
            continue
        beyond = reach.get(one.last + 1)
        far = beyond[0] if beyond else one.last
        if one.first not in reach or far >= reach[one.first][0]:
            reach[one.first] = (far, one)
    found: list[Segment] = []
    while covered(found) in reach:
        found.append(reach[covered(found)][1])
    return found


def chain_at(state: SessionState, home: Path | None, session_id: str) -> list[Segment]:
    """The stored segments that hold on the path to a state's leaf, oldest first."""
    return chain(state, message_rows(state), read_segments(home, session_id))


def covered(chain: Sequence[Segment]) -> int:
    """How many messages, from the first on, a chain covers."""
    return chain[-1].last + 1 if chain else 0


def shown(chain: Sequence[Segment], total: int, keep: int) -> list[Segment]:
    """The part of a chain that leaves the newest `keep` messages verbatim (S2.7).

    It is all of it, unless the path became shorter, or more are to be kept than before.
    """
    return [one for one in chain if one.last < total - max(0, keep)]

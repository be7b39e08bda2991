"""Segments: stretches of a path that were summed up, and which of them hold on a path now.

In: a session's tree, and segments as they were stored, by any hand. Out: positions, the chain of
segments that cover a path's beginning without gap or overlap, what is due, what of the path a
segment covers, and what was done there. A segment belongs to a path, not to a file: it names the
row of its last message, and where that row stands at the same position, all that came before it
is the same, too. So branches share what they share, and lose nothing when one is left.

Positions count the user and assistant messages of a path, from 0. What adapters do with answers
that are stored more than once: pi and opencode store a message in one piece; codex' doubles are
no messages (OTHER, or no row at all), nor is a turn's end that stands for an answer; Claude Code
writes one answer as several lines, each an assistant's message. There a run of them counts once,
by its first line; a result of a tool between them, or a failure, ends the run.

What surprised us: codex may rewrite a file, so that ids change and only turns keep their names.
A row in the middle of a turn must not go by the turn before: that stays when this one is taken
back, and another one in its place would look as if it had been summed up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from indexerd.events import KIND_MASK, MESSAGE, TURN_MASK, TURN_SHIFT, Entry, Kind, Turn
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path
from indexerd.sessions.facts import (
    FILES_MAX,
    PATH_MAX,
    TOOLS_MAX,
    USE_MAX,
    USES_KEPT,
    ActivityStats,
)
from indexerd.sessions.facts import NAME_MAX as TOOL_MAX
from indexerd.sessions.state import SessionState

POSITION_MAX = 10_000_000  # no path has as many messages
COUNT_MAX = 1_000_000_000
CONTENT_MAX = 20_000  # characters; a model is asked for a fifth of it at most (S2.9)
DECISIONS_MAX = 5  # of one segment (S2.13)
DECISION_MAX = 300  # characters of one
ID_MAX = 128
NAME_MAX = 256  # characters of a row's name, and of a model's
SPLIT = "claude"  # the note of the adapter whose answers are several lines

_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})
_BESIDE = frozenset({Kind.OTHER, Kind.SYSTEM, Kind.SETTING, Kind.LABEL, Kind.NAME, Kind.CALL})


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
    leaf_id: str  # the name (`name_at`) of the last message
    kind: str = "segment"  # or "branch": the summary of one that was left; never part of a chain

    @property
    def messages(self) -> int:
        """How many messages it covers."""
        return self.last - self.first + 1


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
    """A segment of a line of `<id>.digest.jsonl`, by any hand; None where it cannot be used.

    Id, range, content and leaf must be there. What else is absent or null is empty; what has a
    wrong type makes the line unusable; what is unknown is passed over; what is too long is cut.
    """
    if not isinstance(held, Mapping):
        return None
    try:
        told = msgspec.convert({key: one for key, one in held.items() if one is not None}, _Stored)
    except (msgspec.ValidationError, RecursionError):
        return None
    first, last = told.covering_messages
    content = clean_text(told.content[: 2 * CONTENT_MAX], CONTENT_MAX)
    found_id, leaf_id = _line(told.id, ID_MAX), _line(told.leaf_id, NAME_MAX)
    if first > last or not (found_id and leaf_id and content):
        return None
    return Segment(
        id=found_id,
        first=first,
        last=last,
        content=content,
        key_decisions=_lines(told.key_decisions, DECISIONS_MAX, DECISION_MAX),
        files_modified=_paths(told.files_modified),
        tools_used=tuple(map(_use, told.tools_used[:TOOLS_MAX])),
        generated_at=_line(told.generated_at, ID_MAX),
        token_count=told.token_count,
        model=_line(told.model, NAME_MAX),
        leaf_id=leaf_id,
        kind=told.kind,
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


def _use(told: _Use) -> ToolUse:
    uses = _lines(told.notable_uses, USES_KEPT, USE_MAX)
    return ToolUse(_line(told.tool, TOOL_MAX), told.count, uses)


def _line(text: str, limit: int) -> str:
    return clean_line(text[: 8 * limit], limit)


def _lines(texts: Sequence[str], most: int, limit: int) -> tuple[str, ...]:
    return tuple(filter(None, (_line(text, limit) for text in texts[:most])))


def _paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Distinct paths, fit to be looked at: a newline in one must not look like two."""
    shown = (escape_path(path[:PATH_MAX])[:PATH_MAX] for path in paths if path)
    return tuple(dict.fromkeys(shown))[:FILES_MAX]


# -- positions -----------------------------------------------------------------------------------


def message_rows(state: SessionState, leaf: int | None = None) -> list[int]:
    """The rows of a path's user and assistant messages, root first; linear in the path.

    Of an answer that is several lines it is the first one's. The place in this list is the
    message's position, and its length the full count of messages (S2.6).
    """
    split = SPLIT in state.notes
    codes, found, running = state.codes, list[int](), False
    for row in state.path(leaf):
        packed = codes[row]
        kind = packed & KIND_MASK
        if kind not in _SPOKEN or not packed & MESSAGE:
            running = running and kind in _BESIDE
            continue
        whole = split and kind == Kind.ASSISTANT and not _failed(packed)
        if not (whole and running):
            found.append(row)
        running = whole
    return found


def _failed(packed: int) -> bool:
    return (packed & TURN_MASK) >> TURN_SHIFT == Turn.FAILED


def rows_between(path: Sequence[int], rows: Sequence[int], first: int, last: int) -> list[int]:
    """Every row of a path that belongs to the messages `first` to `last`, in the path's order.

    `rows` are the path's message rows. What stands between two messages belongs to the earlier
    one (results of tools, calls, settings), and what stands before message 0 to that.
    """
    if first > last or not 0 <= first < len(rows):
        return []
    start = path.index(rows[first], first) if first else 0
    end = path.index(rows[last + 1], last + 1) if last + 1 < len(rows) else len(path)
    return list(path[start:end])


def name_at(state: SessionState, row: int) -> str:
    """A name of a row that outlives a rewritten file: its turn's, where turns are named.

    That is its own mark, or that of the turn it stands in, whose mark is on its newest row; for a
    row outside of turns the nearest mark above. Where nothing is marked it is the row's id.
    Linear in the row's path.
    """
    return _names(state, row, {row}).get(row, "") if row >= 0 else ""


def _names(state: SessionState, leaf: int, wanted: set[int]) -> dict[int, str]:
    """The names of some rows of the path to a leaf."""
    marked = {row: name for name, row in state.marks.items()}
    if not marked:
        return {row: _name(state.ids[row]) for row in wanted}
    ordered = sorted(marked)
    found: dict[int, str] = {}
    above, asked = -1, False  # the last marked row, and whether anyone asked since
    for row in state.path(leaf):
        if row in marked:
            above, asked = row, False
        elif state.codes[row] & KIND_MASK in _ASKS:
            asked = True
        if row in wanted:
            at = bisect_left(ordered, row)
            below = ordered[at] if at < len(ordered) else -1
            outside = above >= 0 and marked[above] == state.ids[above] and not asked
            if below > row and (outside or marked[below] == state.ids[below]):
                below = -1  # its turn begins further down
            mark = below if below >= 0 else above
            found[row] = _name(marked[mark] if mark >= 0 else state.ids[row])
    return found


def _name(name: bytes) -> str:
    return _line(name.decode("utf-8", "replace"), NAME_MAX)


# -- chains --------------------------------------------------------------------------------------


def chain(state: SessionState, rows: Sequence[int], segments: Iterable[Segment]) -> list[Segment]:
    """The segments that hold on a path, oldest first, from message 0 on and without a gap.

    `rows` are the path's message rows. Where a hand made segments that overlap, those are taken
    that together reach furthest; of two that reach as far, the one that was stored later.
    """
    likely = [one for one in segments if one.kind == "segment" and one.last < len(rows)]
    if not likely:
        return []
    names = _names(state, rows[-1], {rows[one.last] for one in likely})
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


def covered(chain: Sequence[Segment]) -> int:
    """How many messages, from the first on, a chain has folded."""
    return chain[-1].last + 1 if chain else 0


def span(total: int, covered: int, keep: int) -> tuple[int, int] | None:
    """The messages that the next segment covers; None where there is nothing to fold (S2.4).

    `total` messages are on the path, `covered` of them folded; the newest `keep` stay.
    """
    last = total - max(0, keep) - 1
    return (covered, last) if covered <= last else None


def due(total: int, covered: int, threshold: int) -> bool:
    """Whether more messages than the threshold are not folded yet (S2.3)."""
    return total - covered > threshold


def shown(chain: Sequence[Segment], total: int, keep: int) -> list[Segment]:
    """The part of a chain that leaves the newest `keep` messages verbatim (S2.7).

    It is all of it, unless the path became shorter, or more are to be kept than before.
    """
    return [one for one in chain if one.last < total - max(0, keep)]


# -- what was done -------------------------------------------------------------------------------


def deeds_of(entries: Iterable[Entry], cwd: str) -> tuple[tuple[str, ...], tuple[ToolUse, ...]]:
    """Files modified and tools used in these entries, root first (S2.11, S2.12).

    Paths are absolute, each once, and without those of calls that failed.
    """
    deeds = ActivityStats()
    for entry in entries:
        deeds.add(entry, cwd)
    facts = deeds.facts()
    uses = dict(facts.tool_uses)
    tools = (
        ToolUse(_line(tool, TOOL_MAX), count, uses.get(tool, ()))
        for tool, count in facts.tools_used
    )
    return _paths(facts.files_modified), tuple(tools)

"""Where a line of Claude Code belongs in the tree, and whether it moves the leaf.

A walk from the newest line by `parentUuid` alone loses half a conversation:
one answer is several lines, with parallel tools their results hang off different ones, and
whichever sibling the next line names, the others fall off. Only a human makes a real branch, by
typing another prompt at an older place. So:

- an answer, a result or a queued prompt that names a row on the path, but not its end, is put at
  the end; one that names a row off the path continues that other branch;
- a typed prompt hangs where it says, unless that place lies within the turn that is its end;
- a parent that was never seen stands for what was the leaf when it was first named (progress
  lines that went missing); with no parent named in the file at all, lines hang in file order;
- `compact_boundary` hangs below what it follows, and the whole conversation stays on the path;
  but it is a root where it keeps no messages and a prompt was taken back before: what it names
  may then be on the branch that was left;
- an id that comes again in the same place is the same line; one that comes again elsewhere (kept
  messages are logged again, below the summary) gets a name of its own, takes later children, and
  counts only where the first is not on its path, as does a prompt that was recorded twice;
- what hooks told the model hangs below the call or the answer that it came after, and beside what
  follows there: that is put below it, so that it is on the path, as it is in what the model gets;
- system lines, attachments and local commands hang where they say, and never move the leaf, so
  that it is stable while only such are appended; it need not be a tip.

Every parent stands before its child and every id once, so that a walk cannot loop. Walks are
bounded: a row too far up counts as on the path.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from indexerd.agents.base import ANSWERS, PROMPT, PROMPTED, ROOT, Tree
from indexerd.agents.claude.human import FAILED_RESULT, OTHER, RESULT, SUMMARY, Said
from indexerd.agents.claude.lines import Line
from indexerd.agents.json_lines import as_dict, as_list, value
from indexerd.events import KIND_MASK, TURN_MASK, Kind, Turn

TALK = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.COMPACTION})  # what moves the leaf
HOOKS = frozenset(  # attachments in which hooks tell the model something
    "hook_additional_context hook_success hook_blocking_error hook_stopped_continuation"  # noqa: SIM905 - a table
    " async_hook_response".split()
)
Place = tuple[int, int]  # of a line in the file: its offset and its length
_FAR = 1024  # steps of one walk
_PROMPTS_KEPT = 64
_LOST_MAX = 10_000
_KEPT_MAX = 1_000  # ids of kept messages that are looked at


class Prompt(msgspec.Struct, array_like=True):
    """A prompt that was counted, as far as a second record of it is recognised."""

    digest: int
    timestamp: str
    queued: bool  # recorded as typed while the agent worked
    waited: bool  # so, or sent later, after it had waited
    source: str  # its line's id, or the one under which it waited
    row: int
    turn: int


class Memory(msgspec.Struct):
    """What the scan remembers from one block of lines to the next; rows, -1 is none."""

    # the tree
    chained: bool = False  # some line has named a parent
    tail: int = -1  # the newest row of the main conversation, whatever its kind
    opener: int = -1  # the row that opened the current turn
    rewound: bool = False  # a prompt was taken back since the newest compact_boundary
    hook: int = -1  # the newest row in which a hook told the model something
    boundary: int = -1  # the newest compact_boundary's row
    boundary_at: tuple[int, int] = (-1, -1)  # where its line begins and ends
    again: dict[str, str] = msgspec.field(default_factory=dict)  # repeated id -> its newest row's
    lost: dict[str, int] = msgspec.field(default_factory=dict)  # unknown parent -> what it is
    prompts: list[Prompt] = msgspec.field(default_factory=list)  # the newest
    turns: int = 0  # that have ended
    # the header
    begun: str = ""  # the file's first timestamp
    own_ms: int = 0  # first time on a line that a fork does not copy, before the first that it does
    foreign_ms: int = 0  # newest time on a line of another session id
    main: bool = False  # a conversation line was met that is no sub-agent's
    child: bool = False  # the file is a sub-agent's
    named_child: bool = False  # its path says so
    # names
    titles: dict[str, str] = msgspec.field(default_factory=dict)  # kind -> the newest
    summaries: dict[str, str] = msgspec.field(default_factory=dict)  # of ids not met yet


def put(tree: Tree, memory: Memory, line: Line, what: Said, place: Place) -> int:
    """Add a line, or let it take the place of an earlier copy. Returns its row."""
    key = line.uuid or _free(tree, f"L{tree.seen}")
    above = _above(tree, memory, line, what)
    old = tree.index.get(key)
    if old is not None:
        same = not line.parent_uuid or above == tree.parent(old)
        if same or (_follows(what) and old > memory.boundary):
            return _replace(tree, memory, old, what, place)
        what = Said(OTHER) if _reaches(tree, above, old) else what
        key = memory.again[line.uuid] = _free(tree, f"{line.uuid}~{tree.seen}")
    elif what.code == PROMPT and _recorded_before(tree, memory, line, what, above):
        what = Said(OTHER)
    (offset, length), (start, end) = place, memory.boundary_at
    if what.code == SUMMARY and length and start >= 0 and end + 1 == offset:
        place = start, offset + length - start  # it is read with its boundary's line
    memory.tail = row = tree.add_below(above, key, what.code, *place)
    if line.attachment is not None and line.attachment.type in HOOKS:
        memory.hook = row
    if _is_boundary(line, what):
        memory.boundary, memory.boundary_at = row, (place[0], sum(place))
    if what.kind in TALK:
        _lead(tree, memory, row, what)
    return row


def put_aside(tree: Tree, line: Line, place: Place) -> None:
    """Add a line of a sub-agent that stands in its parent's file: never on the path."""
    key = line.uuid or _free(tree, f"L{tree.seen}")
    if key in tree.index:
        tree.seen += 1
        return
    named = line.parent_uuid
    above = tree.index.get(named, ROOT) if isinstance(named, str) else ROOT
    tree.add_below(above, key, OTHER, *place)


def end_turn(tree: Tree) -> None:
    """The client says that the turn is over; old versions do not write why an answer ends."""
    if tree.leaf >= 0 and tree.codes[tree.leaf] & (KIND_MASK | TURN_MASK) == Kind.ASSISTANT:
        tree.recode(tree.leaf, ANSWERS[Turn.ENDED])


def _lead(tree: Tree, memory: Memory, row: int, what: Said) -> None:
    """A row of the conversation is the leaf now."""
    tree.leaf = row
    if what.code in (PROMPT, PROMPTED, SUMMARY) and not what.queued:
        memory.opener = row
    if what.kind is Kind.ASSISTANT and what.code & TURN_MASK:
        memory.turns += 1


def _free(tree: Tree, name: str) -> str:
    while name in tree.index:
        name += "~"
    return name


def _is_boundary(line: Line, what: Said) -> bool:
    return line.subtype == "compact_boundary" and what.kind is Kind.SYSTEM


def _follows(what: Said) -> bool:
    """Whether a line goes on with what was asked, wherever it says that it hangs."""
    return what.kind is Kind.ASSISTANT or what.code in (RESULT, FAILED_RESULT) or what.queued


# -- parents -------------------------------------------------------------------------------------


def _above(tree: Tree, memory: Memory, line: Line, what: Said) -> int:
    """The row below which a line hangs, or ROOT."""
    leaf = tree.leaf
    if _is_boundary(line, what):
        return _before_boundary(tree, memory, line)
    if not line.parent_uuid:
        if not memory.chained:
            return memory.tail
        return leaf if _follows(what) or line.parent_uuid is not None else ROOT
    memory.chained = True
    found = tree.index.get(memory.again.get(line.parent_uuid, line.parent_uuid))
    if found is None:
        found = memory.lost.get(line.parent_uuid, leaf)
        if len(memory.lost) < _LOST_MAX:
            memory.lost[line.parent_uuid] = found
    if what.kind not in TALK or what.code == SUMMARY or leaf < 0:
        return found
    return _placed(tree, memory, found, what)


def _placed(tree: Tree, memory: Memory, named: int, what: Said) -> int:
    """The row where a line of the conversation belongs that names this one."""
    leaf, follows = tree.leaf, _follows(what)
    place = _anchor(tree, memory, named)
    if place == ROOT:
        return leaf if follows else named
    if place == leaf and named != leaf:
        return named
    if place != leaf:
        if not follows and place < memory.opener:
            memory.rewound = True
            return named  # the human went back
        if not _reaches(tree, leaf, place):
            return named
    hook = memory.hook  # at the path's end: below what hooks said after the leaf
    return hook if follows and hook > leaf and _anchor(tree, memory, hook) == leaf else leaf


def _before_boundary(tree: Tree, memory: Memory, line: Line) -> int:
    """What a compaction follows, or ROOT where that is in doubt.

    The message that it names may be one that is logged again below its summary, and not be there
    yet: then another of those kept stands for it.
    """
    held = as_dict(value(line.compact_metadata))
    segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
    keeps = isinstance(segment, dict) or isinstance(messages, dict)
    rewound, memory.rewound = memory.rewound, False
    if rewound and not keeps:
        return ROOT
    ids: list[Any] = [line.logical_parent_uuid]
    ids += reversed(as_list(as_dict(messages).get("uuids"))[-_KEPT_MAX:])
    ids += [as_dict(segment).get("tailUuid"), as_dict(segment).get("headUuid")]
    leaf = tree.leaf
    for one in ids:
        row = tree.index.get(one) if isinstance(one, str) else None
        if row is not None:
            ends = _anchor(tree, memory, row) == leaf or not _reaches(tree, leaf, row)
            return row if ends else leaf
    return ROOT if keeps else leaf


# -- walks ---------------------------------------------------------------------------------------


def _anchor(tree: Tree, memory: Memory, row: int) -> int:
    """The nearest row of the conversation, this one or above; a boundary counts as one."""
    for _ in range(_FAR):
        if row < 0 or row == memory.boundary or tree.codes[row] & KIND_MASK in TALK:
            break
        row = tree.parents[row]
    return row


def _reaches(tree: Tree, row: int, target: int) -> bool:
    """Whether a row is this one or below it. One that is too far up counts as such."""
    for _ in range(_FAR):
        if row <= target:
            break
        row = tree.parents[row]
    return row >= target


# -- lines that come again -----------------------------------------------------------------------


def _replace(tree: Tree, memory: Memory, row: int, what: Said, place: Place) -> int:
    """The newest copy of a line is read."""
    tree.seen += 1
    tree.offsets[row], tree.lengths[row] = place
    if tree.codes[row] != OTHER:
        tree.recode(row, what.code)
        if what.kind in TALK and row > tree.leaf:
            _lead(tree, memory, row, what)
    return row


def _recorded_before(tree: Tree, memory: Memory, line: Line, what: Said, above: int) -> bool:
    """Whether a prompt is on the path already: queued and sent, or replayed."""
    held = line.attachment
    new = Prompt(
        digest=crc32(what.text.encode("utf-8", "replace")),
        timestamp=(held.timestamp if held else "") or line.timestamp,
        queued=what.queued,
        waited=what.queued or line.prompt_source == "queued",
        source=held.source if held else line.uuid,
        row=len(tree),
        turn=memory.turns,
    )
    for at, one in enumerate(memory.prompts):
        same = one.digest == new.digest and _same_prompt(one, new)
        if same and _reaches(tree, above, one.row):
            del memory.prompts[at]
            return True
    memory.prompts = [*memory.prompts, new][-_PROMPTS_KEPT:]
    return False


def _same_prompt(one: Prompt, new: Prompt) -> bool:
    """Whether two prompts of the same words are one."""
    if one.timestamp and one.timestamp == new.timestamp:
        return True
    if one.queued == new.queued:
        return False
    if one.source and one.source == new.source:
        return True
    return one.waited and new.turn - one.turn <= (1 if new.waited else 0)

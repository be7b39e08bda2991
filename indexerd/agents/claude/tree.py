"""Find the place of a Claude Code line in the tree, and decide whether it moves the leaf.

What surprised us: a walk by `parentUuid` alone loses half a conversation. One answer is several
lines, with parallel tools their results hang off different ones, and whichever sibling the next
line names, the others fall off. Only a human makes a real branch. So:

- an answer, a result or a queued prompt that names a row on the path goes to the path's end; one
  that names a row off the path continues that other branch;
- a typed prompt hangs where it says, unless that place lies within the turn that is its end;
- a parent that was never seen means what was the leaf when it was first named; with no parent
  named in the file at all, lines hang in file order;
- `compact_boundary` hangs below what it follows; but it is a root where it keeps no messages and
  a prompt was taken back before: what it names may then be on the branch that was left;
- an id that comes again in the same place is the same line; one that comes again elsewhere (kept
  messages are logged again) gets a name of its own, and counts only where the first is not on its
  path, as does a prompt that was recorded twice;
- what hooks told the model is on the path below the call or the answer that it came after.

Every parent stands before its child and every id once, so that a walk cannot loop. Walks are
bounded: a row too far up counts as on the path.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from indexerd.agents.base import ANSWERS, PROMPT, PROMPTED, ROOT, Said, Tree
from indexerd.agents.claude.human import FAILED_RESULT, RESULT
from indexerd.agents.claude.parse_entry import HOOKS
from indexerd.agents.json_lines import Fields, as_dict, as_list, string
from indexerd.events import KIND_MASK, TURN_MASK, Kind, Turn

TALK = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.COMPACTION})  # what moves the leaf
Place = tuple[int, int]  # of a line in the file: its offset and its length
_FAR = 1024  # steps of one walk
_PROMPTS_KEPT = 64


class Prompt(msgspec.Struct, array_like=True):
    """A prompt that was counted, with what a second record of it is recognised by."""

    digest: int
    timestamp: str
    queued: bool  # recorded as typed while the agent worked
    waited: bool  # so, or sent later, after it had waited
    source: str  # the id that it has where it is sent
    row: int
    turn: int


class Memory(msgspec.Struct):
    """What the scan keeps from one block of lines to the next; rows, -1 for none."""

    begun: str = ""  # the file's first timestamp
    own_ms: int = 0  # first time on a line that a fork does not copy, before the first that it does
    foreign_ms: int = 0  # newest time on a line of another session id
    settled: bool = False  # whether the file is a sub-agent's
    chained: bool = False  # some line has named a parent
    tail: int = -1  # the newest row of the main conversation, whatever its kind
    opener: int = -1  # the row that opened the current turn
    rewound: bool = False  # a prompt was taken back since the newest compact_boundary
    hook: int = -1  # the newest row in which a hook told the model something
    boundary: int = -1  # the newest compact_boundary's row
    boundary_at: tuple[int, int] = (-1, -1)  # where its line begins and ends
    again: dict[str, str] = msgspec.field(default_factory=dict)  # repeated id -> its newest row's
    lost: dict[str, int] = msgspec.field(default_factory=dict)  # unknown parent -> its stand-in
    prompts: list[Prompt] = msgspec.field(default_factory=list)  # the newest
    turns: int = 0  # that have ended
    titles: dict[str, str] = msgspec.field(default_factory=dict)  # kind -> the newest
    summaries: dict[str, str] = msgspec.field(default_factory=dict)  # of messages to come, by id


def put(tree: Tree, memory: Memory, line: Fields, what: Said, place: Place) -> int:
    """Add a line, or let it replace an earlier copy. Returns its row."""
    own = string(line.get("uuid"))
    boundary = line.get("subtype") == "compact_boundary" and what.kind is Kind.SYSTEM
    key = own or _free(tree, f"L{tree.seen}")
    above = _before_boundary(tree, memory, line) if boundary else _above(tree, memory, line, what)
    old = tree.index.get(key)
    if old is not None:
        same = not line.get("parentUuid") or above == tree.parent(old)
        if same or (_follows(what) and old > memory.boundary):
            return _replace(tree, memory, old, what, place)
        what = Said(Kind.OTHER) if _reaches(tree, above, old) else what
        key = memory.again[own] = _free(tree, f"{own}~{tree.seen}")
    elif what.code == PROMPT and _recorded_before(tree, memory, line, what, above):
        what = Said(Kind.OTHER)
    (offset, length), (start, end) = place, memory.boundary_at
    if what.code == Kind.COMPACTION and length and start >= 0 and end + 1 == offset:
        place = start, offset + length - start  # it is read with its boundary's line
    memory.tail = row = tree.add_below(above, key, what.code, *place)
    if "attachment" in line and as_dict(line["attachment"]).get("type") in HOOKS:
        memory.hook = row
    if boundary:
        memory.boundary, memory.boundary_at = row, (place[0], sum(place))
    _lead(tree, memory, row, what)
    return row


def put_aside(tree: Tree, line: Fields, place: Place) -> None:
    """Add a line of a sub-agent that stands in its parent's file: never on the path."""
    key = string(line.get("uuid")) or _free(tree, f"L{tree.seen}")
    if key in tree.index:
        tree.seen += 1
        return
    tree.add_below(tree.index.get(string(line.get("parentUuid")), ROOT), key, Kind.OTHER, *place)


def end_turn(tree: Tree) -> None:
    """End the turn at the client's word; old versions do not write why an answer ends."""
    if tree.leaf >= 0 and tree.codes[tree.leaf] & (KIND_MASK | TURN_MASK) == Kind.ASSISTANT:
        tree.codes[tree.leaf] = ANSWERS[Turn.ENDED]


def _lead(tree: Tree, memory: Memory, row: int, what: Said) -> None:
    if what.kind in TALK:
        tree.leaf = row
        if what.code in (PROMPT, PROMPTED, Kind.COMPACTION) and not what.queued:
            memory.opener = row
        memory.turns += what.kind is Kind.ASSISTANT and what.code & TURN_MASK > 0


def _free(tree: Tree, name: str) -> str:
    while name in tree.index:
        name += "~"
    return name


def _follows(what: Said) -> bool:
    """Return whether a line continues what was asked, wherever it says that it hangs."""
    return what.kind is Kind.ASSISTANT or what.code in (RESULT, FAILED_RESULT) or what.queued


def _above(tree: Tree, memory: Memory, line: Fields, what: Said) -> int:
    leaf, named, follows = tree.leaf, string(line.get("parentUuid")), _follows(what)
    if not named:
        if not memory.chained:
            return memory.tail
        return leaf if follows or "parentUuid" not in line else ROOT
    memory.chained = True
    found = tree.index.get(memory.again.get(named, named))
    if found is None:
        found = memory.lost.setdefault(named, leaf)
    if what.kind not in TALK or what.code == Kind.COMPACTION or leaf < 0:
        return found
    place = _anchor(tree, memory, found)
    if place == ROOT:
        return leaf if follows else found
    if place == leaf and found != leaf:
        return found
    if place != leaf:
        if not follows and place < memory.opener:
            memory.rewound = True
            return found  # the human went back
        if not _reaches(tree, leaf, place):
            return found
    hook = memory.hook  # at the path's end: below what hooks said after the leaf
    return hook if follows and hook > leaf and _anchor(tree, memory, hook) == leaf else leaf


def _before_boundary(tree: Tree, memory: Memory, line: Fields) -> int:
    """Find what a compaction follows, or ROOT where that is in doubt.

    The message that it names may be logged again below its summary, and not be there yet: then
    another of those kept stands for it.
    """
    held = as_dict(line.get("compactMetadata"))
    segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
    keeps = isinstance(segment, dict) or isinstance(messages, dict)
    rewound, memory.rewound = memory.rewound, False
    if rewound and not keeps:
        return ROOT
    ids = [line.get("logicalParentUuid")]
    ids += reversed(as_list(as_dict(messages).get("uuids")))
    ids += [as_dict(segment).get("tailUuid"), as_dict(segment).get("headUuid")]
    leaf = tree.leaf
    for row in map(tree.index.get, map(string, ids)):
        if row is not None:
            ends = _anchor(tree, memory, row) == leaf or not _reaches(tree, leaf, row)
            return row if ends else leaf
    return ROOT if keeps else leaf


def _anchor(tree: Tree, memory: Memory, row: int) -> int:
    """Find the nearest row of the conversation, this one or above; a boundary counts as one."""
    for _ in range(_FAR):
        if row < 0 or row == memory.boundary or tree.codes[row] & KIND_MASK in TALK:
            break
        row = tree.parents[row]
    return row


def _reaches(tree: Tree, row: int, target: int) -> bool:
    """Return whether a row is the target or below it, or has it too far up to be found."""
    for _ in range(_FAR):
        if row <= target:
            break
        row = tree.parents[row]
    return row >= target


def _replace(tree: Tree, memory: Memory, row: int, what: Said, place: Place) -> int:
    tree.seen += 1
    tree.offsets[row], tree.lengths[row] = place
    if tree.codes[row] != Kind.OTHER:
        tree.codes[row] = what.code
        if row > tree.leaf:
            _lead(tree, memory, row, what)
    return row


def _recorded_before(tree: Tree, memory: Memory, line: Fields, what: Said, above: int) -> bool:
    """Return whether a prompt is on the path already: queued and sent, or replayed."""
    digest, held = crc32(what.text.encode("utf-8", "replace")), as_dict(line.get("attachment"))
    stamp = string(held.get("timestamp") or line.get("timestamp"))
    source = string(held.get("source_uuid") if what.queued else line.get("uuid"))
    late = what.queued or line.get("promptSource") == "queued"  # its turn may have ended meanwhile
    new = Prompt(digest, stamp, what.queued, late, source, len(tree), memory.turns)
    for at, one in enumerate(memory.prompts):
        near = one.waited and new.turn - one.turn <= late
        near = near or bool(source and source == one.source)
        twice = one.queued != new.queued and near
        same = twice or (one.timestamp and one.timestamp == new.timestamp)
        if one.digest == digest and same and _reaches(tree, above, one.row):
            del memory.prompts[at]
            return True
    memory.prompts = [*memory.prompts, new][-_PROMPTS_KEPT:]
    return False

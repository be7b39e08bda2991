"""Where a line of Claude Code hangs in the tree, and whether it moves the leaf.

A walk from the newest line by `parentUuid` alone loses half a conversation (formats.md 2.4):
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

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgspec

from indexerd.agents.base import ROOT, Tree
from indexerd.agents.claude.human import (
    ANSWERS,
    FAILED_RESULT,
    OTHER,
    PROMPT,
    PROMPTED,
    RESULT,
    SUMMARY,
    TALK,
    Said,
)
from indexerd.agents.claude.lines import Line
from indexerd.agents.lines import mapping
from indexerd.events import KIND_MASK, TURN_MASK, Kind, Turn

HOOKS = frozenset(  # attachments in which hooks tell the model something
    {
        *("hook_additional_context", "hook_success", "hook_blocking_error"),
        *("hook_stopped_continuation", "async_hook_response"),
    }
)
FAR, NEAR = 2048, 64  # steps of one walk, and of one in a file that had more than
STEPS_MAX = 1_000_000  # of all walks together
PROMPTS_KEPT = 64
LOST_MAX = 10_000
KEPT_MAX = 1_000  # ids of kept messages that are looked at

_BOUNDARY = "compact_boundary"


class Prompt(msgspec.Struct, array_like=True):
    """A prompt that was counted, as far as a second record of it is recognised."""

    digest: int
    timestamp: str
    queued: bool  # recorded as typed while the agent worked
    waited: bool  # so, or sent later, after it had waited
    source: str  # its line's id, or the one under which it waited
    row: int
    turn: int


class Memory(msgspec.Struct, omit_defaults=True):
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
    steps: int = 0  # taken in the tree so far, to bound them
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


class Placing:
    """Puts lines into a tree."""

    def __init__(self, tree: Tree, memory: Memory) -> None:
        self._tree = tree
        self._memory = memory

    def put(self, line: Line, what: Said, offset: int, length: int) -> int:
        """Add a line, or let it take the place of an earlier copy. Returns its row."""
        tree, memory = self._tree, self._memory
        key = self._key(line)
        above = self._above(line, what)
        old = tree.index.get(key)
        if old is not None:
            if self._same(line, what, old, above):
                return self._replace(old, what, offset, length)
            what = Said(OTHER) if self._reaches(above, old) else what
            memory.again[line.uuid] = again = self._free(f"{line.uuid}~{tree.seen}")
            key = again
        elif what.code == PROMPT and self._recorded_before(line, what, above):
            what = Said(OTHER)
        if what.code == SUMMARY:
            offset, length = self._with_boundary(offset, length)
        row = self._add(key, above, what.code, offset, length)
        memory.tail = row
        if line.attachment is not None and line.attachment.type in HOOKS:
            memory.hook = row
        if line.subtype == _BOUNDARY and what.kind is Kind.SYSTEM:
            memory.boundary, memory.boundary_at = row, (offset, offset + length)
        if what.kind in TALK:
            self._lead(row, what)
        return row

    def put_aside(self, line: Line, offset: int, length: int) -> None:
        """Add a line of a sub-agent that stands in its parent's file: never on the path."""
        key = self._key(line)
        if key in self._tree.index:
            self._tree.skip()
            return
        named = line.parent_uuid
        above = self._tree.index.get(named, ROOT) if isinstance(named, str) else ROOT
        self._add(key, above, OTHER, offset, length)

    def end_turn(self) -> None:
        """The client says that the turn is over; old versions do not write why an answer ends."""
        tree = self._tree
        if tree.leaf >= 0 and tree.kind(tree.leaf) is Kind.ASSISTANT and not tree.turn:
            tree.recode(tree.leaf, ANSWERS[Turn.ENDED])

    def _add(self, key: str, above: int, packed: int, offset: int, length: int) -> int:
        tree, leaf = self._tree, self._tree.leaf
        row = tree.add(key, tree.ids[above] if above >= 0 else None, packed, offset, length)
        tree.leaf = leaf
        return row

    def _lead(self, row: int, what: Said) -> None:
        """A row of the conversation is the leaf now."""
        self._tree.leaf = row
        if _opens(what):
            self._memory.opener = row
        if what.kind is Kind.ASSISTANT and what.code & TURN_MASK:
            self._memory.turns += 1

    def _key(self, line: Line) -> str:
        """A line's id, or a made one, which holds across re-reads."""
        return line.uuid or self._free(f"L{self._tree.seen}")

    def _free(self, name: str) -> str:
        while name in self._tree.index:
            name += "~"
        return name

    # -- parents -------------------------------------------------------------------------

    def _above(self, line: Line, what: Said) -> int:
        """The row below which a line hangs, or ROOT."""
        leaf = self._tree.leaf
        if line.subtype == _BOUNDARY and what.kind is Kind.SYSTEM:
            return self._before_boundary(line)
        if not line.parent_uuid:
            if not self._memory.chained:
                return self._memory.tail
            return leaf if _follows(what) or line.parent_uuid is not None else ROOT
        self._memory.chained = True
        named = self._find(line.parent_uuid)
        if what.kind not in TALK or what.code == SUMMARY:
            return named
        return self._placed(named, what)

    def _placed(self, named: int, what: Said) -> int:
        """The row where a line of the conversation belongs that names this one."""
        leaf = self._tree.leaf
        place = self._anchor(named)
        if leaf < 0:
            return named
        if place == leaf:
            return self._end(what) if named == leaf else named
        if place == ROOT:
            return leaf if _follows(what) else named
        if not _follows(what) and place < self._memory.opener:
            self._memory.rewound = True
            return named  # the human went back
        return self._end(what) if self._reaches(leaf, place) else named

    def _end(self, what: Said) -> int:
        """Where the path ends: at the leaf, or with what hooks said after it."""
        leaf, hook = self._tree.leaf, self._memory.hook
        below = _follows(what) and hook > leaf and self._anchor(hook) == leaf
        return hook if below else leaf

    def _find(self, named: str) -> int:
        """The row that a named parent is now."""
        memory = self._memory
        row = self._tree.index.get(memory.again.get(named, named))
        if row is None:
            row = memory.lost.get(named, self._tree.leaf)
            if len(memory.lost) < LOST_MAX:
                memory.lost[named] = row
        return row

    def _before_boundary(self, line: Line) -> int:
        """What a compaction follows, or ROOT where that is in doubt.

        The message that it names may be one that is logged again below its summary, and not be
        there yet: then another of those kept stands for it.
        """
        held = mapping(line.compact_metadata)
        segment, messages = held.get("preservedSegment"), held.get("preservedMessages")
        keeps = isinstance(segment, dict) or isinstance(messages, dict)
        rewound, self._memory.rewound = self._memory.rewound, False
        if rewound and not keeps:
            return ROOT
        kept = messages.get("uuids") if isinstance(messages, dict) else None
        ids: list[Any] = [line.logical_parent_uuid]
        ids += reversed(kept[-KEPT_MAX:]) if isinstance(kept, list) else ()
        if isinstance(segment, dict):
            ids += [segment.get("tailUuid"), segment.get("headUuid")]
        for one in ids:
            row = self._tree.index.get(one) if isinstance(one, str) else None
            if row is not None:
                leaf = self._tree.leaf
                return row if self._anchor(row) == leaf or not self._reaches(leaf, row) else leaf
        return ROOT if keeps else self._tree.leaf

    # -- walks ---------------------------------------------------------------------------

    def _anchor(self, row: int) -> int:
        """The nearest row of the conversation, this one or above; a boundary counts as one."""
        parents, codes, boundary = self._tree.parents, self._tree.codes, self._memory.boundary
        for _ in self._steps():
            if row < 0 or row == boundary or codes[row] & KIND_MASK in TALK:
                break
            row = parents[row]
        return row

    def _reaches(self, row: int, target: int) -> bool:
        """Whether a row is this one or below it. One that is too far up counts as such."""
        parents = self._tree.parents
        for _ in self._steps():
            if row <= target:
                break
            row = parents[row]
        return row >= target

    def _steps(self) -> Iterator[int]:
        """The steps that a walk may take; all walks of a file share the longer ones."""
        memory = self._memory
        for step in range(FAR if memory.steps < STEPS_MAX else NEAR):
            memory.steps += 1
            yield step

    # -- lines that come again -----------------------------------------------------------

    def _same(self, line: Line, what: Said, old: int, above: int) -> bool:
        """Whether an id that comes again stands where it stood."""
        if not line.parent_uuid or above == self._tree.parent(old):
            return True
        return _follows(what) and old > self._memory.boundary

    def _replace(self, row: int, what: Said, offset: int, length: int) -> int:
        """The newest copy of a line is read."""
        tree = self._tree
        tree.skip()
        tree.offsets[row], tree.lengths[row] = offset, length
        if tree.codes[row] != OTHER:
            tree.recode(row, what.code)
            if what.kind in TALK and row > tree.leaf:
                self._lead(row, what)
        return row

    def _recorded_before(self, line: Line, what: Said, above: int) -> bool:
        """Whether a prompt is on the path already: queued and sent, or replayed."""
        memory = self._memory
        held = line.attachment
        new = Prompt(
            digest=crc32(what.text.encode("utf-8", "replace")),
            timestamp=(held.timestamp if held else "") or line.timestamp,
            queued=what.queued,
            waited=what.queued or line.prompt_source == "queued",
            source=held.source if held else line.uuid,
            row=len(self._tree),
            turn=memory.turns,
        )
        for at, one in enumerate(memory.prompts):
            if (
                one.digest == new.digest
                and _same_prompt(one, new)
                and self._reaches(above, one.row)
            ):
                del memory.prompts[at]
                return True
        memory.prompts = [*memory.prompts, new][-PROMPTS_KEPT:]
        return False

    def _with_boundary(self, offset: int, length: int) -> tuple[int, int]:
        """A summary is read with the line before it, which says what was kept."""
        start, end = self._memory.boundary_at
        if start < 0 or end + 1 != offset or not length:
            return offset, length
        return start, offset + length - start


def _follows(what: Said) -> bool:
    """Whether a line goes on with what was asked, wherever it says that it hangs."""
    return what.kind is Kind.ASSISTANT or what.code in (RESULT, FAILED_RESULT) or what.queued


def _opens(what: Said) -> bool:
    return what.code in (PROMPT, PROMPTED, SUMMARY) and not what.queued


def _same_prompt(one: Prompt, new: Prompt) -> bool:
    """Whether two prompts of the same words are one."""
    if one.timestamp and one.timestamp == new.timestamp:
        return True
    if one.queued == new.queued:
        return False
    if one.source and one.source == new.source:
        return True
    return one.waited and new.turn - one.turn <= (1 if new.waited else 0)

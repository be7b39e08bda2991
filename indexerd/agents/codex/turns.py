"""Follow Codex's turns: how they begin, how they end, and how a roll-back takes them back.

A turn's rows are marked with its id, which survives whatever codex does to its files. How a turn
ended is kept at its last answer; without one, at a row for the line that ends it: an empty answer
that does not count as a message. Where a file does not say where turns end, an answer ends one if
no call waits for its output.
"""

from __future__ import annotations

import re

import msgspec

from indexerd.agents.base import Tree
from indexerd.agents.codex.session_meta import name_of
from indexerd.agents.json_lines import Fields, number
from indexerd.events import MESSAGE, Kind, Turn, code

BY_TIME, BY_TURN = 1, 2  # how copied lines are recognised
_TIMED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7", re.IGNORECASE)  # a UUID of version 7
_TALKS = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL})
_ASKS = frozenset({Kind.USER, Kind.CUSTOM})  # a human, or another agent
_LEADS = frozenset({Kind.SETTING, Kind.SYSTEM, Kind.OTHER})  # what a turn begins with
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens")
Sums = tuple[int, int, int]  # tokens by _COUNTS


class Memory(msgspec.Struct):
    """Facts of one file; a file that continues another's history starts with new ones."""

    start: int = 0  # the first row of this file
    thread: str = ""  # the session whose file this is
    first_ms: int = 0  # the time of this file's first line
    copies: int = 0  # BY_TIME or BY_TURN while copied lines are read
    # tokens: codex goes on counting where a fork's history ends, or starts again
    total: Sums = (0, 0, 0)  # the newest sum
    spent: Sums = (0, 0, 0)  # by this session itself
    # turns
    turn: str = ""  # id of the turn under way, where it has one
    open: bool = False  # a turn is under way
    ended: str = ""  # id of the newest turn that ended
    began: int = 0  # the first row of the turn under way, or after the last one
    failed: bool = False  # an error was reported in this turn
    tasks: bool = False  # the file says where turns begin and end
    pending: int = 0  # calls without an output
    said: int = -1  # row of the turn's newest answer
    answer: int = 0  # likeness of that answer
    # what a human said
    events: bool = False  # the file has events of it
    first: int | None = None  # likeness of the first thing that a human said
    aborted: bool = False  # a notice of an interruption came since the newest item
    since: int = 0  # the first row of the turn, or after an answer that ended one
    told: bool = False  # an event confirmed a message of this turn
    doubted: tuple[int, str] | None = None  # an item that no event confirmed: row, text
    asked: tuple[int, int] | None = None  # the newest item: row, likeness
    event: int | None = None  # likeness of an event whose item may still come


class TurnTracker:
    """A tree, and the line that is being added to it."""

    line: Fields
    place: tuple[int, int]  # of the line: offset and length

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.memory = tree.memory if isinstance(tree.memory, Memory) else Memory()

    def add(self, kind: int, own_id: object = None) -> int:
        """Add a row for the line; its id is the item's own, or made of the line's number."""
        tree, name = self.tree, name_of(own_id)
        if not name or name in tree.index:
            ordinal = self.line.get("ordinal")
            name = f"L{ordinal if type(ordinal) is int else tree.seen}"
            name = name if name not in tree.index else f"{name}.{len(tree)}"
        tree.leaf = row = tree.add_below(tree.leaf, name, kind, *self.place)
        if self.memory.turn:
            tree.marks[self.memory.turn] = row
        return row

    def begin(self, name: str) -> None:
        memory, header = self.memory, self.tree.header
        born, made = _made_ms(memory.thread), _made_ms(name)
        if header is not None and header.parent_id and born and made and made != born:
            memory.copies = BY_TURN if made < born else 0
        memory.turn, memory.open, memory.failed = name, True, False
        memory.began = memory.since = len(self.tree)
        memory.said, memory.told, memory.doubted = -1, False, None

    def started(self, name: str) -> None:
        if not name or name != self.memory.turn:
            self.begin(name)
        self.memory.tasks = True

    def under_way(self, name: str) -> None:
        """Begin the turn that a line names, unless it is under way or has ended."""
        if name and name not in (self.memory.turn, self.memory.ended):
            self.begin(name)

    def ended(self, name: str, *, failed: bool) -> None:
        """End a turn; it failed if an error was reported in it or it was interrupted."""
        memory, tree = self.memory, self.tree
        if name and (name == memory.ended or (memory.turn and name != memory.turn)):
            return
        memory.turn = memory.turn or name
        self.say_end(Turn.FAILED if failed or memory.failed else Turn.ENDED)
        ended = memory.turn
        if ended and tree.leaf >= memory.began:
            tree.marks[ended] = tree.leaf
        self.begin("")
        memory.open, memory.ended, memory.pending = False, ended, 0

    def say_end(self, turn: Turn) -> None:
        """Record how the turn ended at its last answer, or else at a row of the line's own."""
        tree = self.tree
        for row in tree.up(tree.leaf):
            if row < self.memory.began:
                return
            if tree.kind(row) is Kind.ASSISTANT:
                self.ends_with(row, turn)
                return
            if tree.kind(row) in _TALKS:
                self.add(code(Kind.ASSISTANT, turn=turn))
                return

    def ends_with(self, row: int, turn: Turn) -> None:
        message = self.tree.codes[row] & MESSAGE
        self.tree.codes[row] = code(Kind.ASSISTANT, turn=turn) | message

    def roll_back(self, count: int) -> None:
        """Take back the newest turns: move the leaf to before them, at most to the start."""
        tree, memory = self.tree, self.memory
        asked = [row for row in tree.up(tree.leaf) if tree.kind(row) in _ASKS] if count > 0 else []
        if not asked:
            return
        ends = set(tree.marks.values())
        above = tree.parent(asked[min(count, len(asked)) - 1])
        while above >= 0 and tree.kind(above) in _LEADS and above not in ends:
            above = tree.parent(above)
        tree.leaf = above
        self.begin("")
        memory.open, memory.pending, memory.asked, memory.event = False, 0, None, None

    def counted(self, total: Fields, last: Fields) -> None:
        """Add the tokens that codex counted, by its newest sum and that of the last call."""
        memory, sums, newest = self.memory, _sums(total), _sums(last)
        falls = any(new < old for new, old in zip(sums, memory.total, strict=True))
        # A sum that falls, or is all the last call's, started at nothing: `exec resume`.
        starts = falls or (last and sums == newest and sums != memory.total)
        old = (0, 0, 0) if starts else memory.total
        given, cached, made = (memory.spent[at] + sums[at] - old[at] for at in range(3))
        memory.total, memory.spent = sums, (given, cached, made)
        self.tree.tokens = max(0, given - cached), made, cached, 0


def _sums(counts: Fields) -> Sums:
    given, cached, made = (number(counts.get(name)) for name in _COUNTS)
    return given, cached, made


def _made_ms(name: str) -> int:
    found = _TIMED.match(name)
    return int(found[1] + found[2], 16) if found else 0

"""The scan of a Codex file: its memory, whose lines they are, and the rows they get.

A codex file is a linear history, so a row hangs from the leaf. Its id is the item's own, else
`L` and the line's ordinal, else `L` and the number of objects before it that are no headers,
which is the same in a copy of the history. No two rows get one id.

**Copies.** Older forks, and sub-agents that were given their parent's context, open with a copy of
another thread's lines. What these tell belongs to the path, and what they did and cost is the
parent's. Ids of threads and turns tell when they were made: a turn that is older than the thread
was copied, and the first that is younger is its own. Where ids do not tell, the times of lines do:
a copy is written at once, and each of its lines bears that time, or the older one that it had. That
counts only where a file says that it holds a copy: it names what it was forked from, or its second
line is another thread's header. The migration to the newest dialect drops such headers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import IntEnum
from typing import Any

import msgspec

from indexerd.agents.base import ContextUse, Tree
from indexerd.agents.codex.lines import Counts, Item, Line, branch_of, header_of, id_in, name_of
from indexerd.agents.lines import count, mapping
from indexerd.events import Header
from indexerd.times import iso_ms

_ORDINAL_MAX = 1 << 32
_AT_ONCE_MS = 1000  # between the first line of a copy and its last
_TIMED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7", re.IGNORECASE)  # a UUID of version 7
_Sums = tuple[int, int, int]  # tokens given, of these from a cache, made


class Copies(IntEnum):
    """How it is known that what is read now was copied; NONE: it is the thread's own."""

    NONE = 0
    BY_TIME = 1
    BY_TURN = 2


class Memory(msgspec.Struct, omit_defaults=True):
    """What is remembered of one file; a file that goes on another's history begins anew."""

    start: int = 0  # the first row of this file
    thread: str = ""  # the session whose file this is
    first_ms: int = 0  # the time of this file's first line
    copies: Copies = Copies.NONE
    # tokens: codex goes on counting where a fork's history ends, or starts again
    total: _Sums = (0, 0, 0)  # the newest sum
    before: _Sums = (0, 0, 0)  # what others spent of it
    past: _Sums = (0, 0, 0)  # spent before it started again
    # turns
    turn: str = ""  # id of the turn under way, where it has one
    open: bool = False  # a turn is under way
    ended: str = ""  # id of the newest turn that ended
    began: int = 0  # the first row of the turn under way, or after the last one
    failed: bool = False  # an error was reported in this turn
    tasks: bool = False  # the file says where turns begin and end
    pending: int = 0  # calls without an output
    said: tuple[int, int] | None = None  # the turn's newest answer: row, likeness
    # what a human said
    events: bool = False  # the file says it in events, too
    since: int = 0  # the first row of the turn, or after an answer that ended one
    told: bool = False  # an event told of a message since then
    doubted: tuple[int, int, str] | None = None  # an item that none did: row, likeness, preview
    asked: tuple[int, int] | None = None  # the newest item: row, likeness
    event: int | None = None  # likeness of an event whose item may still come
    first: int | None = None  # likeness of the first of all
    aborted: bool = False  # a notice of an interruption came since

    def after(self, start: int, thread: str) -> Memory:
        """The memory of the file that goes on here; it may be of the same thread (a revert)."""
        made = Memory(start=start, began=start, since=start, thread=thread)
        made.total = made.before = self.total
        if self.thread == thread:
            made.before, made.past = self.before, self.past
        return made

    def spent(self, total: _Sums, newest: _Sums | None) -> _Sums:
        """What this thread spent, now that codex counts so much; `newest` is the last call's share.

        A count that falls, or is all the last call's, began at nothing: `exec resume` does that.
        """
        falls = any(new < old for new, old in zip(total, self.total, strict=True))
        if falls or (total == newest and total != self.total):
            self.past, self.before = self._own(), (0, 0, 0)
        self.total = total
        return self._own()

    def _own(self) -> _Sums:
        past, before, total = self.past, self.before, self.total
        given, cached, made = (past[at] + total[at] - before[at] for at in range(3))
        return given, cached, made


_encode = msgspec.msgpack.Encoder().encode
_recall = msgspec.msgpack.Decoder(Memory).decode


class Rows:
    """A tree, and the line that it takes in."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.memory = _recall(tree.memory) if tree.memory else Memory()
        self.line = Line()
        self.place = (0, 0)  # offset and length of the line

    def done(self) -> None:
        """Leave the memory with the tree."""
        self.tree.memory = _encode(self.memory)

    # -- whose file it is --------------------------------------------------------------------

    def meta(self, meta: Item) -> None:
        """Take in a header: the first is the file's own, others may bring news of it."""
        tree, header = self.tree, self.tree.header
        if header is None:
            self._identify(header_of(meta, self.line, tree.file), branch_of(meta))
            if meta.forked_from_id and not mapping(meta.history_base):
                self.memory.copies = Copies.BY_TIME
        elif meta.id == header.session_id:
            tree.header = replace(header, cwd=meta.cwd or header.cwd)
            tree.git_branch = branch_of(meta) or tree.git_branch
        else:
            if len(tree) == self.memory.start:
                self.memory.copies = Copies.BY_TIME
                if not header.parent_id:
                    # Before forks named their origin, only the copy of its header told of it.
                    tree.header = replace(header, parent_id=meta.id or None)
            return
        tree.provider = name_of(meta.model_provider) or tree.provider

    def known(self) -> bool:
        """Whether this is a session; the file's name says so where no header does."""
        if self.tree.header is None:
            thread = id_in(self.tree.file)
            self._identify(header_of(Item(id=thread), self.line, "") if thread else None, "")
        return self.tree.header is not None

    def _identify(self, header: Header | None, branch: str) -> None:
        tree = self.tree
        tree.foreign = header is None
        if header is None:
            return
        tree.header, tree.git_branch = header, branch
        if self.memory.thread != header.session_id:
            tree.name = None  # of the session whose history this one goes on from
            self._borrowed()
        self.memory = self.memory.after(len(tree), header.session_id)
        self.memory.first_ms = iso_ms(self.line.timestamp or "")

    def in_directory(self, cwd: str) -> None:
        """A line tells the working directory; it counts where the header does not."""
        header = self.tree.header
        if header is not None and not header.cwd and cwd:
            self.tree.header = replace(header, cwd=cwd)

    # -- what was copied ---------------------------------------------------------------------

    def comes(self) -> None:
        """A line comes: where times tell, it may be the first that was not copied."""
        at = iso_ms(self.line.timestamp or "")
        if self.memory.copies == Copies.BY_TIME and (
            not at or at > self.memory.first_ms + _AT_ONCE_MS
        ):
            self.memory.copies = Copies.NONE

    def turn_begins(self, turn: str) -> None:
        """A turn begins: where ids tell, this one is the parent's or the thread's own."""
        header = self.tree.header
        born, made = _made_ms(self.memory.thread), _made_ms(turn)
        if header is not None and header.parent_id and born and made and made != born:
            self.memory.copies = Copies.BY_TURN if made < born else Copies.NONE

    def disown(self) -> None:
        """All that was read so far was copied."""
        self.memory.before, self.memory.past = self.memory.total, (0, 0, 0)
        self._borrowed()

    def _borrowed(self) -> None:
        tree = self.tree
        tree.copied, tree.tokens = len(tree), None
        if tree.header is not None and tree.header.subagent:
            tree.first_user = ""  # it goes by what it was asked itself

    # -- tokens ------------------------------------------------------------------------------

    def spent(self, total: Counts, last: Counts | None) -> None:
        """Codex counts so many tokens by now, and so many for the last call."""
        newest = None if last is None else _sums(last)
        given, cached, made = self.memory.spent(_sums(total), newest)
        self.tree.tokens = max(0, given - cached), made, cached, 0

    def context(self, *, used: Any = None, window: Any = None) -> None:
        """Note how full the model's context is, and how large, as codex counted it.

        What is no number above zero says nothing, and what was known stays.
        """
        held, new, size = self.tree.context, count(used), count(window)
        if new or size:
            at = len(self.tree) - 1 if new else held.at
            self.tree.context = ContextUse(new or held.used, at, size or held.window)

    # -- its row -----------------------------------------------------------------------------

    def add(self, packed: int, own_id: str | None = None) -> int:
        """A row for the line."""
        tree, ordinal = self.tree, self.line.ordinal
        name = name_of(own_id)
        if not name or name in tree.index:
            number = ordinal if ordinal is not None and 0 <= ordinal < _ORDINAL_MAX else tree.seen
            name = f"L{number}"
            name = name if name not in tree.index else f"L{number}.{len(tree)}"
        row = tree.add(name, tree.ids[tree.leaf] if tree.leaf >= 0 else None, packed, *self.place)
        if self.memory.turn:
            tree.marks[self.memory.turn] = row
        return row

    def active(self) -> None:
        """The line is a message: the session was active then."""
        self.tree.activity_ms = max(self.tree.activity_ms, iso_ms(self.line.timestamp or ""))


def _sums(counts: Counts) -> _Sums:
    given, cached, made = counts.input_tokens, counts.cached_input_tokens, counts.output_tokens
    return count(given), count(cached), count(made)


def _made_ms(name: str) -> int:
    """When an id was made; 0 where it does not tell."""
    found = _TIMED.match(name)
    return int(found[1] + found[2], 16) if found else 0

"""Skim: every byte of a Claude Code session once, keeping only where things are.

One file is one session, and its id is the file's name; the session id in the lines is that of
the session which wrote them first, or a sub-agent's parent's. Nothing a file holds raises: a
line that is no JSON object is counted and passed over. A file becomes a session at its first
line of a conversation; bookkeeping alone (titles, queue, snapshots) does not make one.

The lines of a sub-agent stand in a file of its own, or (until 2.0) among its parent's: there
they are rows, but never on the path, and no message of theirs counts.
"""

from __future__ import annotations

from indexerd.agents.claude import origin, titles
from indexerd.agents.claude.ends import line_of
from indexerd.agents.claude.kinds import OTHER, PROMPT, PROMPTED, TALK, Said, said
from indexerd.agents.claude.lines import Line, decode
from indexerd.agents.claude.memory import Memory, recall, store
from indexerd.agents.claude.plans import plan_of
from indexerd.agents.claude.read import preview
from indexerd.agents.claude.tree import Tree
from indexerd.agents.lines import past_hole, without_hole
from indexerd.events import Kind
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.state import NOWHERE, SessionState
from indexerd.sources.lines import Oversize
from indexerd.times import iso_ms

BRANCH_MAX = 256  # characters of a branch's name

_BOM = b"\xef\xbb\xbf"
_TALKS = frozenset({"user", "assistant"})
_COMMANDS = frozenset({"local_command", ""})


def skim(state: SessionState, data: bytes, base: int) -> None:
    """Take in whole lines that stand at file offset `base`."""
    taking = _Taking(state)
    find, start, end, holed = data.find, 0, len(data), b"\0" in data
    while start < end:
        stop = find(b"\n", start)
        if stop < 0:
            stop = end
        if holed:
            begin = past_hole(data, start, stop)
            state.bad_lines += begin > start
            start = begin
        taking.take(data[start:stop], base + start)
        start = stop + 1
    taking.done()


def skim_oversize(state: SessionState, line: Oversize) -> None:
    """Take in a line too long to hold, from its two ends: the tree is whole (F8)."""
    taking = _Taking(state)
    taking.take_ends(without_hole(line))
    taking.done()


class _Taking:
    """Takes lines into a state, with the memory of those before."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._memory: Memory = recall(state.notes)
        self._tree = Tree(state, self._memory)

    def done(self) -> None:
        """Leave the memory with the state."""
        store(self._state.notes, self._memory)

    def take(self, data: bytes, offset: int) -> None:
        """One line, without its newline."""
        if not offset and data.startswith(_BOM):
            data, offset = data[len(_BOM) :], len(_BOM)
        if not data or data.isspace():
            return
        line = decode(data)
        if line is None:
            self._state.bad_lines += 1
        else:
            self._line(line, offset, len(data))

    def take_ends(self, ends: Oversize) -> None:
        """A line of which only the two ends are known."""
        self._state.oversized += not ends.readable
        self._line(line_of(ends), ends.offset, ends.readable)

    def _line(self, line: Line, offset: int, length: int) -> None:
        state, memory = self._state, self._memory
        at = iso_ms(line.timestamp) if line.timestamp else 0
        if not _is_node(line) or not origin.known(state, memory, line, at):
            origin.before(state, memory, line, at)
            titles.note(state, memory, line)
            state.skip()
            return
        if line.type in _TALKS:
            self._whose(line)
        if line.git_branch and line.git_branch != "HEAD":
            state.git_branch = scrub(line.git_branch[:BRANCH_MAX])
        if line.is_sidechain and not memory.child:
            self._tree.put_aside(line, offset, length)
            return
        what = said(line, child=memory.child)
        row = self._tree.put(line, what, offset, length)
        self._noticed(line, what, row, at)

    def _noticed(self, line: Line, what: Said, row: int, at: int) -> None:
        """What else a line of the main conversation says."""
        state, memory = self._state, self._memory
        titles.met(state, memory, line.uuid)
        if what.kind in (Kind.USER, Kind.ASSISTANT):
            state.activity_ms = max(state.activity_ms, at)
        if what.code == PROMPT == state.codes[row] and not state.first_user:
            state.first_user = preview(what.text)
        if what.code == PROMPTED and not memory.child and not state.first_user:
            self._opened(line)
        if line.subtype == "turn_duration":
            self._tree.end_turn()
        elif what.kind in (Kind.CUSTOM, Kind.SYSTEM) and line.subtype in _COMMANDS:
            titles.commanded(state, memory, line)

    def _opened(self, line: Line) -> None:
        """What a plan says of the session that begins with it, before a human says anything."""
        plan = plan_of(line)
        if plan is not None:
            titles.planned(self._state, self._memory, plan.heading)
            origin.came_from(self._state, plan.parent)

    def _whose(self, line: Line) -> None:
        """Whether the file is a sub-agent's, as far as its conversation tells."""
        state, memory = self._state, self._memory
        if not line.is_sidechain and not memory.main and not memory.named_child:
            memory.main = True
            if memory.child:  # it seemed to be one
                for row in range(len(state)):
                    if state.kind(row) in TALK:
                        state.recode(row, OTHER)
                state.leaf = memory.tail = memory.opener = NOWHERE
                memory.child = False
                origin.own(state)
        elif line.is_sidechain and not memory.main and not memory.child:
            memory.child = True
            origin.child(state, line)
        if line.uuid and not memory.child and not line.is_sidechain:
            state.notes.setdefault("first", line.uuid[: origin.ID_MAX])


def _is_node(line: Line) -> bool:
    """Whether a line is an entry; old versions gave some of them no id."""
    if line.uuid or (line.type in _TALKS and line.message is not None):
        return True
    return line.attachment is not None and line.attachment.type == "queued_command"

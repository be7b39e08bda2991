"""One line on its way into the state: who it belongs to, its id, its row.

A codex file is a linear history, so a row hangs from the leaf. Its id is the item's own, else
`L` and the line's ordinal, else `L` and the number of objects before it that are no headers,
which is the same in a copy of the history. No two rows get one id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from indexerd.agents.codex.copies import Copies, borrowed
from indexerd.agents.codex.memory import Memory
from indexerd.agents.codex.origin import Meta, branch_of, copies, header_of, id_in
from indexerd.agents.codex.shape import Line, string
from indexerd.events import Header
from indexerd.privacy.sanitize import scrub
from indexerd.sessions.context import PROVIDER
from indexerd.sessions.state import SessionState
from indexerd.times import iso_ms

NAME_MAX = 128  # characters of an id
ORDINAL_MAX = 1 << 32
CONTEXT_NOTE = "context"  # {"used", "window", "at"}: tokens, tokens, a row; any may be absent
TOKENS_MAX = 1 << 53


class Taking:
    """A state, and the line it takes in."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.memory = Memory.of(state)
        self.line = Line()
        self._offset = self._length = 0

    def at(self, line: Line, offset: int, length: int) -> None:
        """Go to the next line."""
        self.line, self._offset, self._length = line, offset, length

    # -- whose file it is --------------------------------------------------------------------

    def meta(self, meta: Meta) -> None:
        """Take in a header: the first is the file's own, others may bring news of it."""
        state, header = self.state, self.state.header
        if header is None:
            self._identify(header_of(meta, self.line, state.file), branch_of(meta))
            self._provided()
            if copies(meta):
                self.memory.copies = Copies.BY_TIME
        elif string(meta.id) == header.session_id:
            state.header = replace(header, cwd=scrub(string(meta.cwd)) or header.cwd)
            state.git_branch = branch_of(meta) or state.git_branch
            self._provided()
        elif len(state) == self.memory.start:
            self.memory.copies = Copies.BY_TIME
            if not header.parent_id:
                # Before forks named their origin, only the copy of its header told of it.
                state.header = replace(header, parent_id=scrub(string(meta.id)) or None)

    def known(self) -> bool:
        """Whether this is a session; the file's name says so where no header does."""
        state = self.state
        if state.header is None:
            thread = id_in(state.file)
            held = header_of(Meta(id=thread), self.line, "") if thread else None
            self._identify(held, None)
        return state.header is not None

    def _identify(self, header: Header | None, branch: str | None) -> None:
        state = self.state
        state.foreign = header is None
        if header is None:
            return
        state.header, state.git_branch = header, branch or ""
        if self.memory.thread != header.session_id:
            state.name = None  # of the session whose history this one goes on from
            borrowed(state)
        self.memory = self.memory.after(len(state), header.session_id)
        self.memory.first_ms = iso_ms(string(self.line.timestamp))

    def _provided(self) -> None:
        """Note whose models the session uses; only a header tells."""
        provider = name_of(self.line.body.model_provider)
        if provider:
            self.state.notes[PROVIDER] = provider

    def context(self, *, used: Any = None, window: Any = None) -> None:
        """Note how full the model's context is, and how large: tokens, as codex counted them.

        What is no number above zero says nothing, and what was known stays.
        """
        state = self.state
        known = dict(state.notes.get(CONTEXT_NOTE) or {})
        if type(used) is int and 0 < used < TOKENS_MAX:
            known |= {"used": used, "at": len(state) - 1}
        if type(window) is int and 0 < window < TOKENS_MAX:
            known["window"] = window
        if known:
            state.notes[CONTEXT_NOTE] = known

    def in_directory(self, cwd: str) -> None:
        """A line tells the working directory; it counts where the header does not."""
        header = self.state.header
        if header is not None and not header.cwd and cwd:
            self.state.header = replace(header, cwd=scrub(cwd))

    # -- its row -----------------------------------------------------------------------------

    def add(self, packed: int, own_id: Any = None) -> int:
        """A row for the line."""
        state = self.state
        above = state.ids[state.leaf] if state.leaf >= 0 else None
        row = state.add(self._id(own_id), above, packed, self._offset, self._length)
        if self.memory.turn:
            state.mark(self.memory.turn.encode(), row)
        return row

    def _id(self, own: Any) -> bytes:
        state, ordinal = self.state, self.line.ordinal
        name = name_of(own).encode()
        if name and name not in state.index:
            return name
        number = state.seen
        if type(ordinal) is int and 0 <= ordinal < ORDINAL_MAX:
            number = ordinal
        name = b"L%d" % number
        return name if name not in state.index else b"L%d.%d" % (number, len(state))

    def active(self) -> None:
        """The line is a message: the session was active then."""
        at = iso_ms(string(self.line.timestamp))
        self.state.activity_ms = max(self.state.activity_ms, at)


def name_of(held: Any) -> str:
    """An id as it may be kept; nothing where it is none."""
    return scrub(held)[:NAME_MAX] if isinstance(held, str) else ""

"""What skimming a codex file must remember from one call to the next."""

from __future__ import annotations

import msgspec

from indexerd.sessions.state import SessionState

_KEY = "skim"


class Memory(msgspec.Struct):
    """Of one file; a file that goes on another's history begins with a new one."""

    start: int = 0  # the first row of this file
    thread: str = ""  # the session whose file this is
    first_ms: int = 0  # the time of this file's first line
    copies: int = 0  # what is read now was copied from another thread: copies.py
    # tokens, by name: codex goes on counting where a fork's history ends, or starts again
    total: dict[str, int] = msgspec.field(default_factory=dict)  # the newest sum
    before: dict[str, int] = msgspec.field(default_factory=dict)  # what others spent of it
    past: dict[str, int] = msgspec.field(default_factory=dict)  # spent before it started again
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
    heard: bool = False  # an event told of a message since then
    unheard: tuple[int, int, str] | None = None  # an item that none did: row, likeness, preview
    asked: tuple[int, int] | None = None  # the newest item: row, likeness
    told: int | None = None  # likeness of an event whose item may still come
    first: int | None = None  # likeness of the first of all
    aborted: bool = False  # a notice of an interruption came since

    def after(self, start: int, thread: str) -> Memory:
        """The memory of the file that goes on here; it may be of the same thread (a revert)."""
        made = Memory(start=start, began=start, since=start, thread=thread)
        made.total = made.before = self.total
        if self.thread == thread:
            made.before, made.past = self.before, self.past
        return made

    def spent(self, total: dict[str, int], newest: dict[str, int] | None) -> dict[str, int]:
        """What this thread spent, now that codex counts so much; `newest` is the last call's share.

        A count that falls, or is all the last call's, began at nothing: `exec resume` does that.
        """
        falls = any(total[name] < count for name, count in self.total.items())
        if falls or (total == newest and total != self.total):
            self.past, self.before = self._own(), {}
        self.total = total
        return self._own()

    def _own(self) -> dict[str, int]:
        past, before = self.past, self.before
        return {
            name: past.get(name, 0) + count - before.get(name, 0)
            for name, count in self.total.items()
        }

    @classmethod
    def of(cls, state: SessionState) -> Memory:
        """The memory kept in a state. It is noted at once, so that notes keep their order."""
        return msgspec.convert(state.notes.setdefault(_KEY, {}), cls)

    def keep(self, state: SessionState) -> None:
        """Note it in the state."""
        state.notes[_KEY] = msgspec.to_builtins(self)

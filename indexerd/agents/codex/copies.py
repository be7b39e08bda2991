"""Where a thread's own lines begin, in a file that opens with a copy of another thread's.

Older forks, and sub-agents that were given their parent's context, copy its lines. What these tell
belongs to the path, and what they did and cost is the parent's.

Ids of threads and turns tell when they were made: a turn that is older than the thread was copied,
and the first that is younger is its own. Where ids do not tell, the times of lines do: a copy is
written at once, and each of its lines bears that time, or the older one that it had. That counts
only where a file says that it holds a copy: it names what it was forked from, or its second line
is another thread's header. The migration to the newest dialect drops such headers.
"""

from __future__ import annotations

import re
from enum import IntEnum

from indexerd.agents.codex.memory import Memory
from indexerd.sessions.state import SessionState
from indexerd.times import iso_ms

AT_ONCE_MS = 1000  # between the first line of a copy and its last
_TIMED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7", re.IGNORECASE)  # a UUID of version 7


class Copies(IntEnum):
    """How it is known that what is read now was copied; NONE: it is the thread's own."""

    NONE = 0
    BY_TIME = 1
    BY_TURN = 2


def line_comes(memory: Memory, timestamp: str) -> None:
    """A line of this time comes: where times tell, it may be the first that was not copied."""
    if memory.copies == Copies.BY_TIME:
        at = iso_ms(timestamp)
        if not at or at > memory.first_ms + AT_ONCE_MS:
            memory.copies = Copies.NONE


def turn_begins(state: SessionState, memory: Memory, turn: str) -> None:
    """A turn begins: where ids tell, this one is the parent's or the thread's own."""
    born, made = _made_ms(memory.thread), _made_ms(turn)
    if state.header is None or not state.header.parent_id or not born or not made or made == born:
        return
    memory.copies = Copies.BY_TURN if made < born else Copies.NONE


def disown(state: SessionState, memory: Memory) -> None:
    """All that was read so far was copied, if the line that was read now was."""
    if memory.copies:
        memory.before, memory.past = memory.total, {}
        borrowed(state)


def borrowed(state: SessionState) -> None:
    """All rows so far are another session's."""
    state.copied = len(state)
    state.notes.pop("tokens", None)
    if state.header is not None and state.header.subagent:
        state.first_user = ""  # it goes by what it was asked itself


def _made_ms(name: str) -> int:
    """When an id was made; 0 where it does not tell."""
    found = _TIMED.match(name)
    return int(found[1] + found[2], 16) if found else 0

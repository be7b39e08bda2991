"""A codex line too long to hold, taken in from its beginning: its text can be read later.

What makes a line long stands behind what tells what it is: images behind a prompt, an output
behind its call's id, instructions behind the session's. So the beginning is made whole, by
closing what is open where it was cut, and taken in as if there were no more.
"""

from __future__ import annotations

from indexerd.agents.codex.rows import Taking
from indexerd.agents.codex.skim import take
from indexerd.agents.lines import mended, without_hole
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Oversize

LOOKED_AT = 32 * 1024  # bytes of the line's beginning


def skim_oversize(state: SessionState, line: Oversize) -> None:
    """Take in a line from its two ends (F8). It has no length where nobody may read it."""
    line = without_hole(line)
    state.oversized += not line.readable
    taking = Taking(state)
    take(taking, mended(line.head[:LOOKED_AT]), line.offset, line.readable)
    taking.memory.keep(state)

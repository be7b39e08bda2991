"""pi's files, read whole or in pieces, and what one state has that another has too."""

from __future__ import annotations

import itertools

from indexerd.agents.base import Oversize
from indexerd.agents.json_lines import scan_oversize
from indexerd.agents.pi import ADAPTER, scan
from indexerd.sessions.state import SessionState
from indexerd.sources.line_buffer import LineBuffer


def state_of(data: bytes, cuts: list[int] | None = None) -> SessionState:
    """Feed a file's bytes in pieces, as a tailer would."""
    state, buffer = SessionState(), LineBuffer()
    borders = [0, *sorted(cuts or []), len(data)]
    for start, stop in itertools.pairwise(borders):
        for found in buffer.feed(data[start:stop]):
            if isinstance(found, Oversize):
                scan_oversize(ADAPTER, state, found)
            else:
                scan(state, found.data, found.offset)
    return state

"""Feed a file of an agent to its adapter, whole or in pieces."""

import itertools
from collections.abc import Iterable

from indexerd.agents import ADAPTERS
from indexerd.agents.base import Oversize
from indexerd.agents.json_lines import scan_oversize
from indexerd.sessions.state import SessionState
from indexerd.sources.tail import LineBuffer


def fed(
    agent: str,
    data: bytes,
    file: str = "",
    cuts: Iterable[int] = (),
    state: SessionState | None = None,
) -> SessionState:
    state, buffer = state or SessionState(file), LineBuffer()
    for start, stop in itertools.pairwise([0, *sorted(cuts), len(data)]):
        for found in buffer.feed(data[start:stop]):
            if isinstance(found, Oversize):
                scan_oversize(ADAPTERS[agent], state, found)
            else:
                ADAPTERS[agent].scan(state, found.data, found.offset)
    return state

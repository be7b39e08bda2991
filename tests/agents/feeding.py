"""Feed a file of an agent to its adapter."""

from indexerd.agents import ADAPTERS
from indexerd.entries import Entry, Kind
from indexerd.sessions.state import SessionState


def fed(agent: str, data: bytes, file: str = "") -> SessionState:
    state = SessionState(file)
    ADAPTERS[agent].scan(state, data, 0)
    return state


def entry_at(agent: str, state: SessionState, data: bytes, row: int) -> Entry:
    start, end = state.offsets[row], state.offsets[row] + state.lengths[row]
    return ADAPTERS[agent].read(data[start:end], state.ids[row])


def on_path(agent: str, data: bytes, file: str, *kinds: Kind) -> list[Entry]:
    """The entries on the path of a file, or those of some kinds."""
    state = fed(agent, data, file)
    rows = (row for row in state.path() if not kinds or state.kind(row) in kinds)
    return [entry_at(agent, state, data, row) for row in rows]

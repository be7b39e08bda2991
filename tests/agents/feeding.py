"""Feed a file of an agent to its adapter."""

from indexerd.agents import ADAPTERS
from indexerd.sessions.state import SessionState


def fed(agent: str, data: bytes, file: str = "") -> SessionState:
    state = SessionState(file)
    ADAPTERS[agent].scan(state, data, 0)
    return state

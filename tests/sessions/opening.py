"""Open a session whose lines are in memory."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from indexerd.sessions.info import SessionInfo, info_of
from indexerd.sessions.state import SessionState
from indexerd.sources.session_reader import OpenSession
from tests.sessions.tree_sessions import state_of


class Lines:
    """The lines of a session, read from memory instead of a file."""

    def __init__(self, state: SessionState, data: bytes) -> None:
        self._state, self._data = state, data

    def row(self, row: int) -> bytes:
        start = self._state.offsets[row]
        return self._data[start : start + self._state.lengths[row]]


def opened(
    data: bytes,
    path: str = "/s.jsonl",
    agent: str = "pi",
    *,
    home: Path | None = None,
) -> OpenSession:
    state = state_of(data)
    info = info_of(state, agent=agent, path=path, mtime_ms=0, since=None)
    assert isinstance(info, SessionInfo)
    lines: Any = nullcontext(Lines(state, data))
    return OpenSession(info, state.snapshot(), dict(state.labels), lines, home)

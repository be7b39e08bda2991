"""The lines of a session, read from memory instead of a file."""

from __future__ import annotations

from indexerd.sessions.state import SessionState


class Lines:
    """The lines of a session, read from memory."""

    def __init__(self, state: SessionState, data: bytes) -> None:
        self._state, self._data = state, data

    def row(self, row: int) -> bytes:
        start = self._state.offsets[row]
        return self._data[start : start + self._state.lengths[row]]

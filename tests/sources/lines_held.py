"""A session's lines, as a reader is handed them, out of memory."""

from __future__ import annotations

from indexerd.sessions.state import SessionState


class Lines:
    """A session's lines, out of memory."""

    def __init__(self, state: SessionState, data: bytes) -> None:
        self._state, self._data = state, data

    def row(self, row: int) -> bytes:
        start = self._state.offsets[row]
        return self._data[start : start + self._state.lengths[row]]

    brief = row  # none here is too long to be held

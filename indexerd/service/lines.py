"""A session's lines, by row, wherever they stand.

What is needed is the session's tree and nothing of the daemon: given a tree of its own, any
thread may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from indexerd.core.session import SessionState
from indexerd.io.source import Lines
from indexerd.io.sources import source_of


class SessionLines:
    """Open files of one session."""

    def __init__(
        self, agent: str, state: SessionState, where: Callable[[str], str], stack: ExitStack
    ) -> None:
        self._agent, self._state, self._where, self._stack = agent, state, where, stack
        self._open: dict[str, Lines] = {}

    def row(self, row: int) -> bytes:
        """The line of a row; nothing where it was too long to keep its place."""
        state = self._state
        if not state.lengths[row]:
            return b""
        file = state.file_of(row)
        lines = self._open.get(file)
        if lines is None:
            place = file if file == state.file else self._where(file)
            opened = source_of(self._agent, place).lines(place)
            lines = self._open[file] = self._stack.enter_context(opened)
        return lines.at(state.offsets[row], state.lengths[row])


@contextmanager
def session_lines(
    agent: str, state: SessionState, where: Callable[[str], str] = lambda path: path
) -> Iterator[SessionLines]:
    """Open a session for reading single lines. `where` knows files that were moved since.

    SessionUnreadableError, here or when a line is asked for, when a file of it is gone.
    """
    with ExitStack() as stack:
        yield SessionLines(agent, state, where, stack)

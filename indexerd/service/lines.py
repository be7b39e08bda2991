"""A session's lines, by row, wherever they stand.

What is needed is the session's tree and nothing of the daemon: given a tree of its own, any
thread may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from indexerd.core.session import SessionState
from indexerd.errors import SessionUnreadableError
from indexerd.io.source import Lines
from indexerd.io.sources import source_of


class SessionLines:
    """Open files of one session."""

    def __init__(
        self, agent: str, state: SessionState, where: Callable[[str], str], stack: ExitStack
    ) -> None:
        self._agent, self._state, self._where, self._stack = agent, state, where, stack
        self._open: dict[str, Lines] = {}
        self._lost: set[str] = set()  # files of which no line can be had

    def row(self, row: int) -> bytes:
        """The line of a row; nothing where it was too long to keep its place.

        Nothing as well where it stood in another file, and is not there any more: what a session
        borrowed may go, and the session's own lines are read all the same.
        """
        state = self._state
        offset, length = state.offsets[row], state.lengths[row]
        if not length:
            return b""
        file = state.file_of(row)
        if file == state.file:
            return self._lines(file, file).at(offset, length)
        if file in self._lost:
            return b""
        try:
            line = self._lines(file, self._where(file)).at(offset, length)
        except SessionUnreadableError:
            self._lost.add(file)
            return b""
        return line if len(line) == length else b""

    def _lines(self, file: str, place: str) -> Lines:
        lines = self._open.get(file)
        if lines is None:
            opened = source_of(self._agent, place).lines(place)
            lines = self._open[file] = self._stack.enter_context(opened)
        return lines


@contextmanager
def session_lines(
    agent: str, state: SessionState, where: Callable[[str], str] = lambda path: path
) -> Iterator[SessionLines]:
    """Open a session for reading single lines. `where` knows files that were moved since.

    SessionUnreadableError, when a line is asked for, when the session's own file is gone.
    """
    with ExitStack() as stack:
        yield SessionLines(agent, state, where, stack)

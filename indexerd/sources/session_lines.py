"""A session's lines, by row, wherever they stand.

What is needed is the session's tree and nothing of the daemon: given a tree of its own, any
thread may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from indexerd.agents.base import READ_MAX
from indexerd.agents.lines import close_truncated_json, parse
from indexerd.errors import SessionUnreadableError
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import LINE_MAX
from indexerd.sources.source import Lines, source_of

BRIEF = 1024 * 1024  # bytes that are kept of a line too long to be held
PICTURE_MAX = 16 * BRIEF  # bytes of such a line that are looked through for pictures
# A string of 64 KiB without a space, a quote or an escape: base64, whose beginning will do.
_PICTURE = re.compile(rb'"([^"\\\s]{64})[^"\\\s]{65536,}+"')


class SessionLines:
    """Open files of one session."""

    def __init__(
        self, agent: str, state: SessionState, where: Callable[[str], str], stack: ExitStack
    ) -> None:
        self._agent, self._state, self._where, self._stack = agent, state, where, stack
        self._open: dict[str, Lines] = {}
        self._lost: set[str] = set()  # files of which no line can be had

    def row(self, row: int) -> bytes:
        """The line of a row; nothing where it is too long to be read.

        Nothing as well where it stood in another file, and is not there any more: what a session
        borrowed may go, and the session's own lines are read all the same. Nor where a line was
        taken in by its two ends, and is no JSON between them: no reading anew can mend that.
        """
        line = self._line(row, READ_MAX)
        if len(line) > LINE_MAX and not _is_object(line):
            return b""
        return line

    def brief(self, row: int) -> bytes:
        """The same, made short: of a line too long to be held, its beginning, without pictures.

        For what reads lines that nobody asked for (F8). It is JSON, or nothing.
        """
        if self._state.lengths[row] <= LINE_MAX:
            return self.row(row)
        line = _PICTURE.sub(rb'"\1"', self._line(row, PICTURE_MAX))
        line = close_truncated_json(line[:BRIEF])
        return line if _is_object(line) else b""

    def _line(self, row: int, most: int) -> bytes:
        state = self._state
        offset, length = state.offsets[row], min(state.lengths[row], most)
        if length <= 0:
            return b""
        file = state.file_of(row)
        if file == state.file:
            return self._at(file, file, offset, length)
        if file in self._lost:
            return b""
        try:
            line = self._at(file, self._where(file), offset, length)
        except SessionUnreadableError:
            self._lost.add(file)
            return b""
        return line if len(line) == length else b""

    def _at(self, file: str, place: str, offset: int, length: int) -> bytes:
        try:
            return self._lines(file, place).at(offset, length)
        except OSError as bad:
            raise SessionUnreadableError(f"cannot read: {bad.strerror}") from None

    def _lines(self, file: str, place: str) -> Lines:
        lines = self._open.get(file)
        if lines is None:
            opened = source_of(self._agent, place).lines(place)
            lines = self._open[file] = self._stack.enter_context(opened)
        return lines


def _is_object(data: bytes) -> bool:
    """Whether a row's line is a JSON object; before it another one may stand, read with it."""
    try:
        return isinstance(parse(data[data.rfind(b"\n") + 1 :]), dict)
    except ValueError:
        return False


@contextmanager
def session_lines(
    agent: str, state: SessionState, where: Callable[[str], str] = lambda path: path
) -> Iterator[SessionLines]:
    """Open a session for reading single lines. `where` knows files that were moved since.

    SessionUnreadableError, when a line is asked for, when the session's own file is gone, or its
    disk fails.
    """
    with ExitStack() as stack:
        yield SessionLines(agent, state, where, stack)

"""Read one session for an answer: opened by the thread that owns its state, read by another.

However large the session is, neither the event loop nor the reader of changed files waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from indexerd.agents import ADAPTERS
from indexerd.entries import MESSAGE, Entry, Kind
from indexerd.errors import FileGoneError, NotFoundError, SessionUnreadableError
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.clipped import Keep, clipped
from indexerd.sessions.context import ReadRow
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import ID_LEAST, SessionState
from indexerd.sessions.tree_answers import SessionView
from indexerd.sources.roots import SessionRoot
from indexerd.sources.source import source_of
from indexerd.sources.tail import Lines

AT_ONCE = 4  # sessions read at the same time
ID_SHOWN = 128  # characters of an entry's id in an error

_T = TypeVar("_T")


class SessionLines(ExitStack):
    """A session's lines by row, from all files of its history; open until the stack is left.

    A line of another file is empty if that file is gone; if the session's own file is gone or its
    disk fails, reading a line raises SessionUnreadableError.
    """

    def __init__(
        self, agent: str, state: SessionState, where: Callable[[str], str] = lambda path: path
    ) -> None:
        """Create it; `where(path)` returns the present place of a file that may have been moved."""
        super().__init__()
        self._agent, self._state, self._where = agent, state, where
        self._open: dict[str, Lines] = {}

    def row(self, row: int) -> bytes:
        """Read the line of a row; empty if it is too long to be read."""
        state = self._state
        file, length = state.file_of(row), state.lengths[row]
        if not length:
            return b""
        try:
            if file not in self._open:
                place = file if file == state.file else self._where(file)
                self._open[file] = self.enter_context(source_of(self._agent, place).lines(place))
            line = self._open[file](state.offsets[row], length)
        except SessionUnreadableError:
            if file == state.file:
                raise
            self._open[file] = lambda _offset, _length: b""
            return b""
        if len(line) < length and file != state.file:
            return b""
        return line


class SessionFiles(Protocol):
    """What lower layers use of the daemon's `Files` (daemon/files.py)."""

    def info(self, session_id: str) -> SessionInfo | None: ...
    def state(self, session_id: str) -> SessionState | None: ...
    def lines(self, session_id: str) -> AbstractContextManager[SessionLines]: ...
    def root_of(self, path: str) -> SessionRoot | None: ...
    def hides(self, session_id: str, path: str = "", cwd: str = "") -> bool: ...
    def drop_tree(self, session_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenSession(SessionView):
    """A session with its lines."""

    lines: AbstractContextManager[SessionLines]  # entered by the thread that reads
    home: Path | None = None  # the directory of its meta file and sidecars

    @contextmanager
    def reading(self, keep: Keep | None = None) -> Iterator[ReadRow]:
        """Yield a function that reads rows in full; `keep`: how much of each."""
        with self.lines as lines:
            yield partial(_read, self, lines, keep)


def _read(session: OpenSession, lines: SessionLines, keep: Keep | None, row: int) -> Entry:
    """Read a row's entry; its kind is the state's, which knows the later lines."""
    state, line = session.state, lines.row(row)
    kind = state.kind(row)
    if line:
        try:
            entry = ADAPTERS[session.info.agent].read(line, state.ids[row])
        except ValueError:
            message = "the session file changed while it was read"
            raise SessionUnreadableError(message) from None
    else:  # too long to be read, or gone
        shown = "message" if state.codes[row] & MESSAGE else ""
        entry = Entry(id=state.ids[row], kind=kind, type=shown, role=None, timestamp="")
    if entry.kind not in (kind, Kind.OTHER):
        by_program = entry.kind is Kind.USER and kind is Kind.CUSTOM  # in the user's role
        sent_as = "user" if by_program else entry.sent_as
        unseen = entry.unseen or kind is Kind.OTHER
        entry = replace(entry, kind=kind, sent_as=sent_as, unseen=unseen)
    return entry if keep is None else clipped(entry, keep)


def row_of(state: SessionState, entry_id: str) -> int:
    """Return the row of the entry that an id, or the beginning of one, means."""
    name = full_id(state, entry_id)
    return state.index[name] if name in state.index else state.marks[name]


def full_id(state: SessionState, entry_id: str) -> str:
    """Complete the beginning or end of an entry's id.

    NotFoundError, which names it, if it means no entry or several.
    """
    if state.row(entry_id) is not None:
        return entry_id
    long = len(entry_id) >= ID_LEAST
    parts = (key for key in state.index if key.startswith(entry_id) or key.endswith(entry_id))
    found = [*parts] if long else []
    if len(found) == 1:
        return found[0]
    shown = clean_line(entry_id[:ID_SHOWN], ID_SHOWN)
    why = f"{len(found)} entries begin or end with {shown}" if found else f"no entry {shown}"
    hint = "`indexerd tree REF --filter all` lists them"
    raise NotFoundError(f"{why} in this session", hint=hint)


class SessionReaderPool:
    """Reads sessions in threads, a few at a time."""

    def __init__(
        self,
        open_session: Callable[[str, str | None], OpenSession | None],
        run: Callable[..., Awaitable[Any]],
    ) -> None:
        """Create it; `open_session(id, leaf)`, called in `run`, gives None if the file is gone."""
        self._open = open_session
        self._run = run
        self._places = asyncio.Semaphore(AT_ONCE)

    async def read(
        self, session_id: str, leaf: str | None, work: Callable[[OpenSession], _T]
    ) -> _T:
        """Do `work(session)` in a thread, for the session as seen from a leaf."""
        session = await self._run(self._open, session_id, leaf)
        if session is None:
            raise FileGoneError("the session's file is gone")
        async with self._places:
            return await asyncio.to_thread(work, session)

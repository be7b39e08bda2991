"""Reading one session for an answer: opened by the thread that owns its state, read by others.

However large a session is, neither the event loop nor what follows the files waits for it. A line
that was taken on its looks and is no JSON shows in the reading (ValueError): then the file is read
anew, parsing each line, and all is done once more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.agents.base import READ_MAX
from indexerd.agents.json_lines import close_truncated_json, parse_object
from indexerd.errors import FileGoneError, NotFoundError, SessionUnreadableError
from indexerd.events import MESSAGE, Entry, Kind
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.clipped import Keep, clipped
from indexerd.sessions.context import Read
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.line_buffer import LINE_MAX
from indexerd.sources.source import Lines, source_of
from indexerd.threads import Check, stoppable

AT_ONCE = 4  # sessions that are read, or looked through, at the same time
LARGE_AT_ONCE = 2  # of which large
LARGE = 1_000_000  # bytes of a session, from which on it is large
ID_SHOWN = 128  # characters of an entry's id in an error
BRIEF = 1024 * 1024  # bytes that are kept of a line too long to be held
PICTURE_MAX = 16 * BRIEF  # bytes of such a line that are looked through for pictures
# A string of 64 KiB without a space, a quote or an escape: base64, whose beginning will do.
_PICTURE = re.compile(rb'"([^"\\\s]{64})[^"\\\s]{65536,}+"')

_T = TypeVar("_T")


# -- lines ---------------------------------------------------------------------------------------


class SessionLines(ExitStack):
    """A session's lines by row, in whatever files they stand; open until the stack is left.

    SessionUnreadableError, when a line is asked for, where the session's own file is gone or its
    disk fails. With a state of its own, any thread may read.
    """

    def __init__(
        self, agent: str, state: SessionState, where: Callable[[str], str] = lambda path: path
    ) -> None:
        """`where` knows files that were moved since."""
        super().__init__()
        self._agent, self._state, self._where = agent, state, where
        self._open: dict[str, Lines] = {}
        self._lost: set[str] = set()  # files of which no line can be had

    def row(self, row: int) -> bytes:
        """The line of a row; nothing where it is too long to be read.

        Nothing as well where it stood in another file, and is not there any more: what a session
        borrowed may go, and the session's own lines are read all the same. Nor where a line was
        taken in by its two ends, and is no JSON between them: no reading anew can mend that.
        """
        line = self._line(row, READ_MAX)
        return b"" if len(line) > LINE_MAX and not _is_object(line) else line

    def brief(self, row: int) -> bytes:
        """The same, made short: of a line too long to be held, its beginning, without pictures.

        For what reads lines that nobody asked for. It is JSON, or nothing.
        """
        if self._state.lengths[row] <= LINE_MAX:
            return self.row(row)
        line = _PICTURE.sub(rb'"\1"', self._line(row, PICTURE_MAX))
        line = close_truncated_json(line[:BRIEF])
        return line if _is_object(line) else b""

    def _line(self, row: int, most: int) -> bytes:
        state = self._state
        file, offset = state.file_of(row), state.offsets[row]
        length = min(state.lengths[row], most)
        if length <= 0:
            return b""
        own = file == state.file
        if file in self._lost:
            return b""
        try:
            if file not in self._open:
                place = file if own else self._where(file)
                self._open[file] = self.enter_context(source_of(self._agent, place).lines(place))
            line = self._open[file].at(offset, length)
        except SessionUnreadableError:
            if own:
                raise
            self._lost.add(file)
            return b""
        return line if own or len(line) == length else b""


def _is_object(data: bytes) -> bool:
    """Whether a row's line is a JSON object; before it another one may stand, read with it."""
    try:
        parse_object(data[data.rfind(b"\n") + 1 :])
    except ValueError:
        return False
    return True


# -- entries -------------------------------------------------------------------------------------


def _unchecked() -> None:
    """Nothing ends this work but its end."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session as it was when somebody asked, seen from the leaf asked for."""

    info: SessionInfo
    state: SessionState  # a copy of its own
    lines: AbstractContextManager[SessionLines]  # to be entered by the thread that reads
    labels: dict[str, str]  # by entry id: the user's, and the session's own
    home: Path | None = None  # the directory of its meta file and sidecars

    @contextmanager
    def reading(self, check: Check = _unchecked, keep: Keep | None = None) -> Iterator[Read]:
        """Read rows while this is entered; see `reader`."""
        with self.lines as lines:
            yield reader(self, lines, check, keep)


class SessionRows(Protocol):
    """Which session is meant; rows as `get` has them."""

    def row(self, ref: str, *, cwd: str | None = None) -> dict[str, Any]:
        """The row that a reference means."""
        ...

    def by_id(self, session_id: str) -> dict[str, Any]:
        """The row of a session; NotFoundError where there is none."""
        ...


def row_of(state: SessionState, entry_id: str) -> int:
    """The row of an entry; NotFoundError names one that is not there."""
    row = state.row(entry_id)
    if row is None:
        shown = clean_line(entry_id[:ID_SHOWN], ID_SHOWN)
        raise NotFoundError(
            f"no entry {shown} in this session", hint="`indexerd tree REF --filter all` lists them"
        )
    return row


def reader(
    session: OpenSession, lines: SessionLines, check: Check = _unchecked, keep: Keep | None = None
) -> Read:
    """A way to read a row in full, and as the lines after it show it, which the state knows.

    `check` is called before each, and ends what nobody waits for any more by an error. Whoever
    holds many entries at a time says how much of each to `keep`.
    """
    read, state = ADAPTERS[session.info.agent].read, session.state

    def entry(row: int) -> Entry:
        check()
        line, kind = lines.brief(row), state.kind(row)
        if line:
            found = read(line, state.id(row))
        else:  # too long to be read, or none any more
            shown = "message" if state.codes[row] & MESSAGE else ""
            found = Entry(id=state.id(row), kind=kind, type=shown, role=None, timestamp="")
        if found.kind not in (kind, Kind.OTHER):
            asked = found.kind is Kind.USER and kind is Kind.CUSTOM  # by a program, as a user
            found = msgspec.structs.replace(
                found,
                kind=kind,
                sent_as="user" if asked else found.sent_as,
                unseen=found.unseen or kind is Kind.OTHER,
            )
        return found if keep is None else clipped(found, keep)

    return entry


# -- answers -------------------------------------------------------------------------------------


def _there(session: OpenSession | None) -> OpenSession:
    if session is None:
        raise FileGoneError("the session's file is gone")
    return session


def _reread(helped: bool) -> None:
    if not helped:
        raise SessionUnreadableError("the session file changed while it was read")


def read_here(
    open_session: Callable[[], OpenSession | None],
    reread: Callable[[], bool],
    work: Callable[[OpenSession], _T],
) -> _T:
    """Do the same as `SessionReaderPool.read` in this thread, which owns the session's state."""
    while True:
        try:
            return work(_there(open_session()))
        except ValueError:
            _reread(reread())


class SessionReaderPool:
    """Reads sessions in threads, a few at a time, of which large ones get only some.

    So an answer about a small session is not stuck behind ten about a large one.
    """

    def __init__(
        self,
        open_session: Callable[[str, str | None], OpenSession | None],
        reread: Callable[[str], bool],
        run: Callable[..., Awaitable[Any]],
    ) -> None:
        """Open a session by id and leaf, or read its file anew; both in the thread of `run`.

        `open_session` gives None where the session's file is gone.
        """
        self._open = open_session
        self._reread = reread
        self._run = run
        self._all = asyncio.Semaphore(AT_ONCE)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def read(
        self, session_id: str, leaf: str | None, work: Callable[[OpenSession, Check], _T]
    ) -> _T:
        """Do `work(session, check)` in a thread, for the session as seen from a leaf.

        `check` is to be called now and then: it ends work that nobody waits for any more.
        FileGoneError where the file is gone, NotFoundError where the entry is not in it.
        """
        while True:
            session = _there(await self._run(self._open, session_id, leaf))
            async with AsyncExitStack() as places:
                if sum(session.state.lengths) >= LARGE:
                    await places.enter_async_context(self._large)
                await places.enter_async_context(self._all)
                try:
                    return await stoppable(partial(work, session))
                except ValueError:
                    _reread(await self._run(self._reread, session_id))

"""Reading one session for an answer: opened by the thread that owns its state, read by others.

However large a session is, neither the event loop nor what follows the files waits for it. A line
that was taken on its looks and is no JSON shows in the reading (ValueError): then the file is read
anew, parsing each line, and all is done once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.errors import FileGoneError, NotFoundError, SessionUnreadableError
from indexerd.events import MESSAGE, Entry, Kind
from indexerd.models.threads import Check, stoppable
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.clipped_entries import Keep, clipped
from indexerd.sessions.context import Read
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines

AT_ONCE = 4  # sessions that are read, or looked through, at the same time
LARGE_AT_ONCE = 2  # of which large
LARGE = 1_000_000  # bytes of a session, from which on it is large
ID_SHOWN = 128  # characters of an entry's id in an error

_T = TypeVar("_T")


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

    @property
    def size(self) -> int:
        """Bytes of its lines."""
        return sum(self.state.lengths)

    @contextmanager
    def reading(self, check: Check = _unchecked, keep: Keep | None = None) -> Iterator[Read]:
        """Read rows while this is entered; see `reader`."""
        with self.lines as lines:
            yield reader(self, lines, check, keep)


class SessionRows(Protocol):
    """Who knows which session is meant; rows as `get` has them."""

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
        found = read(line, state.id(row)) if line else _lost(state, row)
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


def _lost(state: SessionState, row: int) -> Entry:
    """What is known of an entry whose line is too long to be read, or is none any more."""
    kind = "message" if state.codes[row] & MESSAGE else ""
    return Entry(id=state.id(row), kind=state.kind(row), type=kind, role=None, timestamp="")


def file_changed() -> SessionUnreadableError:
    """The error for a file that is not what it was a moment ago."""
    return SessionUnreadableError("the session file changed while it was read")


def read_here(
    open_session: Callable[[], OpenSession | None],
    reread: Callable[[], bool],
    work: Callable[[OpenSession], _T],
) -> _T:
    """Do the same as `SessionReaderPool.read` in this thread, which owns the session's state."""
    while True:
        session = open_session()
        if session is None:
            raise FileGoneError("the session's file is gone")
        try:
            return work(session)
        except ValueError:
            if not reread():
                raise file_changed() from None


class SessionReaderPool:
    """Reads sessions in threads, a few at a time, of which large ones get only some.

    So an answer about a small session is not stuck behind ten about a large one. A place stays
    taken until its thread has really ended.
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

    @asynccontextmanager
    async def place(self, size: int) -> AsyncIterator[None]:
        """Hold a place for work on so many bytes."""
        if size < LARGE:
            async with self._all:
                yield
        else:
            async with self._large, self._all:
                yield

    async def read(
        self, session_id: str, leaf: str | None, work: Callable[[OpenSession, Check], _T]
    ) -> _T:
        """Do `work(session, check)` in a thread, for the session as seen from a leaf.

        `check` is to be called now and then: it ends work that nobody waits for any more.
        FileGoneError where the file is gone, NotFoundError where the entry is not in it.
        """
        size = (await self._opened(session_id, leaf)).size
        while True:
            async with self.place(size):
                session = await self._opened(session_id, leaf)
                try:
                    return await stoppable(partial(work, session))
                except ValueError:
                    again = await self._run(self._reread, session_id)
            if not again:
                raise file_changed()

    async def _opened(self, session_id: str, leaf: str | None) -> OpenSession:
        session: OpenSession | None = await self._run(self._open, session_id, leaf)
        if session is None:
            raise FileGoneError("the session's file is gone")
        return session

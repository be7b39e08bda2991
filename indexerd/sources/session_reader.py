"""Reading one session for an answer: opened by the thread that owns its state, read by others.

However large a session is, neither the event loop nor what follows the files waits for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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

AT_ONCE = 4  # sessions that are read at the same time
ID_SHOWN = 128  # characters of an entry's id in an error
BRIEF = 1024 * 1024  # bytes that are kept of a line longer than LINE_MAX
PICTURE_MAX = 16 * BRIEF  # bytes of such a line that are looked through for pictures
# A string of 64 KiB without a space, a quote or an escape: base64, whose beginning will do.
_PICTURE = re.compile(rb'"([^"\\\s]{64})[^"\\\s]{65536,}+"')

_T = TypeVar("_T")


class SessionLines(ExitStack):
    """A session's lines by row, in whatever files they stand; open until the stack is left.

    SessionUnreadableError, when a line is asked for, where the session's own file is gone or its
    disk fails; a line of another file is then empty. With a state of its own, any thread may read.
    """

    def __init__(
        self, agent: str, state: SessionState, where: Callable[[str], str] = lambda path: path
    ) -> None:
        """`where` knows files that were moved since."""
        super().__init__()
        self._agent, self._state, self._where = agent, state, where
        self._open: dict[str, Lines] = {}

    def row(self, row: int, most: int = READ_MAX) -> bytes:
        """The line of a row; nothing where it is too long to be read.

        Nor where it was taken in by its two ends, and is no JSON between them.
        """
        state = self._state
        file, length = state.file_of(row), min(state.lengths[row], most)
        if length <= 0:
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
        if state.lengths[row] > LINE_MAX:
            if most < READ_MAX:
                line = close_truncated_json(_PICTURE.sub(rb'"\1"', line)[:BRIEF])
            return line if _is_object(line) else b""
        return line

    def brief(self, row: int) -> bytes:
        """The same; of a line longer than LINE_MAX its beginning, without pictures, as JSON."""
        return self.row(row, READ_MAX if self._state.lengths[row] <= LINE_MAX else PICTURE_MAX)


def _is_object(data: bytes) -> bool:
    """Whether a row's line is a JSON object; before it another one may stand, read with it."""
    try:
        parse_object(data[data.rfind(b"\n") + 1 :])
    except ValueError:
        return False
    return True


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

    def by_id(self, session_id: str) -> dict[str, Any]:
        """The row of a session; NotFoundError where there is none."""


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
            try:
                found = read(line, state.id(row))
            except ValueError:
                message = "the session file changed while it was read"
                raise SessionUnreadableError(message) from None
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


class SessionReaderPool:
    """Reads sessions in threads, a few at a time."""

    def __init__(
        self,
        open_session: Callable[[str, str | None], OpenSession | None],
        run: Callable[..., Awaitable[Any]],
    ) -> None:
        """`open_session`, by id and leaf, in the thread of `run`, None where its file is gone."""
        self._open = open_session
        self._run = run
        self._places = asyncio.Semaphore(AT_ONCE)

    async def read(
        self, session_id: str, leaf: str | None, work: Callable[[OpenSession, Check], _T]
    ) -> _T:
        """Do `work(session, check)` in a thread, for the session as seen from a leaf.

        `check` is to be called now and then: it ends work that nobody waits for any more.
        FileGoneError where the file is gone, NotFoundError where the entry is not in it.
        """
        session = await self._run(self._open, session_id, leaf)
        if session is None:
            raise FileGoneError("the session's file is gone")
        async with self._places:
            return await stoppable(partial(work, session))

"""One session file: where reading stopped, what was read, and the facts of it.

The tree of a session is kept in memory while it is used, and never stored: a file whose tree was
let go is read from its start again when it is needed (a second for 200 MB). Where reading stopped
is kept, so that a file that only grew is known from one that was rewritten meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from indexerd.errors import IndexerdError
from indexerd.paths import is_session_id
from indexerd.sessions.info import SessionInfo, info_of
from indexerd.sessions.state import SessionState
from indexerd.sources.cursor import Cursor, Look, Verdict, is_same
from indexerd.sources.forks import ForkResolver, take_in
from indexerd.sources.line_buffer import Block
from indexerd.sources.source import PLAIN, Tailing, source_of
from indexerd.sources.stores import Kind, Store
from indexerd.sources.tail import Read, compare, look_of, opened
from indexerd.times import iso_ms

REST_MAX = 16  # scans that a file is left alone whose disk fails again and again
# What a disk says that fails, a network's too; a mode that is wrong costs no time to find out.
_DISK = {os.strerror(one) for one in (errno.EIO, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT)}

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Cursor).decode


@dataclass(frozen=True, slots=True)
class Change:
    """A session is not what it was. `info` is None when its last file is gone."""

    session_id: str
    info: SessionInfo | None
    verdict: Verdict
    was: SessionInfo | None = None
    branched: bool = False  # the old leaf is not on the new path


class SessionFile:
    """One session file. There are tens of thousands of these, and few are read."""

    __slots__ = (
        "_at",
        "_failures",
        "_rest",
        "_tail",
        "agent",
        "aside",
        "excluded",
        "info",
        "path",
        "problem",
        "rank",
        "source",
        "state",
        "underway",
        "unreadable",
        "verdict",
    )

    def __init__(
        self, path: str, agent: str, cursor: Cursor | None = None, info: SessionInfo | None = None
    ) -> None:
        self.path = path
        self.agent = agent
        self.source = source_of(agent, path)
        self._at = _encode(cursor) if cursor else b""
        self._tail: Tailing | None = None
        self.info = info
        self.state: SessionState | None = None
        self.rank: tuple[Any, ...] = ()  # among files of one session, before their newest entry
        self.verdict = Verdict.CONTINUE  # of what was read since the info was made
        self.underway = False  # the last reading did not come to the end
        self.excluded = False
        self.unreadable = ""  # why it cannot be read for now
        self.problem = ""  # what is wrong with it until it changes
        self.aside: Look | None = None  # as it was when it provoked a defect
        self._failures = self._rest = 0  # of its disk in a row; scans that it is left alone

    @property
    def cursor(self) -> Cursor | None:
        """Where reading stopped."""
        if self._tail is not None:
            return self._tail.cursor
        return _decode(self._at) if self._at else None

    def look(self) -> Look | None:
        """What the file is now."""
        return self.source.look(self.path)

    def differs(self, found: Look) -> bool:
        """Whether the file, as a scan saw it, is to be looked at. Asked once a scan."""
        if self.excluded or self.aside == found:
            return False
        if self.unreadable:
            self._rest -= 1
            return self._rest <= 0
        at = self.cursor
        return at is None or not is_same(at, found)

    def failed(self, bad: IndexerdError) -> None:
        """Reading failed: if it is the disk that fails, some scans leave the file alone.

        A try may hold up the one thread that reads for half a minute.
        """
        self.unreadable = str(bad)
        self._failures = self._failures + 1 if bad.upstream in _DISK else 0
        self._rest = min(2 ** (self._failures - 1), REST_MAX) + 1 if self._failures else 0

    def begin_anew(self) -> None:
        """Forget what was read: the next reading begins at the start."""
        self._at, self._tail, self.state, self.underway = b"", None, None, False

    def doze(self) -> None:
        """Let go of the tree."""
        held = self.cursor
        self.begin_anew()
        self._at = _encode(held) if held else b""

    def read(self, forks: ForkResolver, *, wake: bool = False) -> Read:
        """Read what is new, a bounded part of it; with `wake`, all there is if the tree is gone.

        FileNotFoundError when the file is gone, SessionUnreadableError when it cannot be read.
        """
        asleep, held = self.state is None, self.cursor
        if asleep:
            self.verdict = Verdict.CONTINUE
            if held is not None:
                self.verdict = self._compared(held)
                if self.verdict is Verdict.SAME and not wake:
                    return Read(Verdict.SAME)
        if asleep or self._tail is None:
            self._tail = self.source.tail()
        try:
            read = self._tail.read(self.path)
            if read.verdict is Verdict.SAME:
                return read
            held_back = self.underway or self.verdict.restart  # what was not dealt with yet
            if not asleep and (read.verdict.restart or not held_back):
                self.verdict = read.verdict
            self._take_in(read, forks)
        except BaseException:
            if asleep:
                self.begin_anew()
            raise
        self.underway = read.more
        return read

    def _compared(self, held: Cursor) -> Verdict:
        """What the file is, compared with what was read when its tree was let go."""
        if self.source is not PLAIN:
            seen = self.look()
            return Verdict.SAME if seen and is_same(held, seen) else Verdict.CONTINUE
        with opened(self.path) as fd:
            now = look_of(os.fstat(fd))
            return Verdict.SAME if is_same(held, now) else compare(fd, held, now)[0]

    def _take_in(self, read: Read, forks: ForkResolver) -> None:
        pieces, state = iter(read.lines), self.state
        if read.verdict.restart or read.whole or state is None or is_blank(state):
            first = next(pieces, None)
            line = first.data.partition(b"\n")[0] if isinstance(first, Block) else b""
            state = forks.begin(self.agent, self.path, line)
            pieces = chain([first] if first else [], pieces)
        self.state = None  # should this raise, what was taken in is no whole
        try:
            take_in(self.agent, state, pieces)
        except BaseException:
            self.begin_anew()
            raise
        self.state = state

    def make_info(
        self,
        store: Store | None,
        since: Callable[[str], str | None],
        title: Callable[[str, str], str | None],
    ) -> SessionInfo | None:
        """The facts of what was read; None where it is no session, and `problem` may say why."""
        state, was, cursor = self.state, self.info, self.cursor
        if state is None:
            return None
        header, beside = state.header, dict[str, Any]()
        if store is not None and header is not None:
            beside = {
                "title": title(store.agent, header.session_id),
                "archived": store.archive,
                "boxed": store.kind is Kind.DATABASE,
            }
        info = info_of(
            state,
            agent=self.agent,
            path=self.path,
            mtime_ms=max(cursor.mtime_ns, 0) // 1_000_000 if cursor else 0,
            since=since(header.session_id) if header else None,
            **beside,
        )
        if info is None and was is not None and is_blank(state):  # emptied, to be written anew
            info = replace(was, path=self.path, since=since(was.session_id), new_users=0)
        self.problem = ""
        if info is not None and not is_session_id(info.session_id):
            self.problem, info = "the session id is not of the allowed form", None
        self.info = info
        if info is not None and store is not None:
            self.rank = rank(self.path, info, store)
        return info


def rank(path: str, info: SessionInfo | None, store: Store) -> tuple[object, ...]:
    """What decides between files of one session, before their newest entries do.

    Of a thread's files in Codex that with the newest session_meta is live (a revert makes a
    second), a plain one before its compressed copy; in opencode the database before the tree.
    """
    if store.agent == "codex" and info is not None:
        return (iso_ms(info.created_at), not path.endswith(".zst"))
    return (store.kind is Kind.DATABASE,) if store.agent == "opencode" else ()


def is_blank(state: SessionState) -> bool:
    """Whether a file has no header yet, as while pi migrates it: no reason to forget."""
    return state.header is None and not (state.foreign or state.bad_lines or state.seen)

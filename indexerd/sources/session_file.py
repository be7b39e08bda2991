"""One session file: where reading stopped, what was read, and the facts of it.

The tree of a session is kept in memory while it is used, and never stored: after that the file is
read from its start (a second for 200 MB). The cursor is stored, and tells a file that only grew
from one that was rewritten meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from msgspec.structs import replace

from indexerd.paths import is_session_id
from indexerd.sessions.info import SessionInfo, info_of
from indexerd.sessions.state import SessionState
from indexerd.sources.forks import ForkResolver, take_in
from indexerd.sources.line_buffer import Block
from indexerd.sources.source import source_of
from indexerd.sources.stores import Kind, Store
from indexerd.sources.tail import Cursor, Look, Read, Tail, Verdict
from indexerd.times import iso_ms


@dataclass(frozen=True, slots=True)
class Change:
    """A session differs from what it was. `info` is None when its last file is gone."""

    session_id: str
    info: SessionInfo | None
    verdict: Verdict
    was: SessionInfo | None = None
    branched: bool = False  # the old leaf is not on the new path


@dataclass(slots=True, eq=False)
class SessionFile:
    """One session file. There are tens of thousands of these, and few are read."""

    path: str
    agent: str
    cursor: Cursor | None = None  # where reading stopped
    info: SessionInfo | None = None
    state: SessionState | None = None
    rank: tuple[Any, ...] = ()  # among files of one session; their newest entry comes second
    verdict: Verdict = Verdict.CONTINUE  # of what was read since the info was made
    underway: bool = False  # the last reading did not reach the end
    read_number: int = 0  # of its last reading, among those of all files
    excluded: bool = False
    problem: str = ""  # why it is not read, or is no session
    aside: Look | None = None  # its stat when it triggered a bug
    _tail: Tail | None = None

    def look(self) -> Look | None:
        return source_of(self.agent, self.path).look(self.path)

    def differs(self, found: Look) -> bool:
        """Whether to read the file, which a scan saw like this."""
        if self.excluded or self.aside == found:
            return False
        at = self.cursor
        return bool(self.problem) or at is None or not at.matches(found)

    def begin_anew(self) -> None:
        """Have the next reading begin at the start."""
        self.cursor = None
        self.doze()

    def doze(self) -> None:
        """Drop the tree."""
        self._tail, self.state, self.underway = None, None, False

    def read(self, forks: ForkResolver, *, wake: bool = False) -> Read:
        """Read some of what is new; with `wake`, from the start if the tree was dropped.

        FileNotFoundError when the file is gone, SessionUnreadableError when it cannot be read.
        """
        source = source_of(self.agent, self.path)
        if asleep := self.state is None:
            was = self.cursor
            self.verdict = source.compare(self.path, was) if was else Verdict.CONTINUE
            if was is not None and self.verdict is Verdict.SAME and not wake:
                return Read(Verdict.SAME)
            self._tail = None
        tail = self._tail = self._tail or source.tail()
        read = tail.read(self.path)
        if read.verdict is Verdict.SAME:
            return read
        restart = read.verdict is Verdict.RESTART
        if not asleep and (restart or self.verdict is Verdict.SAME):
            self.verdict = read.verdict
        pieces, state = iter(read.lines), self.state
        if restart or read.whole or state is None or is_blank(state):
            first = next(pieces, None)
            line = first.data.partition(b"\n")[0] if isinstance(first, Block) else b""
            state = forks.begin(self.agent, self.path, line)
            pieces = chain([first] if first else [], pieces)
        self.state, self.underway = None, False  # should this raise, it is read from its start
        take_in(self.agent, state, pieces)
        self.state, self.cursor, self.underway = state, tail.cursor, read.more
        return read

    def make_info(
        self,
        store: Store | None,
        since: Callable[[str], str | None],
        title: Callable[[str, str], str | None],
    ) -> SessionInfo | None:
        """Make the facts of the session; None where it is none, and `problem` may say why."""
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
        if info is None and was is not None and is_blank(state):  # emptied, to be rewritten
            info = replace(was, path=self.path, since=since(was.session_id), new_users=0)
        self.problem = ""
        if info is not None and not is_session_id(info.session_id):
            self.problem, info = "the session id is not of the allowed form", None
        self.info = info
        if info is not None and store is not None:
            self.rank = rank(self.path, info, store)
        return info


def rank(path: str, info: SessionInfo | None, store: Store) -> tuple[object, ...]:
    """Rank a file among those of one session; the highest represents it.

    In Codex the newest session_meta (a revert makes a second file), then a plain file before its
    compressed copy; in opencode the database before the tree.
    """
    if store.agent == "codex" and info is not None:
        return (iso_ms(info.created_at), not path.endswith(".zst"))
    return (store.kind is Kind.DATABASE,) if store.agent == "opencode" else ()


def is_blank(state: SessionState) -> bool:
    """Whether a file has no header yet, as while pi migrates it; its session is kept."""
    return state.header is None and not (state.foreign or state.bad_lines or state.seen)

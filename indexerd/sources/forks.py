"""Histories that begin in another file: where that file is, and which forks begin in it.

Codex forks without copying: a new file names the thread and the bytes of it that come first. The
files of a thread carry its id in their names, so one that was archived or compressed since is
found again, and a base can be read before it was met itself.

Of a thread that was reverted there are several files, and bytes alone do not tell them apart: a
base is the newest that is no younger than its fork, and has a line of the right ordinal end there.
A history that the user excluded is not taken in, at no generation. A fork is to be read anew when
a file comes, or is rewritten, or grows, so that its history may be another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from indexerd.agents import ADAPTERS
from indexerd.agents.base import Oversize
from indexerd.agents.codex.session_meta import ordinal_of
from indexerd.agents.json_lines import scan_oversize
from indexerd.errors import SessionUnreadableError
from indexerd.events import Base, Header
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.info import SessionInfo, base_name
from indexerd.sessions.state import SessionState
from indexerd.sources.line_buffer import LINE_MAX, Block, LineBuffer
from indexerd.sources.source import Lines, source_of
from indexerd.times import iso_ms

CHUNK = 4 * 1024 * 1024
HEAD = LINE_MAX + 1  # bytes in which a first line is looked for
GENERATIONS = 32  # files that one history may be spread over
LAST = 4096  # bytes in which the last line before an end is looked for, at first
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIMED = len("rollout-2026-11-22T12-00-00")  # characters of a name that tell its time
_FOUND, _UNKNOWN = 0, -1  # instead of the byte at which the history that a fork lacks ends


class _File(NamedTuple):
    """A file that a history may begin in."""

    path: str
    head: bytes
    cwd: str
    born_ms: int


class ForkResolver:
    """The files of every thread, by name, and the forks of each. One thread uses this."""

    def __init__(self, excluded: Callable[[str, str], bool]) -> None:
        """`excluded(path, cwd)` says whether the user excluded a file."""
        self._excluded = excluded
        self._files: dict[str, dict[str, None]] = {}  # thread id -> paths
        self._forks: dict[str, dict[str, int]] = {}  # thread id -> forks, and the end they lack
        self._bases: dict[str, set[str]] = {}  # fork -> thread ids

    # -- where files are -----------------------------------------------------------------

    def add(self, agent: str, path: str) -> list[str]:
        """A file is there; returns the forks whose history may be another by that."""
        forks: dict[str, None] = {}
        for thread in _threads(path) if agent == "codex" else ():
            files = self._files.setdefault(thread, {})
            if path not in files and not any(base_name(one) == base_name(path) for one in files):
                forks |= {
                    fork: None
                    for fork, end in self._forks.get(thread, {}).items()
                    if end != _FOUND or base_name(path)[:_TIMED] <= base_name(fork)[:_TIMED]
                }
            files[path] = None
        forks.pop(path, None)
        return list(forks)

    def grown(self, agent: str, path: str, start: int, stop: int, *, anew: bool) -> list[str]:
        """A file was read from one byte to another, or (`anew`) from its start; likewise."""
        found: dict[str, None] = {}
        for thread in _threads(path) if agent == "codex" else ():
            for fork, end in self._forks.get(thread, {}).items():
                if fork != path and (anew or end == _UNKNOWN or start < end <= stop):
                    found[fork] = None
        return list(found)

    def drop(self, agent: str, path: str) -> None:
        """A file is gone."""
        self._unlink(path)
        for thread in _threads(path) if agent == "codex" else ():
            self._files.get(thread, {}).pop(path, None)

    def where(self, path: str) -> str:
        """The place of a file now, should it have been archived or compressed."""
        return next(self._places(base_name(path)), path)

    def _places(self, name: str) -> Iterator[str]:
        for thread in _threads(name)[:1]:
            files = list(self._files.get(thread, ()))  # another thread may ask meanwhile
            yield from sorted((one for one in files if base_name(one) == name), key=len)

    # -- which history begins where ------------------------------------------------------

    def know(self, path: str, info: SessionInfo) -> None:
        """Take over what a file begins with."""
        for name in info.bases:
            for thread in _threads(name)[:1]:
                self._link(thread, path, _FOUND)
        if info.wants:
            self._link(info.wants, path, _UNKNOWN)

    def missing(self, info: SessionInfo | None) -> str:
        """What is wrong with a session's history; nothing where all of it is there."""
        if info is None or not (info.bases or info.wants):  # as nearly all are; all are asked
            return ""
        gone = [name for name in info.bases if next(self._places(name), None) is None]
        names = [*([info.wants] if info.wants else []), *gone]
        return f"the history it begins with is gone: {clean_line(names[0], 200)}" if names else ""

    def _link(self, thread: str, fork: str, end: int) -> None:
        forks = self._forks.setdefault(thread, {})
        forks[fork] = forks.get(fork, end) or end
        self._bases.setdefault(fork, set()).add(thread)

    def _unlink(self, fork: str) -> None:
        for thread in self._bases.pop(fork, ()):
            self._forks[thread].pop(fork)

    # -- taking a history in -------------------------------------------------------------

    def begin(self, agent: str, path: str, first: bytes) -> SessionState:
        """A new state, with the history that its first line says comes before it."""
        state = SessionState(path)
        base = ADAPTERS[agent].base(first)
        self._unlink(path)
        if base is not None:
            header = header_in(agent, path, first)
            born = iso_ms(header.created_at) if header else 0
            self._take_base(state, agent, base, [_File(path, b"", "", born)])
        return state

    def _take_base(
        self, state: SessionState, agent: str, base: Base | None, younger: list[_File]
    ) -> None:
        if base is None or len(younger) > GENERATIONS:
            return
        fork = younger[0].path
        found = self._find(agent, base, younger)
        if found is None:
            state.wants = base.session_id
            self._link(base.session_id, fork, base.end)
            return
        self._link(base.session_id, fork, _FOUND)
        if self._excluded(found.path, found.cwd):
            state.barred = True
            return
        self._take_base(state, agent, ADAPTERS[agent].base(found.head), [*younger, found])
        try:
            with source_of(agent, found.path).lines(found.path) as lines:
                take_in(agent, state, _pieces(lines, base.end))
        except SessionUnreadableError:
            state.wants = base.session_id
            self._link(base.session_id, fork, base.end)
        state.borrowed(found.path)

    def _find(self, agent: str, base: Base, younger: list[_File]) -> _File | None:
        """The newest file that fits; of one time, as of a compressed copy, the name decides."""
        born, met = younger[-1].born_ms, {base_name(one.path) for one in younger}
        paths = [one for one in self._files.get(base.session_id, {}) if base_name(one) not in met]
        fitting = filter(None, (_fitting(agent, base, path) for path in paths))
        old_enough = (one for one in fitting if not born or one.born_ms <= born)
        return max(old_enough, key=lambda one: (one.born_ms, base_name(one.path)), default=None)


def header_in(agent: str, path: str, first: bytes) -> Header | None:
    """The header that a session's first line holds."""
    state = SessionState(path)
    ADAPTERS[agent].scan(state, first + b"\n", 0)
    return state.header


def take_in(agent: str, state: SessionState, pieces: Iterable[Block | Oversize]) -> None:
    """Take in what was read."""
    adapter = ADAPTERS[agent]
    for piece in pieces:
        if isinstance(piece, Oversize):
            scan_oversize(adapter, state, piece)
        else:
            adapter.scan(state, piece.data, piece.offset)


def _fitting(agent: str, base: Base, path: str) -> _File | None:
    """A file, if a line ends where the base does, and is the last one of the base."""
    try:
        with source_of(agent, path).lines(path) as lines:
            if lines.at(base.end - 1, 1) != b"\n":
                return None
            last = ordinal_of(_last_line(lines, base.end)) if base.end_ordinal else None
            if last is not None and last + 1 != base.end_ordinal:
                return None
            head = lines.at(0, min(base.end, HEAD)).partition(b"\n")[0]
    except SessionUnreadableError:
        return None
    header = header_in(agent, path, head)
    return _File(
        path, head, header.cwd if header else "", iso_ms(header.created_at if header else "")
    )


def _last_line(lines: Lines, end: int) -> bytes:
    """The line that ends there; nothing where it is too long."""
    size = LAST
    while size <= 2 * LINE_MAX:
        start = max(0, end - size)
        _, newline, line = lines.at(start, end - 1 - start).rpartition(b"\n")
        if newline or not start:
            return line
        size *= 16
    return b""


def _pieces(lines: Lines, end: int) -> Iterator[Block | Oversize]:
    buffer, position = LineBuffer(), 0
    while position < end:
        data = lines.at(position, min(CHUNK, end - position))
        if not data:
            raise SessionUnreadableError("the base of a forked session is shorter than it was")
        position += len(data)
        yield from buffer.feed(data)


def _threads(path: str) -> list[str]:
    """The ids in a file's name: of the thread, and of a segment."""
    return _UUID.findall(path.rpartition("/")[2])

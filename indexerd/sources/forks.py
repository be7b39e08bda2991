"""Find the file in which a history begins, and the forks that begin in a file.

Codex forks without copying: a new file names a thread and how many bytes of it come first. The
files of a thread have its id in their names. A reverted thread has several: the base is the newest
that is not younger than its fork and has a line ending there. An excluded file is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from indexerd.agents import ADAPTERS
from indexerd.agents.base import Oversize
from indexerd.agents.json_lines import scan_oversize
from indexerd.entries import Base
from indexerd.errors import SessionUnreadableError
from indexerd.sessions.info import base_name
from indexerd.sessions.state import SessionState
from indexerd.sources.source import source_of
from indexerd.sources.tail import LINE_MAX, Block, pieces
from indexerd.times import iso_ms

AGENT = "codex"  # the only agent that forks without copying
GENERATIONS = 32  # files that one history may span
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _File(NamedTuple):
    """A file in which a history may begin."""

    path: str
    head: bytes
    cwd: str
    born_ms: int


class ForkResolver:
    """Knows the files of every Codex thread by name, and its forks. For one Python thread."""

    def __init__(self, excluded: Callable[[str, str], bool]) -> None:
        """Create it; `excluded(path, cwd)` tells whether the user excluded a file."""
        self._excluded = excluded
        self._files: dict[str, dict[str, None]] = {}  # thread id -> paths
        self._forks: dict[str, dict[str, Base | None]] = {}  # thread id -> fork -> its missing base

    def found(self, agent: str, path: str, *, rewritten: bool = False) -> list[str]:
        """Record that a file exists, or was rewritten; return the forks to read again."""
        forks = list[str]()
        for thread in _threads(path) if agent == AGENT else ():
            self._files.setdefault(thread, {})[path] = None
            for fork, lacks in self._forks.get(thread, {}).items():
                if fork != path and (rewritten or (lacks and _fitting(lacks, path))):
                    forks.append(fork)
        return forks

    def drop(self, path: str) -> None:
        for forks in self._forks.values():
            forks.pop(path, None)
        for thread in _threads(path):
            self._files.get(thread, {}).pop(path, None)

    def where(self, path: str) -> str:
        """Return where a file is now: it may have been archived or compressed."""
        name = base_name(path)
        thread = next(iter(_threads(name)), "")
        named = (file for file in [*self._files.get(thread, ())] if base_name(file) == name)
        return min(named, key=len, default=path)  # prefers a plain file to its compressed copy

    def begin(self, agent: str, path: str, first: bytes) -> SessionState:
        """Make a new state, with the history that its first line names."""
        state = SessionState(path)
        base = ADAPTERS[agent].base(first)
        for forks in self._forks.values():
            forks.pop(path, None)
        if base is not None:
            self._take_base(state, base, [_described(path, first)])
        return state

    def _take_base(self, state: SessionState, base: Base | None, younger: list[_File]) -> None:
        if base is None or len(younger) > GENERATIONS:
            return
        file = self._find(base, younger)
        lacks, fork = self._forks.setdefault(base.session_id, {}), younger[0].path
        lacks[fork] = base if file is None else None
        if file is None:
            state.missing_base = base.session_id
        elif self._excluded(file.path, file.cwd):
            state.base_excluded = True
        else:
            self._take_base(state, ADAPTERS[AGENT].base(file.head), [*younger, file])
            try:
                with source_of(AGENT, file.path).lines(file.path) as lines:
                    take_in(AGENT, state, pieces(lines, base.end))
            except SessionUnreadableError:
                state.missing_base, lacks[fork] = base.session_id, base
            state.add_base(file.path)

    def _find(self, base: Base, younger: list[_File]) -> _File | None:
        """Find the newest file that fits; of equally old ones, the one with the greatest name."""
        born, met = younger[-1].born_ms, {base_name(file.path) for file in younger}
        known = [*self._files.get(base.session_id, ())]
        fitting = (_fitting(base, path) for path in known if base_name(path) not in met)
        old_enough = (file for file in fitting if file and (not born or file.born_ms <= born))
        return max(old_enough, key=lambda file: (file.born_ms, base_name(file.path)), default=None)


def take_in(agent: str, state: SessionState, pieces: Iterable[Block | Oversize]) -> None:
    adapter = ADAPTERS[agent]
    for piece in pieces:
        if isinstance(piece, Oversize):
            scan_oversize(adapter, state, piece)
        else:
            adapter.scan(state, piece.data, piece.offset)


def _described(path: str, first: bytes) -> _File:
    """Describe a file by its first line."""
    state = SessionState(path)
    ADAPTERS[AGENT].scan(state, first + b"\n", 0)
    header = state.header
    cwd, born = (header.cwd, iso_ms(header.created_at)) if header else ("", 0)
    return _File(path, first, cwd, born)


def _fitting(base: Base, path: str) -> _File | None:
    """Describe a file if one of its lines ends where the base ends; else None."""
    try:
        with source_of(AGENT, path).lines(path) as lines:
            if lines(base.end - 1, 1) != b"\n":
                return None
            return _described(path, lines(0, min(base.end, LINE_MAX)).partition(b"\n")[0])
    except SessionUnreadableError:
        return None


def _threads(path: str) -> list[str]:
    """List the ids in a file's name: the thread's, and a segment's."""
    return _UUID.findall(path.rpartition("/")[2])

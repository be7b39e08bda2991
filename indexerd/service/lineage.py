"""Histories that begin in another file: where that file is, and who waits for it.

Codex forks without copying: a new file names the thread and the bytes of it that come first. The
files of a thread carry its id in their names, so one that was archived or compressed since is
found again, and a base can be read before it was met itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from indexerd.agents import ADAPTERS
from indexerd.core.lines import Block, LineBuffer, Oversize
from indexerd.core.session import SessionState
from indexerd.errors import SessionUnreadableError
from indexerd.events import Base
from indexerd.io.source import Lines
from indexerd.io.sources import source_of

CHUNK = 4 * 1024 * 1024
GENERATIONS = 32  # files that one history may be spread over
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Lineage:
    """The files of every thread, by name. One thread uses this."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, None]] = {}  # thread id -> paths
        self._wanted: dict[str, dict[str, None]] = {}  # thread id -> files that begin in it

    def note(self, agent: str, path: str) -> Iterable[str]:
        """A file is there; says which known files waited for it."""
        if agent != "codex":
            return ()
        waiting: dict[str, None] = {}
        for thread in _threads(path):
            files = self._files.setdefault(thread, {})
            if path not in files:
                files[path] = None
                waiting |= self._wanted.pop(thread, {})
        return waiting

    def drop(self, agent: str, path: str) -> None:
        """A file is gone."""
        for thread in _threads(path) if agent == "codex" else ():
            self._files.get(thread, {}).pop(path, None)

    def where(self, path: str) -> str:
        """The place of a file now, should it have been archived or compressed."""
        stem = _stem(path)
        for thread in _threads(path)[:1]:
            for one in sorted(self._files.get(thread, {}), key=len):
                if _stem(one) == stem:
                    return one
        return path

    def borrow(self, state: SessionState, agent: str, first: bytes) -> None:
        """Take in the history that a file's first line says comes before it."""
        self._borrow(state, agent, first, [state.file])

    def _borrow(self, state: SessionState, agent: str, first: bytes, younger: list[str]) -> None:
        adapter = ADAPTERS[agent]
        base = adapter.base(first)
        if base is None or len(younger) > GENERATIONS:
            return
        for one in self._candidates(base, younger):
            try:
                with source_of(agent, one).lines(one) as lines:
                    if lines.at(base.end - 1, 1) != b"\n":
                        continue
                    head = lines.at(0, min(base.end, CHUNK)).partition(b"\n")[0]
                    self._borrow(state, agent, head, [*younger, one])
                    for piece in _pieces(lines, base.end):
                        if isinstance(piece, Oversize):
                            adapter.skim_oversize(state, piece)
                        else:
                            adapter.skim(state, piece.data, piece.offset)
                    state.borrowed(one)
                    return
            except (SessionUnreadableError, FileNotFoundError):
                continue
        self._wanted.setdefault(base.session_id, {})[younger[0]] = None

    def _candidates(self, base: Base, younger: list[str]) -> list[str]:
        """Files that the base can be, the newest first: their names begin with their time."""
        found = self._files.get(base.session_id, {})
        return sorted((one for one in found if one not in younger), key=_stem, reverse=True)


def _pieces(lines: Lines, end: int) -> Iterator[Block | Oversize]:
    buffer = LineBuffer(0)
    position = 0
    while position < end:
        data = lines.at(position, min(CHUNK, end - position))
        if not data:
            raise SessionUnreadableError("the base of a forked session is shorter than it was")
        position += len(data)
        yield from buffer.feed(data)


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".zst")


def _threads(path: str) -> list[str]:
    """The ids in a file's name: of the thread, and of a segment."""
    return _UUID.findall(path.rpartition("/")[2])

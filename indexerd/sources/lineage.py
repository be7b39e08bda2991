"""Histories that begin in another file: where that file is, and who begins in it.

Codex forks without copying: a new file names the thread and the bytes of it that come first. The
files of a thread carry its id in their names, so one that was archived or compressed since is
found again, and a base can be read before it was met itself.

Of a thread that was reverted there are several files, and bytes alone do not tell them apart: a
base is the newest that is no younger than its heir, and has a line of the right ordinal end there.
A history that the user excluded is not taken in, at no generation. An heir is to be read anew when
a file comes, or is rewritten, or grows, so that its history may be another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from indexerd.agents import ADAPTERS
from indexerd.agents.base import Oversize
from indexerd.agents.codex.lines import ordinal_of
from indexerd.errors import SessionUnreadableError
from indexerd.events import Base, Header
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.info import SessionInfo, base_name
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import LINE_MAX, Block, LineBuffer
from indexerd.sources.memory import Tracked
from indexerd.sources.source import Lines
from indexerd.sources.sources import source_of
from indexerd.times import iso_ms

CHUNK = 4 * 1024 * 1024
HEAD = LINE_MAX + 1  # bytes in which a first line is looked for
GENERATIONS = 32  # files that one history may be spread over
LAST = 4096  # bytes in which the last line before an end is looked for, at first
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIMED = len("rollout-2026-11-22T12-00-00")  # characters of a name that tell its time
_FOUND, _UNKNOWN = 0, -1  # instead of the byte at which the history that an heir lacks ends


@dataclass(frozen=True, slots=True)
class _Elder:
    """A file that fits."""

    path: str
    head: bytes
    cwd: str
    born_ms: int


class Lineage:
    """The files of every thread, by name, and their heirs. One thread uses this."""

    def __init__(self, excluded: Callable[[str, str], bool]) -> None:
        """`excluded(path, cwd)` says whether the user excluded a file."""
        self._excluded = excluded
        self._files: dict[str, dict[str, None]] = {}  # thread id -> paths
        self._heirs: dict[str, dict[str, int]] = {}  # thread id -> heirs, and the end they lack
        self._begins: dict[str, set[str]] = {}  # heir -> thread ids

    # -- where files are -----------------------------------------------------------------

    def note(self, agent: str, path: str) -> list[str]:
        """A file is there; says which heirs its coming may concern."""
        if agent != "codex":
            return []
        heirs: dict[str, None] = {}
        for thread in _threads(path):
            files = self._files.setdefault(thread, {})
            if path not in files:
                if not any(base_name(one) == base_name(path) for one in files):
                    heirs |= {
                        heir: None
                        for heir, end in self._heirs.get(thread, {}).items()
                        if end != _FOUND or _time(path) <= _time(heir)
                    }
                files[path] = None
        heirs.pop(path, None)
        return list(heirs)

    def changed(self, file: Tracked, start: int, *, anew: bool) -> list[str]:
        """A file was read on from a byte, or (`anew`) from its start; says as above."""
        stop, made = file.tail.cursor.offset if file.tail.cursor else start, dict[str, None]()
        for thread in _threads(file.path) if file.agent == "codex" else ():
            for heir, end in self._heirs.get(thread, {}).items():
                if heir != file.path and (anew or end == _UNKNOWN or start < end <= stop):
                    made[heir] = None
        return list(made)

    def renamed(self, agent: str, old: str, new: str) -> None:
        """A file has another name."""
        begins = {thread: self._heirs[thread][old] for thread in self._begins.get(old, ())}
        self.drop(agent, old)
        for thread, end in begins.items():
            self._inherit(thread, new, end)
        if agent == "codex" and base_name(old) == base_name(new):
            for thread in _threads(new):
                self._files.setdefault(thread, {})[new] = None

    def drop(self, agent: str, path: str) -> None:
        """A file is gone."""
        self._release(path)
        for thread in _threads(path) if agent == "codex" else ():
            self._files.get(thread, {}).pop(path, None)

    def where(self, path: str) -> str:
        """The place of a file now, should it have been archived or compressed."""
        return next(self._places(base_name(path)), path)

    def _places(self, name: str) -> Iterator[str]:
        for thread in _threads(name)[:1]:
            files = list(self._files.get(thread, ()))  # another thread may ask meanwhile
            yield from sorted((one for one in files if base_name(one) == name), key=len)

    # -- who begins where ----------------------------------------------------------------

    def know(self, path: str, card: SessionInfo) -> bool:
        """Take over from a card what its file begins with; says if what it lacks may be there."""
        for name in card.bases:
            for thread in _threads(name)[:1]:
                self._inherit(thread, path, _FOUND)
        if card.wants:
            self._inherit(card.wants, path, _UNKNOWN)
        return any(one != path for one in self._files.get(card.wants, ()))

    def lost(self, card: SessionInfo | None) -> str:
        """What is wrong with a session's history; nothing where all of it is there."""
        if card is None or not (card.bases or card.wants):  # as nearly all are; all are asked
            return ""
        gone = [name for name in card.bases if next(self._places(name), None) is None]
        names = [*([card.wants] if card.wants else []), *gone]
        return f"the history it begins with is gone: {clean_line(names[0], 200)}" if names else ""

    def _inherit(self, thread: str, heir: str, end: int) -> None:
        heirs = self._heirs.setdefault(thread, {})
        heirs[heir] = heirs.get(heir, end) or end
        self._begins.setdefault(heir, set()).add(thread)

    def _release(self, heir: str) -> None:
        for thread in self._begins.pop(heir, ()):
            self._heirs[thread].pop(heir)

    # -- taking a history in -------------------------------------------------------------

    def borrow(self, state: SessionState, agent: str, first: bytes) -> None:
        """Take in the history that a file's first line says comes before it."""
        self._release(state.file)
        header = header_in(agent, state.file, first)
        born = iso_ms(header.created_at) if header else 0
        self._borrow(state, agent, ADAPTERS[agent].base(first), [_Elder(state.file, b"", "", born)])

    def _borrow(
        self, state: SessionState, agent: str, base: Base | None, younger: list[_Elder]
    ) -> None:
        if base is None or len(younger) > GENERATIONS:
            return
        heir = younger[0].path
        elder = self._elder(agent, base, younger)
        if elder is None:
            self._lack(state, base, heir)
            return
        self._inherit(base.session_id, heir, _FOUND)
        if self._excluded(elder.path, elder.cwd):
            state.barred = True
            return
        self._borrow(state, agent, ADAPTERS[agent].base(elder.head), [*younger, elder])
        try:
            with source_of(agent, elder.path).lines(elder.path) as lines:
                take_in(agent, state, _pieces(lines, base.end))
        except SessionUnreadableError:
            self._lack(state, base, heir)
        state.borrowed(elder.path)

    def _lack(self, state: SessionState, base: Base, heir: str) -> None:
        state.wants = base.session_id
        self._inherit(base.session_id, heir, base.end)

    def _elder(self, agent: str, base: Base, younger: list[_Elder]) -> _Elder | None:
        """The newest file that fits."""
        born, met = younger[-1].born_ms, {base_name(one.path) for one in younger}
        paths = [one for one in self._files.get(base.session_id, {}) if base_name(one) not in met]
        fitting = [
            one
            for one in (_fitting(agent, base, path) for path in paths)
            if one is not None and (not born or one.born_ms <= born)
        ]
        # Of one time, as of a file and its compressed copy, the name decides.
        return max(fitting, key=lambda one: (one.born_ms, base_name(one.path)), default=None)


def header_in(agent: str, path: str, first: bytes) -> Header | None:
    """The header that a session's first line holds."""
    state = SessionState(path)
    ADAPTERS[agent].scan(state, first + b"\n", 0)
    return state.header


def cwd_of(agent: str, path: str) -> str:
    """Where a session ran, by its first line; SessionUnreadableError when it is gone."""
    with source_of(agent, path).lines(path) as lines:
        header = header_in(agent, path, lines.at(0, HEAD).partition(b"\n")[0])
    return header.cwd if header else ""


def _fitting(agent: str, base: Base, path: str) -> _Elder | None:
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
    if header is None:
        return _Elder(path, head, "", 0)
    return _Elder(path, head, header.cwd, iso_ms(header.created_at))


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


def take_in(agent: str, state: SessionState, pieces: Iterable[Block | Oversize]) -> None:
    """Take in what was read."""
    adapter = ADAPTERS[agent]
    for piece in pieces:
        if isinstance(piece, Oversize):
            adapter.scan_oversize(state, piece)
        else:
            adapter.scan(state, piece.data, piece.offset)


def _pieces(lines: Lines, end: int) -> Iterator[Block | Oversize]:
    buffer = LineBuffer(0)
    position = 0
    while position < end:
        data = lines.at(position, min(CHUNK, end - position))
        if not data:
            raise SessionUnreadableError("the base of a forked session is shorter than it was")
        position += len(data)
        yield from buffer.feed(data)


def _time(path: str) -> str:
    return base_name(path)[:_TIMED]


def _threads(path: str) -> list[str]:
    """The ids in a file's name: of the thread, and of a segment."""
    return _UUID.findall(path.rpartition("/")[2])

"""Which session trees are in memory, and how the others sleep in the store.

States are kept for the files written to lately; what lives in memory follows what is active,
not what exists. A cursor and the state it belongs to are stored together, or not at all: where
the store takes nothing, a state stays awake until it does (A3).
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from indexerd.errors import IndexerdError, StateError
from indexerd.sessions.info import SessionInfo, pack
from indexerd.sessions.state import SessionState
from indexerd.sources.cursor import Cursor, Look, Verdict, glance
from indexerd.sources.scan import Found
from indexerd.sources.source import Tailing
from indexerd.sources.sources import PLAIN, ZST, source_of
from indexerd.store.owing import Owing
from indexerd.store.store import StateStore

STATES_KEPT = 512  # sessions whose tree stays in memory: 4 KB each, but for long ones
SOME_MORE = 32  # until those that are too many are stored, all in one transaction
ROWS_KEPT = 400_000  # and entries of all these together
WOKEN_KEPT = 48  # and of those that were only looked at since
WOKEN_ROWS = 100_000
REST_MAX = 16  # scans, eight minutes as they are set by default

# What a disk says that fails, a network's too; a mode that is wrong costs no time to find out.
_DISK = {os.strerror(one) for one in (errno.EIO, errno.ENXIO, errno.ESTALE, errno.ETIMEDOUT)}


_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Cursor).decode


class Rest:
    """How long a file is left alone whose disk fails: 1 scan, 2, 4, …, while it is what it was.

    A try may hold up the one thread that reads for half a minute (F21).
    """

    def __init__(self) -> None:
        self._as_it_was: Look | None = None
        self._scans = self._left = 0

    def begin(self, look: Look | None) -> None:
        """A try failed; None where there is no rest: the next scan tries again."""
        again = look is not None and look == self._as_it_was
        self._scans = min(2 * self._scans, REST_MAX) if again else 1
        self._as_it_was, self._left = look, self._scans

    def ends(self, seen: Look) -> bool:
        """Another scan has come; whether the file is to be tried now."""
        self._left -= 1
        return self._left <= 0 or seen != self._as_it_was


class Tracked:
    """One session file: where reading stopped, and what was found.

    There are tens of thousands of them, and few are read: where reading stopped is kept as the
    store keeps it, until somebody asks for `tail`. A stat is compared with it as it is, since a
    cursor's bytes begin with the four numbers of one.
    """

    __slots__ = (
        "_at",
        "_rest",
        "_tail",
        "agent",
        "aside",
        "card",
        "cwd",
        "dirty",
        "excluded",
        "passed",
        "path",
        "problem",
        "rank",
        "session_id",
        "source",
        "state",
        "strict",
        "unreadable",
    )

    def __init__(
        self, path: str, agent: str, cursor: Cursor | None = None, card: SessionInfo | None = None
    ) -> None:
        self.path = path
        self.agent = agent
        self.source = source_of(agent, path)
        self._at = _encode(cursor) if cursor else b""
        self._tail: Tailing | None = None
        self.card = card
        self.state: SessionState | None = None
        self.rank: tuple[Any, ...] = ()  # among files of one session, before their newest entry
        self.strict = False  # every line is to be parsed
        self.dirty = False  # the store does not know this yet
        self.excluded = False
        self.cwd = ""  # of an excluded file's session: the globs may change
        self.session_id = ""  # of such a session: it may be remembered again
        self.passed: Look | None = None  # as it was when its session was found to be excluded
        self.unreadable = ""  # for now
        self._rest: Rest | None = None
        self.problem = ""  # until it changes
        self.aside: Look | None = None  # as it was when it provoked a defect

    @property
    def tail(self) -> Tailing:
        """Where reading stopped."""
        if self._tail is None:
            self._tail = self.source.tail(_decode(self._at) if self._at else None)
        return self._tail

    @property
    def cursor(self) -> Cursor | None:
        """The same, for whoever does not read on."""
        if self._tail is None:
            return _decode(self._at) if self._at else None
        return self._tail.cursor

    @property
    def underway(self) -> bool:
        """Whether a reading was ended by its budget: the next one goes on at once."""
        cursor = self._tail.cursor if self._tail is not None else None
        return cursor is not None and cursor.mtime_ns < 0

    def doze(self) -> None:
        """The store has all there is: keep no more. An unfinished line is read again."""
        if self._tail is not None:
            held = self._tail.cursor
            self._at, self._tail = _encode(held) if held else b"", None
        self.state = None

    def look(self) -> Look | None:
        """What the file is now."""
        return self.source.look(self.path)

    @property
    def stands(self) -> bool:
        """Whether what is at the path now is what was read, and not another file in its place."""
        if self.source is not PLAIN:
            return True
        seen, cursor = self.look(), self.cursor
        if seen is None or cursor is None:
            return False
        return _identity(seen) == _identity(cursor) and seen.size >= cursor.offset

    def moved_to(self, path: str) -> bool:
        """Whether it is at another path now: gone from its own, and what is there is as long.

        A number of a file that was deleted is given to the next one, often at once.
        """
        seen, cursor = self.source.look(path), self.cursor
        if seen is None or cursor is None or seen.size < cursor.offset:
            return False
        return self.look() is None

    def _stands_at(self, seen: Found) -> bool:
        """Whether all of the file, as it was seen, is read."""
        if self._tail is None:
            return self._at.startswith(_encode(seen[1:])[1:], 1)
        cursor = self._tail.cursor
        return cursor is not None and glance(cursor, Look(*seen[1:])) is Verdict.SAME

    def differs(self, found: Found) -> bool:
        """Whether the file, as a scan saw it, is to be looked at. Asked once a scan."""
        if not (self.excluded or self.unreadable or self.aside):
            return not self._stands_at(found)
        seen = Look(*found[1:])
        if self.aside == seen or (self.excluded and self.passed in (None, seen)):
            return False
        if self.unreadable:
            return self._rest is None or self._rest.ends(seen)
        return self.excluded or not self._stands_at(found)

    def failed(self, bad: IndexerdError) -> None:
        """Reading failed: the next scans leave the file alone, if it is the disk that fails."""
        self.unreadable = str(bad)
        self._rest = self._rest or Rest()
        self._rest.begin(self.look() if bad.upstream in _DISK else None)

    def healed(self) -> None:
        """Reading went well."""
        self.unreadable, self.aside, self._rest = "", None, None

    def begin_anew(self) -> None:
        """Forget what was read: the next reading begins at the start."""
        self._at, self._tail, self.state = b"", None, None

    def hide(self) -> str:
        """The user excluded this file: forget all that is known of it. Says whose it was."""
        was, header, cursor = self.card, self.state.header if self.state else None, self.cursor
        self.excluded, self.cwd = True, was.cwd if was else header.cwd if header else ""
        if cursor is not None and self.source not in (PLAIN, ZST):  # it may run elsewhere later
            self.passed = Look(cursor.dev, cursor.ino, cursor.size, cursor.mtime_ns)
        self.card, self.dirty = None, False
        self.begin_anew()
        self.session_id = was.session_id if was else header.session_id if header else ""
        return self.session_id

    def renamed(self, path: str, agent: str) -> None:
        """The same file has another name. An id may be in it: then it is read anew."""
        other = path.rpartition("/")[2] != self.path.rpartition("/")[2]
        self.path, self.agent = path, agent
        if other and agent != "pi":
            self.begin_anew()
        elif self.state is not None:
            self.state.file = path


class Inodes:
    """Plain files by their inode, by which they are known again after a move."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}

    def keep(self, file: Tracked, cursor: Cursor | None = None) -> None:
        """A file was read (up to there, where that is at hand), and is where it says."""
        cursor = (cursor or file.cursor) if file.source is PLAIN else None
        if cursor is not None:
            self._paths[_identity(cursor)] = file.path

    def drop(self, file: Tracked) -> None:
        """A file is gone."""
        cursor = file.cursor
        key = _identity(cursor) if cursor else 0
        if key and self._paths.get(key) == file.path:
            del self._paths[key]

    def find(self, agent: str, path: str) -> str | None:
        """Where the file at a path was when it was read last."""
        source = source_of(agent, path)
        seen = source.look(path) if source is PLAIN else None
        return self._paths.get(_identity(seen)) if seen else None


def _identity(seen: Cursor | Look) -> int:
    """Device and inode, as one number."""
    return seen.dev << 64 | seen.ino


class Memory:
    """Files whose state is awake, newest last."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.owing = Owing(store)
        self._awake: OrderedDict[str, Tracked] = OrderedDict()
        self._rows: dict[str, int] = {}  # entries of each of these, as it was kept last
        self._sum = 0  # of these: it is asked for at every look
        self._woken: OrderedDict[str, Tracked] = OrderedDict()  # out of the store, and not read on

    def keep(self, file: Tracked) -> None:
        """A file was read just now."""
        self._woken.pop(file.path, None)
        self._awake[file.path] = file
        self._awake.move_to_end(file.path)
        rows = 0 if file.state is None else len(file.state)
        self._sum += rows - self._rows.get(file.path, 0)
        self._rows[file.path] = rows

    def drop(self, path: str) -> None:
        """A file is not to be stored any more under this path."""
        self._awake.pop(path, None)
        self._sum -= self._rows.pop(path, 0)
        self._woken.pop(path, None)

    def wake(self, file: Tracked, path: str | None = None) -> bool:
        """Bring a file's state back from the store; says whether it is there, and can be had."""
        if file.state is not None:
            return True
        if self.owing.is_gone(path or file.path):
            return False
        try:
            read = partial(SessionState.decode, file=file.path)
            file.state = self._store.state(path or file.path, read)
        except StateError:
            return False
        if file.state is None:
            return False
        self._woken[file.path] = file
        self._let_go()
        return True

    def _let_go(self) -> None:
        """Of what was woken keep the newest: whoever goes through all sessions wakes them all."""
        rows = sum(len(one.state) for one in self._woken.values() if one.state is not None)
        while len(self._woken) > 1 and (len(self._woken) > WOKEN_KEPT or rows > WOKEN_ROWS):
            oldest = self._woken.popitem(last=False)[1]
            rows -= len(oldest.state) if oldest.state is not None else 0
            if oldest.dirty:
                self.keep(oldest)
            else:
                oldest.doze()

    def rest(self) -> None:
        """Let the sessions that were silent longest sleep in the store, once it takes them."""
        count, rows = len(self._awake), self._sum
        if count <= STATES_KEPT + SOME_MORE and rows <= ROWS_KEPT:
            return
        leaving: list[Tracked] = []
        for path, file in self._awake.items():
            if count - len(leaving) <= STATES_KEPT and rows <= ROWS_KEPT:
                break
            if file.underway:  # it would be woken at once, and a long line read from its start
                continue
            leaving.append(file)
            rows -= self._rows[path]
        if not leaving or not self.owing.write(partial(self._put, leaving)):
            return
        for file in leaving:
            self.drop(file.path)
            file.doze()

    def checkpoint(self) -> None:
        """Bring the store up to date; raises StateError where it cannot be written."""
        self.owing.settle(partial(self._put, chain(self._awake.values(), self._woken.values())))

    def _put(self, files: Iterable[Tracked]) -> None:
        dirty = [file for file in files if file.dirty]
        rows = [
            (
                file.path,
                cursor,
                pack(file.card) if file.card else b"",
                None if file.state is None else file.state.encode(),
            )
            for file in dirty
            if (cursor := file.cursor) is not None
        ]
        self._store.put_files(rows)
        for file in dirty:
            file.dirty = False

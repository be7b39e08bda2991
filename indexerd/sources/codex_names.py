"""Names of codex's threads, which newer rollouts do not hold, and where a thread's file is.

Two places beside the sessions know names. `session_index.jsonl` is appended to, and sometimes
rewritten; the last line of an id wins, and an empty name clears. `state_<n>.sqlite` holds
a row for each thread. Either may be missing, or be behind: releases differ in which they write.
So of the two the one that was written later wins, except that a row without a name says nothing
(the database is made anew from rollouts, and these have no names). A row's `title` counts as its
name only where it is not just the first message. Where the thread's file is, is a hint alone.

Nothing here is ever written, and nothing is read while the files' stats are what they were.
Names are other people's words: they come out as one clean line.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from indexerd.agents.base import Oversize
from indexerd.agents.lines import safe_line
from indexerd.errors import SessionUnreadableError
from indexerd.privacy.sanitize import scrub
from indexerd.sources import foreign_db
from indexerd.sources.cursor import Look, is_same
from indexerd.sources.tail import Tail, look
from indexerd.times import iso_ms

INDEX = "session_index.jsonl"
THREADS_MAX = 100_000  # rows looked at, the newest
_DATABASE = re.compile(r"state_(\d{1,9})\.sqlite")
_COLUMNS = ("rollout_path", "name", "title", "first_user_message", "preview")
_TIMES = ("updated_at_ms", "updated_at")


@dataclass(frozen=True, slots=True)
class _Said:
    """A name as one place has it, and when that place was written."""

    name: str | None
    ms: int


class _Line(msgspec.Struct):
    """A line of the index; of another shape, it is passed over."""

    id: str
    thread_name: str | None = None
    updated_at: str = ""


_decode = msgspec.json.Decoder(_Line).decode


class Names:
    """The names in one CODEX_HOME. One thread uses this."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._index = _Index(f"{root}/{INDEX}")
        self._threads = _Threads(root)
        self._names: dict[str, str] = {}  # an empty one was taken back
        self._unasked = False  # whether there are names that were not yet looked for here

    def remember(self, names: Mapping[str, str]) -> None:
        """Names from another time: one that is found nowhere at the next look was taken back."""
        self._names = {**names, **self._names}
        self._unasked = True

    def refresh(self) -> set[str]:
        """Look again; ids of the threads whose name is another than before."""
        if not os.path.isdir(self._root):  # noqa: PTH112 - as below
            return set()  # moved, or not mounted: nobody took a name back
        if not (self._index.refresh() | self._threads.refresh() | self._unasked):
            return set()
        old, self._unasked = self._names, False
        self._names = dict.fromkeys(old, "") | self._merged()
        return {one for one, name in self._names.items() if old.get(one, "") != name}

    def name(self, thread_id: str) -> str | None:
        """A thread's name, as of the last look; empty where it was taken back, None if unknown."""
        return self._names.get(thread_id)

    def rollout(self, thread_id: str) -> str | None:
        """Where codex says a thread's file is: absolute, and perhaps not true any more."""
        return self._threads.rollouts.get(thread_id)

    def _merged(self) -> dict[str, str]:
        found = {}
        for thread_id in self._index.said.keys() | self._threads.said.keys():
            said = self._index.said.get(thread_id), self._threads.said.get(thread_id)
            newest = max((one for one in said if one), key=lambda one: one.ms)
            found[thread_id] = newest.name or ""
        return found


class _Index:
    """`session_index.jsonl`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tail = Tail()
        self.said: dict[str, _Said] = {}

    def refresh(self) -> bool:
        """Read what was appended; whether anything may be another than before."""
        now, held = look(self._path), self._tail.cursor
        if now is None:
            gone, self._tail, self.said = bool(self.said), Tail(), {}
            return gone
        if held is not None and is_same(held, now):
            return False
        with suppress(SessionUnreadableError, FileNotFoundError):
            more = True
            while more:
                more = self._read()
        return True

    def _read(self) -> bool:
        read = self._tail.read(self._path)
        if read.verdict.restart:
            self.said = {}
        for piece in read.lines:
            for line in () if isinstance(piece, Oversize) else piece.data.split(b"\n"):
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    held = _decode(line)
                    name = safe_line(scrub(held.thread_name or "")) or None
                    self.said[held.id] = _Said(name, iso_ms(held.updated_at))
        return read.more


class _Threads:
    """The newest `state_<n>.sqlite`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._seen: tuple[str, Look | None, Look | None] = ("", None, None)
        self._listed: int | None = None  # the directory's mtime when its names were looked at
        self._path = ""
        self.said: dict[str, _Said] = {}
        self.rollouts: dict[str, str] = {}

    def refresh(self) -> bool:
        """Read the rows again if anything was written; whether they may be others than before."""
        path = self._newest()
        # What is not yet in the database stands in the file beside it.
        seen = (path, look(path), look(f"{path}-wal"))
        if seen == self._seen:
            return False
        if seen[1] is None:
            self.said, self.rollouts, self._seen = {}, {}, seen
            return True
        try:
            self.said, self.rollouts = foreign_db.reading(path, _rows_of)
        except (SessionUnreadableError, FileNotFoundError):
            return False  # what was known stays known, and the next look tries again
        self._seen = seen
        return True

    def _newest(self) -> str:
        """The database with the highest number; the directory is listed when it changed."""
        try:
            changed = os.stat(self._root).st_mtime_ns  # noqa: PTH116 - it may be a symlink
        except OSError:
            self._listed, self._path = None, ""
            return ""
        if changed != self._listed:
            with suppress(OSError):
                names = os.listdir(self._root)  # noqa: PTH208 - paths here are text
                numbers = [int(one[1]) for one in map(_DATABASE.fullmatch, names) if one]
                self._path = f"{self._root}/state_{max(numbers)}.sqlite" if numbers else ""
                self._listed = changed
        return self._path


def _rows_of(database: sqlite3.Connection) -> tuple[dict[str, _Said], dict[str, str]]:
    """Every thread's name, where it has one, and file."""
    columns = {str(row[1]) for row in database.execute("PRAGMA table_info(threads)")}
    if "id" not in columns:
        return {}, {}
    time = next((one for one in _TIMES if one in columns), "0")
    wanted = ", ".join(one if one in columns else "NULL" for one in _COLUMNS)
    rows = database.execute(
        f"SELECT id, {time}, {wanted} FROM threads ORDER BY 2 DESC LIMIT ?",  # noqa: S608 - our own words
        (THREADS_MAX,),
    )
    said: dict[str, _Said] = {}
    rollouts: dict[str, str] = {}
    for thread_id, at, rollout, name, title, *first in rows:
        if not isinstance(thread_id, str):
            continue
        called = _line(name) or _title(title, first)
        if called:
            ms = at if isinstance(at, int) else 0
            said[thread_id] = _Said(called, ms if time == _TIMES[0] else ms * 1000)
        if isinstance(rollout, str) and rollout.startswith("/"):
            rollouts[thread_id] = rollout
    return said, rollouts


def _title(title: Any, first: list[Any]) -> str:
    """A title that someone gave, and not codex itself from the first message."""
    called, said = _line(title), [_line(one) for one in first if isinstance(one, str)]
    if not said or any(one.startswith(called.rstrip("….")) for one in said):
        return ""
    return called


def _line(text: Any) -> str:
    return safe_line(scrub(text)) if isinstance(text, str) else ""

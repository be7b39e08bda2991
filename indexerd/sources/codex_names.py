"""Names of Codex's threads, which newer rollouts do not hold.

Two places beside the sessions know names. In `session_index.jsonl` the last line of an id wins,
and an empty name clears. `state_<n>.sqlite` holds a row for each thread. Releases differ in which
they write: of the two the one that was written later wins, except that a row without a name says
nothing. A row's `title` counts as its name only where it is not just the first message.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from indexerd.agents.json_lines import parse_object, safe_line, string
from indexerd.errors import SessionUnreadableError
from indexerd.sources.cursor import Look
from indexerd.sources.foreign_db import reading
from indexerd.sources.tail import look, opened
from indexerd.times import iso_ms

INDEX = "session_index.jsonl"
INDEX_MAX = 64 * 1024 * 1024  # bytes that are read of it
THREADS_MAX = 100_000  # rows looked at, the newest
_DATABASE = re.compile(r"state_(\d{1,9})\.sqlite")
_COLUMNS = ("name", "title", "first_user_message", "preview")
_TIMES = {"updated_at_ms": "updated_at_ms", "updated_at": "updated_at * 1000"}

Said = dict[str, tuple[int, str]]  # by thread id: when, in ms, and which name; empty: none


class Names:
    """The names in one CODEX_HOME. One thread uses this."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._places: dict[str, tuple[Look | None, Look | None]] = {}  # as they were when read
        self._said: dict[str, Said] = {}  # by place
        self._names: dict[str, str] = {}  # an empty one was taken back

    def name(self, thread_id: str) -> str | None:
        """A thread's name, as of the last look; empty where it was taken back, None if unknown."""
        return self._names.get(thread_id)

    def refresh(self) -> set[str]:
        """Look again; ids of the threads whose name is another than before."""
        try:
            files = os.listdir(self._root)  # noqa: PTH208 - paths here are text
        except OSError:
            return set()  # moved, or not mounted: nobody took a name back
        numbers = [int(one[1]) for one in map(_DATABASE.fullmatch, files) if one]
        names = [INDEX, *(f"state_{one}.sqlite" for one in sorted(numbers)[-1:])]
        paths = [f"{self._root}/{one}" for one in names]
        # What is not yet in the database stands in the file beside it.
        places = {path: (look(path), look(f"{path}-wal")) for path in paths}
        if places == self._places:
            return set()
        said: dict[str, Said] = {}
        for path, seen in places.copy().items():
            said[path] = self._said.get(path, {})
            if seen != self._places.get(path):
                try:
                    said[path] = _read(path)
                except (SessionUnreadableError, OSError):
                    del places[path]  # what was known stays known, and the next look tries again
        self._places, self._said = places, said
        found: Said = {}
        for one in said.values():
            found |= {key: max(held, found.get(key, held)) for key, held in one.items()}
        old = self._names
        self._names = dict.fromkeys(old, "") | {key: name for key, (_, name) in found.items()}
        return {one for one, name in self._names.items() if old.get(one, "") != name}


def _read(path: str) -> Said:
    try:
        return dict(_lines_of(path)) if path.endswith(INDEX) else reading(path, _rows_of)
    except FileNotFoundError:
        return {}


def _lines_of(path: str) -> Iterator[tuple[str, tuple[int, str]]]:
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        for line in file.read(INDEX_MAX).split(b"\n")[:-1]:  # a torn last line waits
            with suppress(ValueError):
                held = parse_object(line)
                if isinstance(held.get("id"), str):
                    at, name = iso_ms(string(held.get("updated_at"))), held.get("thread_name")
                    yield held["id"], (at, safe_line(string(name)))


def _rows_of(database: sqlite3.Connection) -> Said:
    """Every thread's name, where it has one."""
    columns = {str(row[1]) for row in database.execute("PRAGMA table_info(threads)")}
    if "id" not in columns:
        return {}
    at = next((how for one, how in _TIMES.items() if one in columns), "0")
    wanted = ", ".join(one if one in columns else "NULL" for one in _COLUMNS)
    rows = database.execute(
        f"SELECT id, {at}, {wanted} FROM threads ORDER BY 2 DESC LIMIT {THREADS_MAX}"  # noqa: S608 - our own words
    )
    said: Said = {}
    for thread_id, ms, name, title, *first in rows:
        called = safe_line(string(name)) or _title(title, first)
        if called and isinstance(thread_id, str):
            said[thread_id] = (ms if isinstance(ms, int) else 0, called)
    return said


def _title(title: Any, first: list[Any]) -> str:
    """A title that someone gave, and not Codex itself from the first message."""
    called, said = safe_line(string(title)), [safe_line(one) for one in map(string, first) if one]
    own = not said or any(one.startswith(called.rstrip("….")) for one in said)
    return "" if own else called

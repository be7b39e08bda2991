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
from indexerd.sources.foreign_db import reading
from indexerd.sources.tail import Look, look, opened
from indexerd.times import iso_ms

INDEX = "session_index.jsonl"
INDEX_MAX = 64 * 1024 * 1024  # bytes that are read of it
THREADS_MAX = 100_000  # rows that are read
_DATABASE = re.compile(r"state_(\d{1,9})\.sqlite")

_Said = tuple[str, tuple[int, str]]  # a thread's id; when its name was set, in ms, and the name


class Names:
    """The names in one CODEX_HOME. One thread uses this."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._looks: list[Look | None] = []  # at the files when they were read
        self._names: dict[str, str] = {}  # empty: cleared

    def name(self, thread_id: str) -> str | None:
        """A thread's name at the last look; empty if it was cleared, None if unknown."""
        return self._names.get(thread_id)

    def refresh(self) -> set[str]:
        """Look again; return the ids of threads whose name changed.

        What cannot be read changes nothing, and is read at the next look.
        """
        try:
            files = os.listdir(self._root)  # noqa: PTH208 - paths here are text
        except OSError:
            return set()  # moved, or not mounted: nobody cleared a name
        numbers = [int(one[1]) for one in map(_DATABASE.fullmatch, files) if one]
        index = f"{self._root}/{INDEX}"
        database = f"{self._root}/state_{max(numbers, default=0)}.sqlite"
        looks = [look(one) for one in (index, database, f"{database}-wal")]
        if looks == self._looks:
            return set()
        try:
            found = dict(_lines_of(index)) if looks[0] else {}
            rows = reading(database, lambda db: dict(_rows_of(db))) if looks[1] else {}
        except (SessionUnreadableError, OSError):
            return set()
        found |= {key: max(one, found.get(key, one)) for key, one in rows.items()}
        old, self._looks = self._names, looks
        self._names = dict.fromkeys(old, "") | {key: name for key, (_, name) in found.items()}
        return {one for one, name in self._names.items() if old.get(one, "") != name}


def _lines_of(path: str) -> Iterator[_Said]:
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        for line in file.read(INDEX_MAX).split(b"\n")[:-1]:  # a torn last line waits
            with suppress(ValueError):
                held = parse_object(line)
                if isinstance(held.get("id"), str):
                    at, name = iso_ms(string(held.get("updated_at"))), held.get("thread_name")
                    yield held["id"], (at, safe_line(string(name)))


def _rows_of(database: sqlite3.Connection) -> Iterator[_Said]:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'threads'").fetchone():
        return
    database.row_factory = sqlite3.Row  # columns vary by release
    for row in map(dict, database.execute(f"SELECT * FROM threads LIMIT {THREADS_MAX}")):  # noqa: S608 - a number
        thread_id, seconds, ms = map(row.get, ("id", "updated_at", "updated_at_ms"))
        if not isinstance(ms, int):
            ms = seconds * 1000 if isinstance(seconds, int) else 0
        called = safe_line(string(row.get("name"))) or _title(row)
        if called and isinstance(thread_id, str):
            yield thread_id, (ms, called)


def _title(row: dict[str, Any]) -> str:
    """A title that somebody gave, not one that Codex took from the first message."""
    called = safe_line(string(row.get("title")))
    first = [string(row.get(one)) for one in ("first_user_message", "preview")]
    said = [safe_line(one) for one in first if one]
    own = not said or any(one.startswith(called.rstrip("….")) for one in said)
    return "" if own else called

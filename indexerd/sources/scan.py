"""Find all sessions, in files and databases, and the names that agents keep next to them.

The periodic scan finds by `stat` alone what file events missed. It opens no session file, follows
no symbolic link below a root, and raises no OSError. Paths are strings with surrogate escapes, as
from `os.fsdecode`, so that names of any bytes survive.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from indexerd.agents.json_lines import parse_object, safe_line, string
from indexerd.errors import SessionUnreadableError
from indexerd.meta.model import DIGEST_SUFFIX
from indexerd.paths import within
from indexerd.sources.foreign_db import reading
from indexerd.sources.history import history_at
from indexerd.sources.opencode import Database, look_at_tree
from indexerd.sources.roots import SUFFIXES, SUFFIXES_OF, Layout, SessionRoot
from indexerd.sources.tail import Look, look, opened
from indexerd.times import iso_ms

MAX_FILES = 500_000
PAUSE = 0.5  # seconds between reads of databases, to which a turn writes many times a second
UNREADABLE = (  # a cure
    "check its mode and owner; if it is damaged, restore a backup; every scan tries it again"
)
INDEX = "session_index.jsonl"
INDEX_MAX = 64 * 1024 * 1024  # bytes of it that are read
_UUID = 36  # characters with which the name of an agent's file ends
THREADS_MAX = 100_000  # rows that are read
DESCRIPTION_MAX = 64 * 1024  # bytes of its file that are read
_DATABASE = re.compile(r"state_(\d{1,9})\.sqlite")

_Title = tuple[str, tuple[int, str]]  # a thread's id; the ms when its name was set, and the name


@dataclass(slots=True)
class ScanResult:
    """The sessions that one scan found."""

    files: dict[str, Look] = field(default_factory=dict)
    unreadable: dict[str, tuple[str, str]] = field(default_factory=dict)  # path -> cause, cure
    missing: list[str] = field(default_factory=list)  # roots that were moved or are not mounted
    partial: bool = False  # there are more than MAX_FILES

    def unseen(self, path: str) -> bool:
        """Return whether the scan could not reach a path, so that its absence means nothing."""
        return self.partial or any(within(path, root) for root in (*self.unreadable, *self.missing))


class SessionDiscovery:
    """Finds sessions below the roots. For one thread."""

    def __init__(self) -> None:
        self.again_at = math.inf  # when to call `hinted` again without hints, by `monotonic`
        self._looked_at = 0.0  # when databases were last read
        self._late: set[str] = set()  # databases hinted at but not read yet
        self._databases: dict[str, Database] = {}
        self._names: dict[str, CodexNames] = {}
        self._histories: list[str] = []

    def renew(self, roots: list[SessionRoot]) -> None:
        """Replace the roots, keeping what is known of those that stay."""
        paths = [root.sessions for root in roots if root.layout is Layout.DATABASE]
        self._databases = {path: self._databases.get(path) or Database(path) for path in paths}
        self._histories = [root.sessions for root in roots if root.layout is Layout.HISTORY]
        homes = {root.data_dir for root in roots if root.agent == "codex"}
        self._names = {home: self._names.get(home) or CodexNames(home) for home in sorted(homes)}

    def title(self, agent: str, session_id: str) -> str | None:
        """Return the name that Codex keeps outside a session; "" if it was cleared."""
        if agent != "codex":
            return None
        titles = [names.name(session_id) for names in self._names.values()]
        return max((name for name in titles if name is not None), key=bool, default=None)

    def retitled(self) -> set[str]:
        """Return the sessions whose outside name changed since the last call."""
        return set().union(*(names.refresh() for names in self._names.values()))

    def scan(
        self, roots: list[SessionRoot], enter: Callable[[str], object] = lambda _path: None
    ) -> ScanResult:
        """Find every session; call `enter(path)` before a directory is listed."""
        files = {r.sessions: SUFFIXES_OF[r.layout] for r in roots if r.layout in SUFFIXES_OF}
        result = scan(files, enter)
        for path in [path for path in result.files if path.endswith((DIGEST_SUFFIX, ".json"))]:
            del result.files[path]  # a meta directory may be below a root
            if path.endswith(".json") and (seen := look_at_tree(path)):
                result.files[path] = seen
        for path, database in self._databases.items():
            try:
                result.files |= database.sessions()
            except FileNotFoundError:
                place = path.rpartition("/")[0]
                if not os.path.isdir(place):  # noqa: PTH112 - paths here are text
                    result.missing.append(place)
            except SessionUnreadableError as bad:
                result.unreadable[path] = str(bad), vars(bad).get("hint", UNREADABLE)
        return result

    def prompts_only(self, files: Iterable[str]) -> Iterator[tuple[str, str, str, str, Look]]:
        """Yield sessions of which only prompts are left, as none of these files is theirs.

        Each with the path of its prompts, that of its former file, its id, directory and look.
        """
        histories = [history_at(path).refresh() for path in self._histories]
        there = {path.removesuffix(".zst")[-6 - _UUID : -6] for path in files if histories}
        for history in histories:
            for session_id, cwd, seen in history.old():
                if session_id not in there:
                    file = history.transcript(session_id, cwd)
                    yield f"{history.path}/{session_id}", file, session_id, cwd, seen

    def hinted(self, paths: Iterable[str]) -> tuple[list[str], set[str]]:
        """Turn a watcher's hints into paths of sessions and ids of sessions with a new name."""
        sessions, titled = list[str](), set[str]()
        for path in paths:
            where, _, name = path.rpartition("/")
            base = path.removesuffix("-wal")
            if where in self._names and (name == INDEX or not path.endswith(SUFFIXES)):
                titled |= self._names[where].refresh()
            elif base in self._databases:
                self._late.add(base)
            elif not path.endswith(DIGEST_SUFFIX):
                sessions.append(path)
        now = time.monotonic()
        if now < self._looked_at + PAUSE:
            self.again_at = self._looked_at + PAUSE if self._late else math.inf
            return sessions, titled
        for path in self._late & self._databases.keys():
            self._looked_at = now
            try:
                sessions += self._databases[path].touched()
            except (SessionUnreadableError, FileNotFoundError):
                continue  # the next scan reports it
        self._late, self.again_at = set(), math.inf
        return sessions, titled


def enters(name: str) -> bool:
    """Return whether directories of this name below a root are listed."""
    return not name.startswith(".") and not name.endswith(".jsonl")


def scan(
    roots: Mapping[str, tuple[str, ...]], enter: Callable[[str], object] = lambda _path: None
) -> ScanResult:
    """Stat every file below a root that ends in one of its suffixes and does not start with a dot.

    Calls `enter(path)` before it lists a directory, so that a watcher misses nothing.
    """
    result = ScanResult(missing=[root for root in roots if not os.path.isdir(root)])  # noqa: PTH112 - text
    waiting = [(root, suffixes) for root, suffixes in roots.items() if root not in result.missing]
    while waiting and not result.partial:
        path, suffixes = waiting.pop()
        enter(path)
        try:
            waiting += ((inner, suffixes) for inner in _list(path, suffixes, result))
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed or replaced since it was listed
        except OSError as bad:  # of listing, or of a stat
            result.unreadable[path] = f"cannot be read: {bad.strerror}", UNREADABLE
        result.partial = len(result.files) >= MAX_FILES
    return result


def _list(path: str, suffixes: tuple[str, ...], result: ScanResult) -> list[str]:
    """Add the files of one directory to the result; return the directories in it."""
    inner: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if name.endswith(suffixes):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    seen = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                    result.files[entry.path] = tuple.__new__(Look, seen)  # twice as fast as Look()
            elif entry.is_dir(follow_symlinks=False) and enters(name):
                inner.append(entry.path)
    return inner


class CodexNames:
    """Names of Codex's threads in one CODEX_HOME, which newer rollouts do not contain.

    In `session_index.jsonl` the last line of an id wins, and an empty name clears.
    `state_<n>.sqlite` has a row for each thread. Releases differ in which they write: the later of
    the two wins, but a row without a name does not count. A row's `title` counts as a name only if
    it is not just the first message.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._looks: list[Look | None] = []  # stats of the files when they were read
        self._names: dict[str, str] = {}  # "": cleared

    def name(self, thread_id: str) -> str | None:
        """Return a thread's name as of `refresh`; "" if it was cleared, None if unknown."""
        return self._names.get(thread_id)

    def refresh(self) -> set[str]:
        """Read the files if they changed; return the ids of threads whose name changed.

        If a file cannot be read, nothing changes, and the next call tries again.
        """
        try:
            files = os.listdir(self._root)  # noqa: PTH208 - paths here are text
        except OSError:
            return set()  # moved or not mounted: no name was cleared
        numbers = [int(match[1]) for match in map(_DATABASE.fullmatch, files) if match]
        index = f"{self._root}/{INDEX}"
        database = f"{self._root}/state_{max(numbers, default=0)}.sqlite"
        looks = [look(path) for path in (index, database, f"{database}-wal")]
        if looks == self._looks:
            return set()
        try:
            titles = dict(_lines_of(index)) if looks[0] else {}
            rows = reading(database, lambda db: dict(_rows_of(db))) if looks[1] else {}
        except (SessionUnreadableError, OSError):
            return set()
        titles |= {key: max(called, titles.get(key, called)) for key, called in rows.items()}
        old, self._looks = self._names, looks
        self._names = dict.fromkeys(old, "") | {key: name for key, (_, name) in titles.items()}
        return {thread for thread, name in self._names.items() if old.get(thread, "") != name}


def described(path: str) -> str | None:
    """Read the description of a sub-agent's work, which Claude Code stores beside its session."""
    with (
        suppress(OSError, SessionUnreadableError, ValueError),
        opened(f"{path.removesuffix('.jsonl')}.meta.json") as fd,
    ):
        fields = parse_object(os.read(fd, DESCRIPTION_MAX))
        return safe_line(string(fields.get("description"))) or None
    return None


def _lines_of(path: str) -> Iterator[_Title]:
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        for line in file.read(INDEX_MAX).split(b"\n")[:-1]:  # a torn last line waits
            with suppress(ValueError):
                entry = parse_object(line)
                if isinstance(entry.get("id"), str):
                    at, name = iso_ms(string(entry.get("updated_at"))), entry.get("thread_name")
                    yield entry["id"], (at, safe_line(string(name)))


def _rows_of(database: sqlite3.Connection) -> Iterator[_Title]:
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
    """Return a title that the user gave; "" if Codex took it from the first message."""
    called = safe_line(string(row.get("title")))
    first = [string(row.get(column)) for column in ("first_user_message", "preview")]
    messages = [safe_line(message) for message in first if message]
    derived = not messages or any(message.startswith(called.rstrip("….")) for message in messages)
    return "" if derived else called

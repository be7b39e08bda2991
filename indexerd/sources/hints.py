"""What a watcher heard and nobody looked at yet, and what the system refused it.

In: names of changed files, from any thread. Out: paths to look at, or the wish for a scan. Only
names that a session, a meta file or a database can have are kept, and only so many.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from indexerd.paths import META_SUFFIX, USER_SUFFIX

SUFFIXES = (
    ".jsonl",
    ".jsonl.zst",
    ".json",
    META_SUFFIX,
    USER_SUFFIX,
    *(f".{kind}{part}" for kind in ("db", "sqlite") for part in ("", "-wal")),
)
MAX_HINTS = 50_000  # paths kept between two takes; beyond that a scan is asked for
MEANWHILE = "nothing is lost: the periodic scan finds changes"
LIMITS = {
    errno.ENOSPC: ("watch_limit", "fs.inotify.max_user_watches", 524_288),
    errno.EMFILE: ("watch_instances", "fs.inotify.max_user_instances", 512),
}
Mode = Literal["inotify", "fsevents", "poll"]
Trouble = dict[str, tuple[str, str]]  # code -> cause, cure


class Hints(NamedTuple):
    """Where to look; with `rescan`, everywhere."""

    paths: frozenset[str]
    rescan: bool


class Inbox:
    """What was hinted and not yet taken. Any thread may put, and nothing here raises."""

    def __init__(self, on_dirty: Callable[[], None], suffixes: tuple[str, ...]) -> None:
        self._on_dirty, self._suffixes = on_dirty, suffixes
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._rescan = self._rung = False
        self.overflows, self.wake_error = 0, ""  # the latter: what on_dirty raised last, if it did

    def offer(self, directory: str, name: str) -> None:
        """Take a file's name if it is one of ours."""
        if name.endswith(self._suffixes) and not name.startswith("."):
            self.put(f"{directory}/{name}")

    def put(self, path: str | None) -> None:
        """Take a hint, or None for "scan everything"; wake the taker at the first."""
        with self._lock:
            if path is None or len(self._paths) >= MAX_HINTS:
                self._rescan = True
            else:
                self._paths.add(path)
            if self._rung:
                return
            self._rung = True
        try:
            self._on_dirty()
            self.wake_error = ""
        except Exception as error:  # noqa: BLE001 - theirs; it must not end a watcher's thread (W3)
            self.wake_error = type(error).__name__
            with self._lock:
                self._rung = False  # nobody has heard: the next hint wakes again

    def take(self) -> Hints:
        """Everything since the last call."""
        with self._lock:
            hints, self._paths = Hints(frozenset(self._paths), self._rescan), set()
            self._rescan = self._rung = False
        return hints


def trouble(error: OSError | RuntimeError) -> Trouble:
    """What a refusal means to the user."""
    if isinstance(error, OSError) and error.errno in LIMITS and error.filename is None:
        code, sysctl, enough = LIMITS[error.errno]
        cure = f"sudo sysctl {sysctl}={enough}; {MEANWHILE}"
        return {code: (f"{error.strerror} ({sysctl})", cure)}
    return {"watch_unavailable": (f"the system refuses: {str(error)[:200]!r}", MEANWHILE)}

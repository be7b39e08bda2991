"""Collect file events, which are only hints that a path may have changed.

On Linux the event loop itself reads inotify; on macOS watchdog's Observer reads FSEvents. With
`mode = "poll"`, on other systems, and if the system refuses, the periodic scan finds all changes.

The scan adds each directory before it lists it, and finds a root that appears later. watchdog's
Observer is not used on Linux, because it hides that there were not enough watches for a
subdirectory.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from indexerd.paths import META_SUFFIX, USER_SUFFIX, within
from indexerd.sources.scan import enters, scan

SUFFIXES = (
    *(".jsonl", ".jsonl.zst", ".json", META_SUFFIX, USER_SUFFIX),
    *(f".{kind}{part}" for kind in ("db", "sqlite") for part in ("", "-wal")),
)
LIMITS = {
    errno.ENOSPC: ("watch_limit", "fs.inotify.max_user_watches", 524_288),
    errno.EMFILE: ("watch_instances", "fs.inotify.max_user_instances", 512),
}
_MEANWHILE = "nothing is lost: the periodic scan finds changes"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENAMETOOLONG)
_BUFFER = 1 << 16  # bytes of events read at a time

if sys.platform == "linux":
    from watchdog.observers.inotify_c import InotifyConstants as In
    from watchdog.observers.inotify_c import inotify_add_watch, inotify_init

    _NEW = In.IN_CREATE | In.IN_MOVED_TO
    # IN_ATTRIB: a chmod may make a file readable. Reading a file causes none of these.
    _EVENTS = _NEW | In.IN_MODIFY | In.IN_ATTRIB | In.IN_DELETE | In.IN_MOVED_FROM
    _OPTIONS = In.IN_ONLYDIR | In.IN_DONT_FOLLOW | In.IN_EXCL_UNLINK


class Health(NamedTuple):
    """The state of the watcher. `watched` counts directories (with FSEvents, roots)."""

    mode: str  # inotify, fsevents or poll
    watched: int
    missing: tuple[str, ...]
    problems: tuple[tuple[str, str, str], ...]  # code, cause, cure
    overflows: int


class Watch:
    """Watches directories. Around each scan: `open`, `arm`, `add` from the scan, then `settle`."""

    def __init__(
        self, mode: Literal["auto", "inotify", "poll"], on_dirty: Callable[[], None]
    ) -> None:
        """Create it; `on_dirty` is called when there are hints to `take`."""
        self._mode, self._on_dirty = mode, on_dirty
        self._fd = -1  # of inotify
        self._readable = False
        self._observer: Any = None  # of FSEvents
        self._watched: dict[int, str] = {}  # directories by watch descriptor
        self._trees: tuple[str, ...] = ()
        self._missing: tuple[str, ...] = ()
        self._paths: set[str] = set()
        self._rescan = False
        self._refused: set[int] = set()  # error numbers, since `arm`
        self._problems: tuple[tuple[str, str, str], ...] = ()
        self._overflows = 0

    def open(self) -> None:
        """Start to receive events in the running loop, if not yet started."""
        if self._mode == "poll" or self._fd >= 0 or self._observer:
            return
        if sys.platform == "linux":
            self._fd = inotify_init()
            if self._fd < 0:
                self._refused.add(ctypes.get_errno())
                return
            self._listen()
        elif sys.platform == "darwin":
            from watchdog.observers.fsevents import FSEventsObserver  # noqa: PLC0415 - macOS's

            self._observer = FSEventsObserver()
            self._observer.start()

    def arm(self, trees: Sequence[str], flat: Sequence[str]) -> None:
        """Watch the directories in `flat`; those of `trees` are added by the scan."""
        every = dict.fromkeys((*trees, *flat))
        self._missing = tuple(path for path in every if not os.path.isdir(path))  # noqa: PTH112 - text
        self._trees = tuple(trees)
        for path in flat:
            if path not in self._missing:
                self.add(path)
        if self._observer:
            for path in every.keys() - {*self._missing}:
                self._observer.schedule(self, path, recursive=path in trees)

    def add(self, path: str) -> None:
        if sys.platform == "linux" and self._fd >= 0:
            number = inotify_add_watch(self._fd, os.fsencode(path), _EVENTS | _OPTIONS)
            if number >= 0:
                self._watched[number] = path  # a watch follows a renamed directory
            elif ctypes.get_errno() not in _GONE:
                self._refused.add(ctypes.get_errno())

    def settle(self) -> Health:
        """Return the state of the watcher after all directories were added."""
        self._problems = tuple(map(_refusal, sorted(self._refused)))
        self._refused = set()
        return self.health()

    def health(self) -> Health:
        """Return the state of the watcher as of the last scan."""
        mode = "fsevents" if self._observer else "poll"
        mode = "inotify" if self._fd >= 0 else mode
        return Health(mode, len(self._watched), self._missing, self._problems, self._overflows)

    def take(self) -> tuple[set[str], bool]:
        """Return the paths that may have changed since the last call, and whether to scan.

        Until the call, events wait in the system's queue: a busy reader gets many at once.
        """
        if self._readable:
            self._read()
        hints = self._paths, self._rescan
        self._paths, self._rescan = set(), False
        return hints

    def _listen(self) -> None:
        self._readable = False
        asyncio.get_running_loop().add_reader(self._fd, self._wake)

    def _wake(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        self._readable = True
        self._on_dirty()

    def _read(self) -> None:
        data, at = os.read(self._fd, _BUFFER), 0
        while at < len(data):
            number, mask, _, size = struct.unpack_from("iIII", data, at)
            at += 16 + size
            self._note(number, mask, os.fsdecode(data[at - size : at].rstrip(b"\0")))
        self._listen()

    def _note(self, number: int, mask: int, name: str) -> None:
        directory = self._watched.get(number, "")
        path = f"{directory}/{name}"
        if mask & In.IN_Q_OVERFLOW:
            self._overflows += 1
            self._rescan = True
        elif mask & In.IN_IGNORED:
            self._watched.pop(number, None)
        elif not mask & In.IN_ISDIR:
            self._hint(path)
            self._rescan |= bool(mask & _NEW) and name.endswith(".db")  # opencode's new database
        elif enters(name) and any(within(directory, tree) for tree in self._trees):
            self._rescan |= bool(mask & In.IN_MOVED_FROM)
            if mask & _NEW:
                for inner in scan({path: SUFFIXES}, self.add).files:
                    self._hint(inner)

    def _hint(self, path: str) -> None:
        """Record a path if a session, a meta file or a database may have it."""
        if path.endswith(SUFFIXES) and "/." not in path[path.rfind("/") :]:
            self._paths.add(path)

    def dispatch(self, event: Any) -> None:
        """Record an event of FSEvents; called by its thread."""
        for path in filter(None, (event.src_path, event.dest_path)):
            self._hint(os.fsdecode(path))
            self._rescan |= event.is_directory
        self._on_dirty()

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd, self._readable = -1, False
        if self._observer:
            self._observer.stop()


def _refusal(number: int) -> tuple[str, str, str]:
    """Explain a refusal of the system to the user: code, cause, cure."""
    if number in LIMITS:
        code, sysctl, enough = LIMITS[number]
        cure = f"sudo sysctl {sysctl}={enough}; {_MEANWHILE}"
        return code, f"{os.strerror(number)} ({sysctl})", cure
    return "watch_unavailable", f"file events are not available: {os.strerror(number)}", _MEANWHILE

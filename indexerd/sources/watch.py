"""File events, taken only as hints that a path may have changed.

In: the roots, each time the reconciling scan has run. Out: paths of session and meta files that
may have changed, a wish for a scan where something may have been missed, the watcher's health.
Never reads a file, raises for what the system refuses, or waits without a bound. Where a root is
missing, the nearest directory above it is watched for the one name that leads there.

Linux has `inotify.py`, macOS FSEvents by watchdog's Observer; `mode = "poll"` neither.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from watchdog import events as ev
from watchdog.observers import Observer

from indexerd.paths import META_SUFFIX, USER_SUFFIX, within
from indexerd.sources.scan import Identity, Roots, arrivals, enters, resolve

SUFFIXES = (
    ".jsonl",
    ".jsonl.zst",
    ".json",
    META_SUFFIX,
    USER_SUFFIX,
    *(f".{kind}{part}" for kind in ("db", "sqlite") for part in ("", "-wal")),
)
MAX_HINTS = 50_000  # paths kept between two takes; beyond that a scan is asked for
JOIN_SECONDS = 2.0  # a thread that has not ended by then is left alone (all are daemon threads)
FAILING_REBUILDS, FAILING_SECONDS = 5, 300.0
ARRIVING = 3  # looks at roots that appear while the watcher is armed
LIMITS = {
    errno.ENOSPC: ("watch_limit", "fs.inotify.max_user_watches", 524_288),
    errno.EMFILE: ("watch_instances", "fs.inotify.max_user_instances", 512),
}
_MEANWHILE = "nothing is lost: the periodic scan finds changes"
Mode = Literal["inotify", "fsevents", "poll"]
Trouble = dict[str, tuple[str, str]]  # code -> cause, cure

# What watchdog has to say, `Watch.health` says; the last-resort handler would print it too.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class Problem(NamedTuple):
    """What is wrong with the watcher now; `since` in seconds of the clock given to `Watch`."""

    code: str
    cause: str
    since: float
    cure: str


class Health(NamedTuple):
    """How the watcher does. `watched` counts directories (only roots, with FSEvents)."""

    mode: Mode
    watched: int
    missing: tuple[str, ...]  # roots that are not there, as they were asked for
    problems: tuple[Problem, ...]
    overflows: int
    rebuilds: int  # of threads that died


class Places(NamedTuple):
    """What to watch: trees, directories for their own files alone, and names that may come."""

    roots: Mapping[str, Identity]
    flat: Mapping[str, Identity]
    coming: Mapping[str, set[str]]


class Hints(NamedTuple):
    """Where to look; with `rescan`, everywhere."""

    paths: frozenset[str]
    rescan: bool


class Inbox:
    """What was hinted and not yet taken. Any thread may put, and nothing here raises."""

    def __init__(self, on_dirty: Callable[[], None]) -> None:
        self._on_dirty = on_dirty
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._rescan = self._woken = False
        self.overflows = 0

    def offer(self, directory: str, name: str) -> None:
        """Take a file's name if a session, a meta file or a database can have it."""
        if name.endswith(SUFFIXES) and not name.startswith("."):
            self.put(f"{directory}/{name}")

    def put(self, path: str | None) -> None:
        """Take a hint, or None for "scan everything"; wake the taker at the first."""
        with self._lock:
            if path is None or len(self._paths) >= MAX_HINTS:
                self._rescan = True
            else:
                self._paths.add(path)
            if self._woken:
                return
            self._woken = True
        self._on_dirty()

    def overflow(self) -> None:
        """Events were lost."""
        self.overflows += 1
        self.put(None)

    def take(self) -> Hints:
        """Everything since the last call."""
        with self._lock:
            hints, self._paths = Hints(frozenset(self._paths), self._rescan), set()
            self._rescan = self._woken = False
        return hints


class Driver(Protocol):
    """One system's way to be told of changes."""

    mode: Mode
    trouble: Trouble

    @property
    def count(self) -> int:
        """Directories that are watched."""
        ...

    def alive(self) -> bool:
        """Whether its threads are."""
        ...

    def sync(self, places: Places) -> None:
        """Watch these from now on; whatever is new asks for a scan."""
        ...

    def close(self) -> None:
        """End, or leave what does not end in time."""
        ...


def trouble(error: OSError | RuntimeError) -> Trouble:
    """What a refusal means to the user."""
    if isinstance(error, OSError) and error.errno in LIMITS and error.filename is None:
        code, sysctl, enough = LIMITS[error.errno]
        cure = f"sudo sysctl {sysctl}={enough}; {_MEANWHILE}"
        return {code: (f"{error.strerror} ({sysctl})", cure)}
    return {"watch_unavailable": (f"the system refuses: {str(error)[:200]!r}", _MEANWHILE)}


class FsEvents(ev.FileSystemEventHandler):
    """watchdog's own Observer, which watches whole trees."""

    mode: Mode = "fsevents"

    def __init__(self, inbox: Inbox) -> None:
        if not getattr(Observer, "__module__", "").endswith((".inotify", ".fsevents")):
            raise OSError("neither inotify nor FSEvents")  # kqueue takes a descriptor a file
        self.trouble: Trouble = {}
        self._watched: dict[str, Identity] = {}
        self._flat: frozenset[str] = frozenset()
        self._inbox, self._observer = inbox, Observer()
        self._observer.start()

    @property
    def count(self) -> int:
        """Directories that are watched."""
        return len(self._watched)

    def alive(self) -> bool:
        """Whether its threads are; an emitter that was told to stop has lost its root."""
        threads = [one for one in self._observer.emitters if one.should_keep_running()]
        return all(thread.is_alive() for thread in [self._observer, *threads])

    def sync(self, places: Places) -> None:
        """Watch these; what is coming is found by scans: FSEvents would tell of a whole home."""
        self._flat, roots = frozenset(places.flat), {**places.flat, **places.roots}
        self.trouble = {}
        for emitter in list(self._observer.emitters):
            root = emitter.watch.path
            if roots.get(root) != self._watched.get(root) or not emitter.is_alive():
                self._watched.pop(root, None)
                self._observer.unschedule(emitter.watch)
        for root in roots.keys() - self._watched.keys():
            try:
                self._observer.schedule(self, root, recursive=root not in self._flat)
                self._watched[root] = roots[root]
                self._inbox.put(None)
            except (OSError, RuntimeError) as error:
                self.trouble |= trouble(error)

    def close(self) -> None:
        """End, or leave what does not."""
        stopper = threading.Thread(target=self._observer.stop, daemon=True)  # it joins unbounded
        stopper.start()
        stopper.join(JOIN_SECONDS)
        self._observer.join(JOIN_SECONDS)

    def dispatch(self, event: ev.FileSystemEvent) -> None:
        """Turn one event into hints."""
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            root = max((r for r in tuple(self._watched) if within(path, r)), key=len, default="")
            directory, _, name = path.rpartition("/")
            if not root or (root in self._flat and directory != root):
                continue
            if all(map(enters, directory[len(root) + 1 :].split("/"))):
                if event.is_directory:
                    self._inbox.put(None)
                else:
                    self._inbox.offer(directory, name)


class Watch:
    """The watcher: `arm` it at start and after each scan, `tend` it every few seconds.

    `on_dirty` is called from any thread when there is something to `take` again.
    """

    def __init__(
        self,
        mode: Literal["auto", "inotify", "poll"],
        on_dirty: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._mode, self._clock = mode, clock
        self._inbox = Inbox(on_dirty)
        self._arming, self._closing = threading.Lock(), threading.Event()
        self._driver: Driver | None = None
        self._asked: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._found = Roots()
        self._blocked: Trouble = {}  # why there is no driver
        self._since: dict[str, float] = {}
        self._rebuilds: list[float] = []
        # Process-wide: each of these texts is new, and Python would keep them all for ever.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")

    def arm(self, roots: Sequence[str], flat: Sequence[str] = ()) -> None:
        """Watch what `roots` are now, rebuild what died. Whatever is new asks for a scan.

        Of the directories in `flat` only their own files are watched, not what is below.
        """
        with self._arming:
            self._asked = (tuple(roots), tuple(flat))
            if self._driver is not None and not self._driver.alive():
                self._driver.close()
                self._driver = None
                self._rebuilds.append(self._clock())
                self._inbox.put(None)
            if self._driver is None and self._mode != "poll" and not self._closing.is_set():
                self._blocked = {}
                try:
                    self._driver = self._new_driver()
                except (OSError, RuntimeError) as error:
                    self._blocked = trouble(error)
            for _ in range(ARRIVING):
                if not self._sync():
                    break
        self.health()  # dates what is wrong

    def _new_driver(self) -> Driver:
        if sys.platform == "darwin":
            return FsEvents(self._inbox)
        from indexerd.sources.inotify import Inotify  # noqa: PLC0415 - it is Linux's alone

        return Inotify(self._inbox, self._closing)

    def _sync(self) -> bool:
        """Watch what there is now; say whether more of it has come meanwhile."""
        roots, flat = self._asked
        self._found = resolve(roots)
        real = self._found.real
        alone: dict[str, Identity] = {}
        missing = list(self._found.missing)
        for one in flat:
            found = resolve([one])
            missing += found.missing
            alone |= {
                path: identity for path, identity in found.real.items() if not _in(path, real)
            }
        if self._driver is None:
            return False
        coming = {one: names for one, names in arrivals(missing).items() if not _in(one, real)}
        self._driver.sync(Places(real, alone, coming))
        return any(os.path.isdir(f"{one}/{name}") for one in coming for name in coming[one])  # noqa: PTH112 - text

    def tend(self) -> None:
        """Rebuild what died without waiting for the next scan; cheap."""
        driver = self._driver
        if driver is not None and not driver.alive():
            self.arm(*self._asked)

    def take(self) -> Hints:
        """Where to look since the last call."""
        return self._inbox.take()

    def health(self) -> Health:
        """How it stands; answers at once."""
        driver, now = self._driver, self._clock()
        troubles = dict(driver.trouble if driver is not None else self._blocked)
        self._since = since = {code: self._since.get(code, now) for code in troubles}
        return Health(
            mode=driver.mode if driver is not None else "poll",
            watched=driver.count if driver is not None else 0,
            missing=self._found.missing,
            problems=tuple(Problem(k, why, since[k], cure) for k, (why, cure) in troubles.items()),
            overflows=self._inbox.overflows,
            rebuilds=len(self._rebuilds),
        )

    def failing(self) -> bool:
        """Say whether rebuilding does not help, so that the process must be started anew."""
        recent = [one for one in self._rebuilds if 0 <= self._clock() - one <= FAILING_SECONDS]
        return len(recent) >= FAILING_REBUILDS

    def close(self) -> None:
        """End all threads, or leave them after a bounded wait; nothing is watched any more."""
        self._closing.set()  # ends a walk in progress, too
        with self._arming:
            driver, self._driver = self._driver, None
            if driver is not None:
                driver.close()


def _in(path: str, roots: Mapping[str, Identity]) -> bool:
    return any(within(path, root) for root in roots)

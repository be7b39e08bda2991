"""Hints from the file system: "look there", and never more than that.

In: the roots, each time the reconciling scan has run. Out: paths of session and meta files that
may have changed, a wish for a scan where something may have been missed, the watcher's health.
Never: reads a file, raises for what the system refuses, waits without a bound.

On Linux this uses watchdog's `InotifyFD` with our own callback, not `Observer`. It is not quite
public (so: `>=7.1,<8`, and `_Stock` as the way back), but only there is a sub-directory that
cannot be watched an error (the Observer hides ENOSPC below a root and looks healthy), overflow
a call and not a log line, and an append half the CPU. macOS has FSEvents, by the Observer.
Surprises: a second callback of one id makes watchdog warn with all it knows, so each has its own;
a directory that may not be read is watch -1 and no error; a watch follows a renamed directory;
a recreated root mostly has its old inode number, so a root's end is told by its watch's end.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from watchdog import events as ev
from watchdog.observers import Observer
from watchdog.utils import UnsupportedLibcError

from indexerd.io.scan import Identity, Roots, enters, resolve, tree
from indexerd.paths import META_SUFFIX, USER_SUFFIX, within

try:
    from watchdog.observers import inotify_c
    from watchdog.observers.inotify_c import InotifyConstants as In

    # IN_ATTRIB tells of a chmod that makes a file readable. Reading causes none of these.
    _EVENTS = In.IN_MODIFY | In.IN_ATTRIB | In.IN_CREATE | In.IN_DELETE | In.IN_MOVE
    _OPTIONS = In.IN_ONLYDIR | In.IN_DONT_FOLLOW | In.IN_EXCL_UNLINK
    FAST = callable(inotify_c.InotifyFD)
except (ImportError, AttributeError, UnsupportedLibcError):  # macOS, or another watchdog
    FAST = False

SUFFIXES = (".jsonl", META_SUFFIX, USER_SUFFIX)
MAX_HINTS = 50_000  # paths kept between two takes; beyond that a scan is asked for
JOIN_SECONDS = 2.0  # a thread that has not ended by then is left alone (all are daemon threads)
FAILING_REBUILDS, FAILING_SECONDS = 5, 300.0
MEANWHILE = "nothing is lost: the periodic scan finds changes"
LIMITS = {
    errno.ENOSPC: ("watch_limit", "fs.inotify.max_user_watches", 524_288),
    errno.EMFILE: ("watch_instances", "fs.inotify.max_user_instances", 512),
}
Mode = Literal["inotify", "fsevents", "poll"]
Trouble = dict[str, tuple[str, str]]  # code -> cause, cure

# What watchdog has to say, `Watch.health` says; the last-resort handler would print it too.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class Hints(NamedTuple):
    """Where to look; with `rescan`, everywhere."""

    paths: frozenset[str]
    rescan: bool


class Problem(NamedTuple):
    """What is wrong with the watcher now; `since` in seconds of the clock given to `Watch`."""

    code: str
    cause: str
    since: float
    cure: str


class Health(NamedTuple):
    """How the watcher does. `watched` counts directories (only roots, on the stock Observer)."""

    mode: Mode
    watched: int
    missing: tuple[str, ...]  # roots that are not there, as they were asked for
    problems: tuple[Problem, ...]
    overflows: int
    rebuilds: int  # of threads that died


class _Inbox:
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
        with self._lock:
            hints, self._paths = Hints(frozenset(self._paths), self._rescan), set()
            self._rescan = self._rung = False
        return hints


def _trouble(error: OSError | RuntimeError) -> Trouble:
    if isinstance(error, OSError) and error.errno in LIMITS and error.filename is None:
        code, sysctl, enough = LIMITS[error.errno]
        cure = f"sudo sysctl {sysctl}={enough}; {MEANWHILE}"
        return {code: (f"{error.strerror} ({sysctl})", cure)}
    return {"watch_unavailable": (f"the system refuses: {str(error)[:200]!r}", MEANWHILE)}


class _Inotify:
    """Every directory below the roots, on one inotify descriptor, with one thread.

    Where there is doubt (overflow, a limit, a directory moved away, a root lost) the next `sync`
    walks all roots again, and drops the watches that it did not come by.
    """

    mode: Mode = "inotify"

    def __init__(self, inbox: _Inbox, closing: threading.Event) -> None:
        self._inbox, self._closing, self._lock = inbox, closing, threading.RLock()
        # Each watch's path, and the id of our callback there.
        self.watched: dict[inotify_c.WatchDescriptor, tuple[str, inotify_c.CallbackId]] = {}
        self._roots: dict[str, Identity] = {}
        self._doubt, self._last_id, self._new = True, 0, 0
        self.trouble: Trouble = {}
        self._met = self.trouble  # filled by _add; another one during a full walk
        with open(os.devnull), open(os.devnull), open(os.devnull):  # noqa: PTH123 - as cheap
            pass  # three descriptors are free: InotifyFD leaks the first if it lacks the others
        self._reader = inotify_c.InotifyFD()
        self.alive = self._reader.is_alive
        try:
            self._reader.start()
        except RuntimeError:  # no thread to be had
            self.close()
            raise

    def sync(self, roots: Mapping[str, Identity]) -> None:
        """Watch exactly what is below `roots`; return at once if nothing speaks for a change."""
        with self._lock:
            if roots == self._roots and not self._doubt:
                return
            self._roots, self._doubt, self._met = dict(roots), False, {}
            last, new = self._last_id, self._new
        for root in roots:
            for _ in tree(root, self._add):
                pass
        with self._lock:
            stale = [(wd, id_) for wd, (_, id_) in self.watched.items() if id_ <= last]
            self._reader.remove_callbacks(stale)
            for wd, _ in stale:
                del self.watched[wd]
            self.trouble = self._met
        if self._new != new:
            self._inbox.put(None)  # files may have come to those directories before the watch did

    def close(self) -> None:
        with self._lock:
            if not self._reader.is_alive():  # then nobody is left to close its descriptors
                self._reader._is_reading = False  # noqa: SLF001 - no public way to say so
            self._reader.stop()
        if self._reader.is_alive():
            self._reader.join(JOIN_SECONDS)

    def _add(self, path: str) -> bool:
        """Watch one directory, if that can be; a known watch gets its callback anew.

        The lock is held all the time, because events may come before the registration returns.
        """
        with self._lock:
            if self._closing.is_set():
                return False
            self._last_id += 1
            try:
                mask, id_ = inotify_c.Mask(_EVENTS | _OPTIONS), inotify_c.CallbackId(self._last_id)
                wd = self._reader.add_callback(os.fsencode(path), mask, self, id_)
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
                    self._met.update(_trouble(error))
                    self._doubt = True
                return False
            known = self.watched.pop(wd, None)
            if known is not None:
                self._reader.remove_callbacks([(wd, known[1])])
            if wd == -1:  # EACCES: the scan reports it, and the next sync tries again
                self._reader.remove_callbacks([(wd, id_)])
                self._doubt = True
                return False
            self.watched[wd] = (path, id_)
            self._new += known is None
            return True

    def _lose(self) -> None:
        self._doubt = True
        self._inbox.put(None)

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        """Turn one event into hints (called by the reader thread)."""
        with self._lock:
            directory = self.watched.get(event.wd, ("",))[0]
        name = os.fsdecode(event.name)
        if not directory:
            return
        if not event.mask & In.IN_ISDIR:
            self._inbox.offer(directory, name)
        elif enters(name) and event.mask & In.IN_MOVED_FROM:
            self._lose()
        elif enters(name) and event.mask & (In.IN_CREATE | In.IN_MOVED_TO):
            for path, names in tree(f"{directory}/{name}", self._add):
                for inner in names:
                    self._inbox.offer(path, inner)
            if self._doubt:  # perhaps not all of it could be watched
                self._inbox.put(None)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        """Forget a directory that is gone (called by the reader thread, and by its close)."""
        with self._lock:
            directory = self.watched.pop(wd, ("",))[0]
        if directory in self._roots and not self._closing.is_set():
            self._lose()

    def on_queue_overflow(self) -> None:
        """Events were lost (called by the reader thread)."""
        self._inbox.overflows += 1
        self._lose()


class _Stock(ev.FileSystemEventHandler):
    """watchdog's own Observer: FSEvents on macOS, and the way back on Linux."""

    mode: Mode = "fsevents" if sys.platform == "darwin" else "inotify"

    def __init__(self, inbox: _Inbox, _closing: threading.Event) -> None:
        if not getattr(Observer, "__module__", "").endswith((".inotify", ".fsevents")):
            raise OSError("neither inotify nor FSEvents")  # kqueue takes a descriptor a file
        self.watched: dict[str, Identity] = {}
        self.trouble: Trouble = {}
        self._inbox, self._observer = inbox, Observer()
        self._observer.start()
        logging.getLogger("watchdog.observers.inotify_c").addFilter(self._heard)

    def alive(self) -> bool:
        threads = [self._observer, getattr(self._observer, "_inotify_fd", self._observer)]
        # An emitter that was told to stop has lost its root; one that was not has crashed.
        threads += [one for one in self._observer.emitters if one.should_keep_running()]
        return all(thread.is_alive() for thread in threads)

    def sync(self, roots: Mapping[str, Identity]) -> None:
        trouble: Trouble = {}
        for emitter in list(self._observer.emitters):
            root = emitter.watch.path
            if roots.get(root) != self.watched.get(root) or not emitter.is_alive():
                self.watched.pop(root, None)
                self._observer.unschedule(emitter.watch)
        kinds = [ev.FileModifiedEvent, ev.FileAttribEvent, ev.FileCreatedEvent, ev.FileMovedEvent]
        kinds += [ev.FileDeletedEvent, ev.DirMovedEvent, ev.DirDeletedEvent]
        for root in roots.keys() - self.watched.keys():
            try:
                self._observer.schedule(self, root, recursive=True, event_filter=kinds)
                self.watched[root] = roots[root]
                self._inbox.put(None)
            except (OSError, RuntimeError) as error:
                trouble.update(_trouble(error))
        self.trouble = trouble

    def close(self) -> None:
        logging.getLogger("watchdog.observers.inotify_c").removeFilter(self._heard)
        stopper = threading.Thread(target=self._observer.stop, daemon=True)  # it joins unbounded
        stopper.start()
        stopper.join(JOIN_SECONDS)
        self._observer.join(JOIN_SECONDS)

    def dispatch(self, event: ev.FileSystemEvent) -> None:
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            root = max((r for r in tuple(self.watched) if within(path, r)), key=len, default="")
            directory, _, name = path.rpartition("/")
            ours = root and all(map(enters, directory[len(root) + 1 :].split("/")))
            if ours and event.is_directory:
                self._inbox.put(None)
            elif ours:
                self._inbox.offer(directory, name)

    def _heard(self, record: logging.LogRecord) -> bool:
        if "overflow" in record.getMessage():
            self._inbox.overflows += 1
            self._inbox.put(None)
        return True


class Watch:
    """The watcher: `arm` it at start and after each scan, `tend` it every few seconds.

    `mode` "auto" and "inotify" are the system's own way, "poll" is none at all. `on_dirty` is
    called from any thread when there is something to `take` again; all it may call here is that.
    """

    def __init__(
        self,
        mode: Literal["auto", "inotify", "poll"],
        on_dirty: Callable[[], None],
        clock: Callable[[], float],
        *,
        suffixes: tuple[str, ...] = SUFFIXES,
    ) -> None:
        self._mode, self._clock = mode, clock
        self._inbox = _Inbox(on_dirty, suffixes)
        self._arming, self._closing = threading.Lock(), threading.Event()
        self._driver: _Inotify | _Stock | None = None
        self._asked: tuple[str, ...] = ()
        self._found = Roots()
        self._blocked: Trouble = {}  # why there is no driver
        self._since: dict[str, float] = {}
        self._rebuilds: list[float] = []
        # Process-wide: each of these texts is new, and Python would keep them all for ever.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")

    def arm(self, roots: Sequence[str]) -> None:
        """Watch what `roots` are now, rebuild what died. Whatever is new asks for a scan."""
        with self._arming:
            self._asked = tuple(roots)
            self._found = resolve(self._asked)
            if self._driver is not None and not self._driver.alive():
                self._driver.close()
                self._driver = None
                self._rebuilds.append(self._clock())
                self._inbox.put(None)
            if self._driver is None and self._mode != "poll" and not self._closing.is_set():
                self._blocked = {}
                try:
                    self._driver = (_Inotify if FAST else _Stock)(self._inbox, self._closing)
                except (OSError, RuntimeError) as error:
                    self._blocked = _trouble(error)
            if self._driver is not None:
                self._driver.sync(self._found.real)
        self.health()  # dates what is wrong

    def tend(self) -> None:
        """Rebuild what died without waiting for the next scan; cheap."""
        driver = self._driver
        if driver is not None and not driver.alive():
            self.arm(self._asked)

    def take(self) -> Hints:
        """Where to look since the last call."""
        return self._inbox.take()

    def health(self) -> Health:
        """How it stands; answers at once."""
        driver, now = self._driver, self._clock()
        trouble = dict(driver.trouble if driver is not None else self._blocked)
        if self._inbox.wake_error:
            cause = f"waking the daemon raised {self._inbox.wake_error}"
            trouble["watch_wake_failed"] = (cause, f"report this; {MEANWHILE}")
        self._since = since = {code: self._since.get(code, now) for code in trouble}
        return Health(
            mode=driver.mode if driver is not None else "poll",
            watched=len(driver.watched) if driver is not None else 0,
            missing=self._found.missing,
            problems=tuple(Problem(k, why, since[k], cure) for k, (why, cure) in trouble.items()),
            overflows=self._inbox.overflows,
            rebuilds=len(self._rebuilds),
        )

    def failing(self) -> bool:
        """Say whether rebuilding does not help, so that the process must be started anew (W4)."""
        recent = [one for one in self._rebuilds if 0 <= self._clock() - one <= FAILING_SECONDS]
        return len(recent) >= FAILING_REBUILDS

    def close(self) -> None:
        """End all threads, or leave them after a bounded wait; nothing is watched any more."""
        self._closing.set()  # ends a walk in progress, too
        with self._arming:
            driver, self._driver = self._driver, None
            if driver is not None:
                driver.close()

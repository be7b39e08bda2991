"""Hints from the file system: "look there", and never more than that.

In: the roots, each time the reconciling scan has run. Out: paths of session and meta files that
may have changed, a wish for a scan where something may have been missed, the watcher's health.
Never: reads a file, raises for what the system refuses, waits without a bound. Where a root is
missing, the nearest directory above it is watched for the one name that leads there.

On Linux this uses watchdog's `InotifyFD` with our own callback, not `Observer`. It is not quite
public (so: `>=7.1,<8`, and `Stock` as the way back), but only there is a sub-directory that
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
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from watchdog.utils import UnsupportedLibcError

from indexerd.paths import within
from indexerd.sources.hints import MEANWHILE, SUFFIXES, Hints, Inbox, Mode, Trouble
from indexerd.sources.hints import trouble as refusal
from indexerd.sources.scan import Arrivals, Identity, Roots, arrivals, enters, resolve, tree
from indexerd.sources.watch_stock import Stock

try:
    from watchdog.observers import inotify_c
    from watchdog.observers.inotify_c import InotifyConstants as In

    # IN_ATTRIB tells of a chmod that makes a file readable. Reading causes none of these.
    _EVENTS = In.IN_MODIFY | In.IN_ATTRIB | In.IN_CREATE | In.IN_DELETE | In.IN_MOVE
    _ARRIVALS = In.IN_CREATE | In.IN_MOVED_TO | In.IN_MOVE_SELF
    _OPTIONS = In.IN_ONLYDIR | In.IN_DONT_FOLLOW | In.IN_EXCL_UNLINK
    FAST = callable(inotify_c.InotifyFD)
except (ImportError, AttributeError, UnsupportedLibcError):  # macOS, or another watchdog
    FAST = False

JOIN_SECONDS = 2.0  # a thread that has not ended by then is left alone (all are daemon threads)
FAILING_REBUILDS, FAILING_SECONDS = 5, 300.0
ARRIVING = 3  # looks at roots that appear while it is armed

# What watchdog has to say, `Watch.health` says; the last-resort handler would print it too.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


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


class _Inotify:
    """Every directory below the roots, on one inotify descriptor, with one thread.

    Where there is doubt (overflow, a limit, a directory moved away, a root lost) the next `sync`
    walks all roots again, and drops the watches that it did not come by.
    """

    mode: Mode = "inotify"

    def __init__(self, inbox: Inbox, closing: threading.Event) -> None:
        self._inbox, self._closing, self._lock = inbox, closing, threading.RLock()
        # Each watch's path, and the id of our callback there.
        self.watched: dict[inotify_c.WatchDescriptor, tuple[str, inotify_c.CallbackId]] = {}
        self._roots: dict[str, Identity] = {}
        self._flat: dict[str, Identity] = {}
        self._coming: Arrivals = {}
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

    def sync(
        self, roots: Mapping[str, Identity], flat: Mapping[str, Identity], coming: Arrivals
    ) -> None:
        """Watch what is below `roots`, in `flat`, and for what is `coming`.

        Return at once if nothing has changed.
        """
        with self._lock:
            now = (roots, flat, coming)
            if now == (self._roots, self._flat, self._coming) and not self._doubt:
                return
            self._roots, self._flat, self._coming = dict(roots), dict(flat), dict(coming)
            self._doubt, self._met = False, {}
            last, new = self._last_id, self._new
        for directory in coming.keys() - flat.keys():
            self._add(directory, _ARRIVALS)
        for root in flat:
            self._add(root)
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

    def _add(self, path: str, events: int | None = None) -> bool:
        """Watch one directory, if that can be; a known watch gets its callback anew.

        The lock is held all the time, because events may come before the registration returns.
        """
        with self._lock:
            if self._closing.is_set():
                return False
            self._last_id += 1
            try:
                mask = inotify_c.Mask((events or _EVENTS) | _OPTIONS)
                id_ = inotify_c.CallbackId(self._last_id)
                wd = self._reader.add_callback(os.fsencode(path), mask, self, id_)
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
                    self._met.update(refusal(error))
                    self._doubt = True
                return False
            known = self.watched.pop(wd, None)
            if known is not None:
                self._reader.remove_callbacks([(wd, known[1])])
            if wd == -1:  # EACCES: the scan reports it, and the next sync tries again
                self._reader.remove_callbacks([(wd, id_)])
                self._doubt = self._doubt or events is None
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
        awaited = self._coming.get(directory)
        if awaited is not None and (name in awaited or not name):  # or it is itself moved away
            self._inbox.put(None)
        if not directory or (awaited is not None and directory not in self._flat):
            return
        if event.mask & In.IN_ISDIR:
            self._on_directory(directory, name, event.mask)
        else:
            self._inbox.offer(directory, name)

    def _on_directory(self, directory: str, name: str, mask: int) -> None:
        new = mask & (In.IN_CREATE | In.IN_MOVED_TO)
        if directory in self._flat:
            if new:
                self._inbox.put(None)  # perhaps a root that was missing
        elif enters(name) and mask & In.IN_MOVED_FROM:
            self._lose()
        elif enters(name) and new:
            for path, names in tree(f"{directory}/{name}", self._add):
                for inner in names:
                    self._inbox.offer(path, inner)
            if self._doubt:  # perhaps not all of it could be watched
                self._inbox.put(None)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        """Forget a directory that is gone (called by the reader thread, and by its close)."""
        with self._lock:
            directory = self.watched.pop(wd, ("",))[0]
        ours = any(directory in one for one in (self._roots, self._flat, self._coming))
        if ours and not self._closing.is_set():
            self._lose()

    def on_queue_overflow(self) -> None:
        """Events were lost (called by the reader thread)."""
        self._inbox.overflows += 1
        self._lose()


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
        self._inbox = Inbox(on_dirty, suffixes)
        self._arming, self._closing = threading.Lock(), threading.Event()
        self._driver: _Inotify | Stock | None = None
        self._asked: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._found = Roots()
        self._blocked: Trouble = {}  # why there is no driver
        self._since: dict[str, float] = {}
        self._rebuilds: list[float] = []
        # Process-wide: each of these texts is new, and Python would keep them all for ever.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")

    def arm(self, roots: Sequence[str], flat: Sequence[str] = ()) -> None:
        """Watch what `roots` are now, rebuild what died. Whatever is new asks for a scan.

        Of the directories in `flat` only their own files are watched, not what is below. Where
        something is missing, the nearest directory that is there is watched for it to come.
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
                    self._driver = (_Inotify if FAST else Stock)(self._inbox, self._closing)
                except (OSError, RuntimeError) as error:
                    self._blocked = refusal(error)
            for _ in range(ARRIVING):
                if not self._sync():
                    break
        self.health()  # dates what is wrong

    def _sync(self) -> bool:
        """Watch what there is now; say whether more of it has come meanwhile."""
        roots, flat = self._asked
        self._found = resolve(roots)
        alone: dict[str, Identity] = {}
        missing = list(self._found.missing)
        for one in flat:
            found = resolve([one])
            missing += found.missing
            alone |= found.real
        for root in [one for one in alone if self._is_below(one)]:
            del alone[root]
        if self._driver is None:
            return False
        coming = {one: names for one, names in arrivals(missing).items() if not self._is_below(one)}
        self._driver.sync(self._found.real, alone, coming)
        there = (f"{one}/{name}" for one, names in coming.items() for name in names)
        return any(map(os.path.isdir, there))

    def _is_below(self, path: str) -> bool:
        return any(within(path, root) for root in self._found.real)

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

"""Every directory below the roots on one inotify descriptor, with one thread.

This uses watchdog's `InotifyFD` with our own callback, not its Observer. It is not quite public
(so: `>=7.1,<8`), but only there is a sub-directory that cannot be watched an error (the Observer
hides ENOSPC below a root and looks healthy), overflow a call and not a log line, and an append
half the CPU. Surprises: a second callback of one id makes watchdog warn with all it knows, so each
has its own; a directory that may not be read is watch -1 and no error; a watch follows a renamed
directory; a recreated root mostly has its old inode number, so a root's end is told by its
watch's end.
"""

from __future__ import annotations

import errno
import os
import threading

from watchdog.observers import inotify_c
from watchdog.observers.inotify_c import InotifyConstants as In

from indexerd.sources.scan import enters, tree
from indexerd.sources.watch import JOIN_SECONDS, Inbox, Mode, Places, Trouble, trouble

# IN_ATTRIB tells of a chmod that makes a file readable. Reading causes none of these.
_EVENTS = In.IN_MODIFY | In.IN_ATTRIB | In.IN_CREATE | In.IN_DELETE | In.IN_MOVE
_ARRIVALS = In.IN_CREATE | In.IN_MOVED_TO | In.IN_MOVE_SELF
_OPTIONS = In.IN_ONLYDIR | In.IN_DONT_FOLLOW | In.IN_EXCL_UNLINK


class Inotify:
    """Watches directories.

    Where there is doubt (overflow, a limit, a directory moved away, a root lost) the next `sync`
    walks all roots again, and drops the watches that it did not come by.
    """

    mode: Mode = "inotify"

    def __init__(self, inbox: Inbox, closing: threading.Event) -> None:
        self._inbox, self._closing, self._lock = inbox, closing, threading.RLock()
        # Each watch's path, and the id of our callback there.
        self._watched: dict[inotify_c.WatchDescriptor, tuple[str, inotify_c.CallbackId]] = {}
        self._places = Places({}, {}, {})
        self._doubt, self._last_id, self._new = True, 0, 0
        self.trouble: Trouble = {}
        self._met = self.trouble  # filled by _add; another one during a full walk
        with open(os.devnull), open(os.devnull), open(os.devnull):  # noqa: PTH123 - as cheap
            pass  # three descriptors are free: InotifyFD leaks the first if it lacks the others
        self._reader = inotify_c.InotifyFD()
        try:
            self._reader.start()
        except RuntimeError:  # no thread to be had
            self.close()
            raise

    @property
    def count(self) -> int:
        """Directories that are watched."""
        return len(self._watched)

    def alive(self) -> bool:
        """Whether its thread is."""
        return self._reader.is_alive()

    def sync(self, places: Places) -> None:
        """Watch what is asked for; return at once if nothing has changed."""
        with self._lock:
            if places == self._places and not self._doubt:
                return
            self._places, self._doubt, self._met = places, False, {}
            last, new = self._last_id, self._new
        for directory in places.coming.keys() - places.flat.keys():
            self._add(directory, _ARRIVALS)
        for root in places.flat:
            self._add(root)
        for root in places.roots:
            for _ in tree(root, self._add):
                pass
        with self._lock:
            stale = [(wd, id_) for wd, (_, id_) in self._watched.items() if id_ <= last]
            self._reader.remove_callbacks(stale)
            for wd, _ in stale:
                del self._watched[wd]
            self.trouble = self._met
        if self._new != new:
            self._inbox.put(None)  # files may have come to those directories before the watch did

    def close(self) -> None:
        """End the thread, or leave it."""
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
                    self._met.update(trouble(error))
                    self._doubt = True
                return False
            known = self._watched.pop(wd, None)
            if known is not None:
                self._reader.remove_callbacks([(wd, known[1])])
            if wd == -1:  # EACCES: the scan reports it, and the next sync tries again
                self._reader.remove_callbacks([(wd, id_)])
                self._doubt = self._doubt or events is None
                return False
            self._watched[wd] = (path, id_)
            self._new += known is None
            return True

    def _lose(self) -> None:
        self._doubt = True
        self._inbox.put(None)

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        """Turn one event into hints (called by the reader thread)."""
        with self._lock:
            directory = self._watched.get(event.wd, ("",))[0]
        name, places = os.fsdecode(event.name), self._places
        awaited = places.coming.get(directory)
        if awaited is not None and (name in awaited or not name):  # or it is itself moved away
            self._inbox.put(None)
        if not directory or (awaited is not None and directory not in places.flat):
            return
        if event.mask & In.IN_ISDIR:
            self._on_directory(directory, name, event.mask)
        else:
            self._inbox.offer(directory, name)

    def _on_directory(self, directory: str, name: str, mask: int) -> None:
        new = mask & (In.IN_CREATE | In.IN_MOVED_TO)
        if directory in self._places.flat:
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
            directory = self._watched.pop(wd, ("",))[0]
        if any(directory in one for one in self._places) and not self._closing.is_set():
            self._lose()

    def on_queue_overflow(self) -> None:
        """Events were lost (called by the reader thread)."""
        self._doubt = True
        self._inbox.overflow()

"""watchdog's own Observer: FSEvents on macOS, and the way back on Linux."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping

from watchdog import events as ev
from watchdog.observers import Observer

from indexerd.paths import within
from indexerd.sources.hints import Inbox, Mode, Trouble
from indexerd.sources.hints import trouble as refusal
from indexerd.sources.scan import Arrivals, Identity, enters

JOIN_SECONDS = 2.0  # a thread that has not ended by then is left alone (all are daemon threads)


class Stock(ev.FileSystemEventHandler):
    """watchdog's own Observer: FSEvents on macOS, and the way back on Linux."""

    mode: Mode = "fsevents" if sys.platform == "darwin" else "inotify"

    def __init__(self, inbox: Inbox, _closing: threading.Event) -> None:
        if not getattr(Observer, "__module__", "").endswith((".inotify", ".fsevents")):
            raise OSError("neither inotify nor FSEvents")  # kqueue takes a descriptor a file
        self.watched: dict[str, Identity] = {}
        self.trouble: Trouble = {}
        self._flat: frozenset[str] = frozenset()
        self._coming: Arrivals = {}
        self._inbox, self._observer = inbox, Observer()
        self._observer.start()
        logging.getLogger("watchdog.observers.inotify_c").addFilter(self._heard)

    def alive(self) -> bool:
        """Whether its threads are."""
        threads = [self._observer, getattr(self._observer, "_inotify_fd", self._observer)]
        # An emitter that was told to stop has lost its root; one that was not has crashed.
        threads += [one for one in self._observer.emitters if one.should_keep_running()]
        return all(thread.is_alive() for thread in threads)

    def sync(
        self, roots: Mapping[str, Identity], flat: Mapping[str, Identity], coming: Arrivals
    ) -> None:
        """Watch what is below `roots`, the files in `flat`, and for what is `coming`.

        FSEvents tells of a directory with all below it, of a home too: there a scan finds it.
        """
        self._coming = {} if self.mode == "fsevents" else coming
        self._flat, roots = frozenset(flat), {**flat, **roots}
        roots |= dict.fromkeys(self._coming.keys() - roots.keys(), (0, 0))
        trouble: Trouble = {}
        for emitter in list(self._observer.emitters):
            root = emitter.watch.path
            if roots.get(root) != self.watched.get(root) or not emitter.is_alive():
                self.watched.pop(root, None)
                self._observer.unschedule(emitter.watch)
        kinds = [ev.FileModifiedEvent, ev.FileAttribEvent, ev.FileCreatedEvent, ev.FileMovedEvent]
        kinds += [ev.FileDeletedEvent, ev.DirMovedEvent, ev.DirDeletedEvent]
        new = [ev.DirCreatedEvent, ev.FileCreatedEvent, ev.FileMovedEvent, *kinds[-2:]]
        for root in roots.keys() - self.watched.keys():
            alone = root in flat or root in self._coming
            heard = kinds if not alone else [*kinds, ev.DirCreatedEvent] if root in flat else new
            try:
                self._observer.schedule(self, root, recursive=not alone, event_filter=heard)
                self.watched[root] = roots[root]
                self._inbox.put(None)
            except (OSError, RuntimeError) as error:
                trouble.update(refusal(error))
        self.trouble = trouble

    def close(self) -> None:
        """End, or leave what does not."""
        logging.getLogger("watchdog.observers.inotify_c").removeFilter(self._heard)
        stopper = threading.Thread(target=self._observer.stop, daemon=True)  # it joins unbounded
        stopper.start()
        stopper.join(JOIN_SECONDS)
        self._observer.join(JOIN_SECONDS)

    def dispatch(self, event: ev.FileSystemEvent) -> None:
        """Turn one event into hints."""
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            root = max((r for r in tuple(self.watched) if within(path, r)), key=len, default="")
            directory, _, name = path.rpartition("/")
            if root in self._coming and (path == root or name in self._coming[root]):
                self._inbox.put(None)
            if root in self._coming and root not in self._flat:
                continue
            alone = root in self._flat and directory != root
            ours = root and not alone and all(map(enters, directory[len(root) + 1 :].split("/")))
            if ours and event.is_directory:
                self._inbox.put(None)
            elif ours:
                self._inbox.offer(directory, name)

    def _heard(self, record: logging.LogRecord) -> bool:
        if "overflow" in record.getMessage():
            self._inbox.overflows += 1
            self._inbox.put(None)
        return True

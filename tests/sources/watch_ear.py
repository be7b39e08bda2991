"""The daemon's side of the watcher, for tests: it takes hints at each wake-up, and remembers."""

import threading
import time
from pathlib import Path

from indexerd.sources import watch as module
from indexerd.sources.watch import Watch


def append(path, text="{}\n"):
    """Append as pi does: open, write, close."""
    with open(path, "a") as out:
        out.write(text)


class Ear:
    """Arms a watcher on `roots` and gathers what it hints at; close it at the end."""

    def __init__(self, *roots, mode="auto", clock=time.monotonic, **more):
        self.bell = threading.Event()
        self.paths, self.rescan = set(), False
        self.watch = Watch(mode, self.bell.set, clock, **more)
        self.arm(*roots)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.watch.close()

    def arm(self, *roots):
        """Arm, and forget what was hinted at up to now: a scan would follow."""
        self.watch.arm([str(root) for root in roots])
        self.watch.take()
        self.paths, self.rescan = set(), False

    def listen(self):
        """Take what there is."""
        hints = self.watch.take()
        self.paths |= hints.paths
        self.rescan = self.rescan or hints.rescan

    def until(self, predicate, seconds=15.0):
        """Listen until `predicate` holds; fail when it does not in time."""
        end = time.monotonic() + seconds
        while True:
            self.bell.clear()
            self.listen()
            if predicate():
                return
            assert time.monotonic() < end, f"not in time; heard {self.paths}, {self.rescan}"
            self.bell.wait(0.02)

    def hears(self, *paths):
        """Wait for hints at all of `paths`."""
        self.until(lambda: self.paths >= {str(path) for path in paths})

    def asks_for_scan(self):
        """Wait for the wish for a scan."""
        self.until(lambda: self.rescan)

    def settle(self, directory):
        """Hear everything up to now: events keep their order, so a last one ends them."""
        last = Path(directory) / f"settle-{time.monotonic_ns()}.jsonl"
        append(last)
        self.hears(last)
        self.paths = {path for path in self.paths if "/settle-" not in path}

    def forget(self, directory):
        """Hear everything up to now, and forget it."""
        self.settle(directory)
        self.paths, self.rescan = set(), False

    def hears_after_arm(self, root, directory=None):
        """Arm, append, and say whether that was heard (that a watch is lost may show late)."""
        path = Path(directory or root) / "s.jsonl"
        self.arm(root)
        self.bell.clear()
        append(path)
        self.bell.wait(0.05)
        self.listen()
        return str(path) in self.paths

    def codes(self):
        """The problems that health names."""
        return [one.code for one in self.watch.health().problems]

    def reader(self):
        """The thread that reads from inotify."""
        own = self.watch._driver
        return own._reader if isinstance(own, module._Inotify) else own._observer._inotify_fd


def ears():
    """Yield a maker of ears, and close in the end what it made: the body of a fixture."""
    made = []

    def make(*roots, **more):
        made.append(Ear(*roots, **more))
        return made[-1]

    yield make
    for one in made:
        one.watch.close()

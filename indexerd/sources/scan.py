"""The periodic scan: finds by `stat` alone what file events missed.

It opens no file, follows no symbolic link below a root, and raises no OSError. A path is text with
surrogate escapes, as `os.fsdecode` makes it, so that names of any bytes survive.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from indexerd.paths import within
from indexerd.sources.cursor import Look

MAX_FILES = 500_000


@dataclass(slots=True)
class ScanResult:
    """The files that one scan found."""

    files: dict[str, Look] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)  # directories and databases
    missing: list[str] = field(default_factory=list)  # roots: moved, or not mounted
    partial: bool = False  # there are more than MAX_FILES

    def unseen(self, path: str) -> bool:
        """Whether the scan could not have found a path, so that its absence means nothing."""
        return self.partial or any(within(path, one) for one in (*self.unreadable, *self.missing))


def enters(name: str) -> bool:
    """Whether directories of this name below a root are listed."""
    return not name.startswith(".") and not name.endswith(".jsonl")


def scan(
    roots: Iterable[str],
    suffixes: tuple[str, ...],
    enter: Callable[[str], object] = lambda _path: None,
) -> ScanResult:
    """Stat every file below `roots` that ends in a suffix and does not start with a dot.

    Calls `enter(path)` before it lists a directory: a watcher watches first and lists second.
    """
    result, waiting = ScanResult(), list[str]()
    for root in roots:
        (waiting if os.path.isdir(root) else result.missing).append(root)  # noqa: PTH112 - text
    while waiting and not result.partial:
        path = waiting.pop()
        enter(path)
        try:
            waiting += _list(path, suffixes, result)
        except (FileNotFoundError, NotADirectoryError):
            continue  # vanished, or was replaced, since it was listed
        except OSError:  # a name can be listed and not be statted where search is not permitted
            result.unreadable.append(path)
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
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(found.st_mode):
                    seen = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
                    result.files[entry.path] = tuple.__new__(Look, seen)  # twice as fast
            elif entry.is_dir(follow_symlinks=False) and enters(name):
                inner.append(entry.path)
    return inner

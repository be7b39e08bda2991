"""The reconciling scan: finds by `stat` alone what file events missed.

Never opens a file, follows a symbolic link below a root (a root itself may be one), or raises for
what it finds. A path is text with surrogate escapes, as `os.fsdecode` makes it, so that names of
any bytes survive.

What surprised us: on ext4 a deleted and recreated directory gets its old inode number back, so
(dev, ino) alone never proves that something is the same. A name can be listed in a directory
and still not be statted (read without search permission): such a directory is unreadable.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from indexerd.paths import within

MAX_DEPTH = 32  # levels below a root; agents use four at most
MAX_FILES = 500_000
MAX_NAMED = 100  # unreadable directories that a result names

Identity = tuple[int, int]  # (dev, ino)


class Found(NamedTuple):
    """One regular file. A tuple, because there are tens of thousands of them at each scan."""

    path: str
    dev: int
    ino: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Roots:
    """Roots as they are on disk now: by real path, without those that lie within another."""

    real: dict[str, Identity] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # as asked for
    denied: tuple[str, ...] = ()  # real paths that could not be looked at
    refused: tuple[tuple[str, str], ...] = ()  # (as asked for, why)


@dataclass(slots=True)
class ScanResult:
    """What one scan saw.

    A known file that is not in `files` is gone only if it lies neither under a path of
    `unreadable` nor under a missing root, and the scan is not `partial`.
    """

    files: list[Found] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # or too deep
    missing: list[str] = field(default_factory=list)
    refused: tuple[tuple[str, str], ...] = ()
    partial: bool = False  # something was left out that no list here names: a bound was met

    def deny(self, path: str) -> None:
        """Note a directory whose content is unknown."""
        if len(self.unreadable) < MAX_NAMED:
            self.unreadable.append(path)
        else:
            self.partial = True

    def unseen(self, path: str) -> bool:
        """Whether it could not have seen a path, so that its absence tells nothing."""
        blind = (*self.unreadable, *self.missing)
        return self.partial or any(within(path, one) for one in blind)


def enters(name: str) -> bool:
    """Say whether a directory of this name below a root is looked into."""
    return not name.startswith(".") and not name.endswith(".jsonl")


def resolve(roots: Iterable[str]) -> Roots:
    """Find the real directories that `roots` stand for; none is named twice or inside another."""
    real: dict[str, Identity] = {}
    missing: list[str] = []
    denied: list[str] = []
    refused: list[tuple[str, str]] = []
    for root in dict.fromkeys(roots):
        try:
            path = os.path.realpath(root)
            status = os.stat(path)  # noqa: PTH116 - paths here are text with surrogate escapes
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in it
            missing.append(root)
            continue
        except OSError:  # no permission, a dead mount, a loop of links
            denied.append(path)
            continue
        identity = (status.st_dev, status.st_ino)
        if reason := _refusal(root, path, status):
            refused.append((root, reason))
        elif identity not in real.values():
            real[path] = identity
    outer = {path: one for path, one in real.items() if not any(_covers(o, path) for o in real)}
    return Roots(outer, tuple(missing), tuple(denied), tuple(refused))


def arrivals(missing: Iterable[str]) -> dict[str, set[str]]:
    """Where what is missing would begin to appear: in the nearest directories, by these names."""
    found: dict[str, set[str]] = {}
    for root in missing:
        if "\0" in root:
            continue
        path = os.path.realpath(root)
        while not os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120 - as above
            path = os.path.dirname(path)  # noqa: PTH120 - bytes that are no UTF-8 are kept
        directory, name = os.path.split(path)
        found.setdefault(directory, set()).add(name)
    return found


def _refusal(root: str, path: str, status: os.stat_result) -> str:
    """Why a root is not taken, or nothing."""
    if not root:
        return "the path is empty"
    if path == "/":
        return "the root of the file system is not a session directory"
    if path == os.path.realpath(os.path.expanduser("~")):  # noqa: PTH111 - as above
        return "the home directory is not a session directory"
    return "" if stat.S_ISDIR(status.st_mode) else "not a directory"


def _covers(outer: str, path: str) -> bool:
    """Say whether a scan of `outer` comes by `path` anyway."""
    if outer == path or not within(path, outer):
        return False
    names = path[len(outer) :].strip("/").split("/")
    return len(names) <= MAX_DEPTH and all(enters(name) for name in names)


def scan(roots: Iterable[str], suffix: str | tuple[str, ...] = ".jsonl") -> ScanResult:
    """Stat every file that ends in `suffix` below `roots`; order is not defined.

    Names that start with a dot are passed over, files as well as directories.
    """
    found = resolve(roots)
    result = ScanResult(missing=[*found.missing], refused=found.refused)
    for path in found.denied:
        result.deny(path)
    for root in found.real:
        stack = [(root, 0)]
        while stack:
            path, depth = stack.pop()
            if len(result.files) >= MAX_FILES:
                result.partial = True
            elif depth > MAX_DEPTH:
                result.deny(path)
            else:
                try:
                    stack += [(inner, depth + 1) for inner in _list(path, suffix, result)]
                except (FileNotFoundError, NotADirectoryError):
                    continue  # vanished, or was replaced, since it was listed
                except OSError:
                    result.deny(path)
    return result


def _list(path: str, suffix: str | tuple[str, ...], result: ScanResult) -> list[str]:
    """Take the files of one directory; return the directories in it."""
    inner: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if not name.endswith(suffix):
                if entry.is_dir(follow_symlinks=False) and enters(name):
                    inner.append(entry.path)
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted since it was listed
            except OSError:
                result.deny(path)
                continue
            if stat.S_ISREG(status.st_mode):
                seen = entry.path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                result.files.append(tuple.__new__(Found, seen))  # twice as quick as `Found(…)`
    return inner


def tree(top: str, before: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield each directory of a tree with the names of all in it that is no directory.

    `before(path)` is called ahead of listing a directory: a watcher watches first and lists
    second. Where it says no, that directory is left out with all below it.
    """
    stack = [(top, 0)]
    while stack:
        path, depth = stack.pop()
        names: list[str] = []
        if depth > MAX_DEPTH or not before(path):
            continue
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
                    elif enters(entry.name):
                        stack.append((entry.path, depth + 1))
        except OSError:  # vanished, or may not be read: the scan says which
            continue
        yield path, names

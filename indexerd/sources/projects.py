"""Where the directories of sessions are now, and which project each of them belongs to.

A project moves if the user says so (`indexerd move`), or if its repository is gone from its place,
which another may have taken, and exactly one that sessions use has the same remote and the same
first commit. That holds until the repository is back. A linked worktree belongs to the project of
its main repository. Names alone mean nothing, and the disk is never searched.

What git says is kept, as it cannot be read again when a directory is gone: a worktree's repository,
and a hash of each repository's remote and first commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.disk import append_line
from indexerd.errors import AccessError, NotFoundError, WriteError
from indexerd.paths import within
from indexerd.store.store import hashed

_READ_MAX = 65_536  # bytes of a file of git
_GIT_SECONDS = 10.0  # for the first commit of a long history
_REMOTE = re.compile(rb'^\[remote "origin"\]\s[^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE)


class Move(NamedTuple):
    """A directory's move, for the sessions that began before it."""

    old: str
    new: str
    at: int  # milliseconds since the epoch
    by: str  # "user" or "git"


class Projects:
    """Answers any thread from memory; one thread calls `look` and `move`."""

    def __init__(self, state_dir: Path) -> None:
        """AccessError: the file cannot be read."""
        self.moves: tuple[Move, ...] = ()
        self.version = 0  # grows with every change
        self._path = state_dir / "projects.jsonl"
        self._own: set[str] = set()  # directories whose moves are left to the user
        self._mains: dict[str, str] = {}  # worktrees, and the directories of their repositories
        self._marks: dict[str, str] = {}  # repositories, and hashes of what identifies them
        self._inodes: dict[str, int | None] = {}  # of their .git: another may come to a place
        self._left: dict[tuple[str, str], int] = {}  # when a hash's repository left a place
        self._looked = 0  # when `look` last did, in milliseconds
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None
        for line in lines:  # one may be torn by a crash
            with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                self._apply(json.loads(line))

    def now(self, directory: str, began: int = 0) -> str:
        """Return where a directory is now, to sessions that began then (ms since the epoch)."""
        for move in self.moves:
            if began < move.at and within(directory, move.old):
                directory = _moved(directory, move.old, move.new)
        return directory

    def project(self, directory: str, began: int = 0) -> str:
        """Return the directory of its project that stands for a session's directory."""
        directory = at = self.now(directory, began)
        while at:
            if main := self._mains.get(at):
                return self.now(_moved(directory, at, main), began)
            at = at.rpartition("/")[0]
        return directory

    def asked(self, directory: str) -> str:
        """Like `project`, for a directory that somebody works in: read from the disk."""
        if not os.path.isdir(directory):  # noqa: PTH112 - never raises
            return self.project(directory)
        root, main = repository(directory) or ("", "")
        return _moved(directory, root, main) if main else directory

    def stale(self, rows: Iterable[Sequence[Any]]) -> list[str]:
        """Return the sessions of the store that are elsewhere now: ids of its `places`."""
        return [
            key
            for key, directory, began, *places in rows
            if places != [self.now(directory, began), self.project(directory, began)]
        ]

    def look(self, directories: Iterable[str], at: int) -> None:
        """Look at sessions' directories on the disk; `at` is the time in milliseconds.

        WriteError: what was found could not be stored.
        """
        paths = {place for path in directories for place in (path, self.now(path))}
        roots = dict(filter(None, map(repository, paths)))
        for root, main in roots.items():
            if main and main != self._mains.get(root, root):
                self._write({"worktree": root, "main": main})
        mains = {root for root, main in roots.items() if root == main}
        for root in mains.union(self._marks):
            self._identify(root, at)
        self._looked = at
        for old, new, left in [*self._found_again()]:
            self.move(old, new, at=left, by="git")

    def _identify(self, root: str, at: int) -> None:
        """Note what identifies a repository, if it is new or gone, or had no remote or commit."""
        known, inode, git = (self._marks.get(root), self._inodes.get(root)), None, f"{root}/.git"
        with suppress(OSError):
            inode = os.stat(git).st_ino  # noqa: PTH116 - text
            made = os.stat(f"{git}/description").st_ctime_ns // 1_000_000  # noqa: PTH116 - as above
            at = min(at, max(made, self._looked))  # sessions may have begun in it already
        if (not known[0] or known[1] != inode) and (new := (identity(root), inode)) != known:
            self._write({"repository": root, "mark": new[0], "inode": inode, "at": at})

    def _found_again(self) -> Iterator[tuple[str, str, int]]:
        """Yield where a repository was, where it is now, and when it was gone."""
        for (old, mark), left in self._left.items():
            if old not in self._own and self.now(old, left - 1) == old:
                same = [root for root, other in self._marks.items() if other == mark]
                if len(same) == 1 and identity(same[0]) == mark:
                    yield old, same[0], left

    def move(self, old: str, new: str, *, at: int, by: str, undo: bool = False) -> None:
        """Note a move, or take it back; NotFoundError if there is no such move."""
        if undo and not any((move.old, move.new) == (old, new) for move in self.moves):
            raise NotFoundError("no such move", hint="`indexerd move` lists them")
        self._write({"old": old, "new": new, "at": at, "by": by, "undo": undo})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            append_line(self._path, json.dumps(line).encode(), durable=True)
        except OSError as bad:
            raise WriteError(f"cannot write {self._path}: {bad.strerror}") from None
        self._apply(line)
        self.version += 1

    def _apply(self, line: dict[str, Any]) -> None:
        if "worktree" in line:
            self._mains.pop(line["worktree"], None)
            if line["main"] != line["worktree"]:
                self._mains[line["worktree"]] = line["main"]
        elif "repository" in line:
            root, mark = line["repository"], line["mark"]
            if (before := self._marks.get(root)) and before != mark:
                self._left[root, before] = line["at"]
            if back := self._left.pop((root, mark), None):
                gone = (root, back, "git")
                self.moves = tuple(one for one in self.moves if (one.old, *one[2:]) != gone)
            self._marks[root], self._inodes[root] = mark, line["inode"]
        else:
            move = Move(line["old"], line["new"], line["at"], line["by"])
            others = (one for one in self.moves if (one.old, one.new) != move[:2])
            self._own |= {move.old} if move.by == "user" else set()
            self.moves = tuple(others) if line["undo"] else (*self.moves, move)


def _moved(path: str, old: str, new: str) -> str:
    return (new.rstrip("/") + path[len(old.rstrip("/")) :]).rstrip("/") or "/"


def repository(directory: str) -> tuple[str, str] | None:
    """Find the work tree that a directory is in, and the directory of its main repository.

    The latter is "" if it is not there. None: no repository, or no such directory.
    """
    root = directory.rstrip("/")
    if not os.path.isdir(directory):  # noqa: PTH112 - never raises
        return None
    while root:
        git = f"{root}/.git"
        if os.path.isdir(git):  # noqa: PTH112 - as above
            return root, root
        if os.path.isfile(git):  # noqa: PTH113 - as above
            return root, _main(root, git)
        root = root.rpartition("/")[0]
    return None


def _main(root: str, git: str) -> str:
    """Return the directory of a work tree's main repository; submodules have none but themselves.

    A bare repository stands for itself, but a hidden one (`.bare`) for the directory it is in.
    """
    own = os.path.join(root, os.fsdecode(_read(git)).removeprefix("gitdir:").strip())  # noqa: PTH118 - text
    common = os.fsdecode(_read(f"{own}/commondir")).strip()
    if not common:
        return root if os.path.isdir(own) else ""  # noqa: PTH112 - never raises
    path = os.path.normpath(os.path.join(own, common))  # noqa: PTH118 - as above
    above, _, name = path.rpartition("/")
    return "" if not os.path.isdir(path) else above if name.startswith(".") else path  # noqa: PTH112 - never raises


def identity(root: str) -> str:
    """Hash a repository's remote and first commit; "" if it has none, or git is not there."""
    remote = _REMOTE.search(_read(f"{root}/.git/config"))
    if remote is None or os.path.exists(f"{root}/.git/shallow"):  # noqa: PTH110 - never raises
        return ""
    argv = ("git", "-C", root, "rev-list", "--max-parents=0", "HEAD")
    env = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    env |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - without a shell
            argv, env=env, capture_output=True, timeout=_GIT_SECONDS, check=True, text=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return hashed(os.fsdecode(remote[1]), *sorted(done.stdout.split())).hex()


def _read(path: str) -> bytes:
    with suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123 - text
        return file.read(_READ_MAX)
    return b""

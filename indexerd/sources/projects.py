"""Where the directories of sessions are now, and which project each of them belongs to.

A project moves if the user says so (`indexerd move`), or if its repository is gone from its place,
which another may have taken, and is seen elsewhere: the very same one, or the first one with the
same remote and the same first commit, if none was known before. That is worked out anew at each
change, and holds until the repository is back. A linked worktree belongs to the project of its
main repository. Names alone mean nothing, and the disk is never searched.

What git says is kept, as it cannot be read again when a directory is gone: a worktree's repository,
and a hash of each repository's remote and first commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.disk import append_line, set_time
from indexerd.errors import AccessError, NotFoundError, WriteError
from indexerd.paths import within
from indexerd.store.store import hashed

_READ_MAX = 65_536  # bytes of a file of git
_GIT_SECONDS = 10.0  # for the first commit of a long history
_REMOTE = re.compile(rb'^\[remote "origin"\]\s[^\[]*?^[ \t]*url[ \t]*=[ \t]*(\S+)', re.MULTILINE)


class Move(NamedTuple):
    """A directory's move, for the sessions that began before it."""

    old: str
    new: str
    at: int  # milliseconds since the epoch
    by: str  # "user" or "git"


class _Repository(NamedTuple):
    """What is known of the repository in a directory."""

    own: list[int]  # inode and age of its `.git`, which tell it from its copies; []: it is gone
    remote: str  # a hash
    mark: str  # a hash of what identifies it and its copies; "" if nothing does
    since: int  # ms since the epoch when it was first known, here or elsewhere


class _Left(NamedTuple):
    """A repository that is gone from a directory."""

    own: list[int]
    mark: str
    at: int  # ms since the epoch
    seen: int  # when it was last there: what was known then elsewhere is a copy


class Projects:
    """Answers any thread from memory; one thread calls `look` and `move`."""

    def __init__(self, state_dir: Path) -> None:
        """AccessError: the file cannot be read."""
        self.version = 0  # grows with every change
        self._path = state_dir / "projects.jsonl"
        self._said: tuple[Move, ...] = ()  # by the user
        self._refused: set[str] = set()  # directories whose found moves the user took back
        self._asked: set[str] = set()  # repositories that git was asked about
        self._still: set[str] = set()  # directories that exist below where a repository was
        self._mains: dict[str, str] = {}  # worktrees, and the directories of their repositories
        self._here: dict[str, _Repository] = {}
        self._left: dict[str, list[_Left]] = {}  # oldest first
        self._known: dict[tuple[int, ...], int] = {}  # when each was first known, by its `own`
        self._found: dict[str, list[Move]] = {}  # where those are now, or where they were
        self._looked = 0  # when `look` last did, in milliseconds: the file's time
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
            self._looked = self._path.stat().st_mtime_ns // 1_000_000 if lines else 0
        except OSError as bad:
            raise AccessError(f"cannot read {self._path}: {bad.strerror}") from None
        for line in lines:  # one may be torn by a crash
            with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                self._apply(json.loads(line))
        self._find()

    @property
    def moves(self) -> list[Move]:
        found = (move for moves in self._found.values() for move in moves)
        return [*self._said, *(move for move in found if move.old != move.new)]

    def now(self, directory: str, began: int = 0) -> str:
        """Return where a directory is now, to sessions that began then (ms since the epoch)."""
        at = directory = self._as_said(directory, began)
        while at:
            move = next((one for one in self._found.get(at, ()) if began < one.at), None)
            here = at in self._here and self._here[at].own  # a repository, perhaps another one
            stays = directory != at and directory in self._still and not here
            if move and move.new != at and not stays:
                return self._as_said(_moved(directory, at, move.new), began)
            if here:
                break
            at = at.rpartition("/")[0]  # it may have gone with the directory that it is in
        return directory

    def _as_said(self, directory: str, began: int) -> str:
        for move in self._said:
            if began < move.at and within(directory, move.old):
                directory = _moved(directory, move.old, move.new)
        return directory

    def project(self, directory: str, began: int = 0) -> str:
        """Return the directory of its project that stands for a session's directory."""
        for place in (directory, self.now(directory, began)):
            if (main := self._main_of(place)) != place:
                return self.now(main, began)
        return place

    def _main_of(self, directory: str) -> str:
        """Replace a linked worktree by its main repository in a path."""
        at = directory
        while at:
            if main := self._mains.get(at):
                return _moved(directory, at, main)
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
        known = {*directories}
        paths = {place for path in known for place in (path, self.now(path))}
        roots = dict(filter(None, map(repository, paths)))
        for root, main in roots.items():
            if main and main != self._mains.get(root, root):
                self._write({"worktree": root, "main": main})
        for root in {*filter(None, roots.values()), *self._here}:
            self._identify(root, at)
        still = self._in_place(known)
        self.version += still != self._still
        self._looked, self._still = at, still
        with suppress(OSError):
            set_time(self._path, at)

    def _in_place(self, directories: Iterable[str]) -> set[str]:
        """Return those that still exist below the old place of a repository."""
        moved = ((root, move) for root, moves in self._found.items() for move in moves)
        left = tuple(f"{root}/" for root, move in moved if move.new != root)
        below = (path for path in directories if path.startswith(left))
        return {path for path in below if os.path.isdir(path) and os.path.realpath(path) == path}  # noqa: PTH112 - never raises

    def _identify(self, root: str, at: int) -> None:
        """Note what identifies a repository, if it is new or gone, or has a new remote."""
        known, own, git = self._here.get(root), list[int](), f"{root}/.git"
        with suppress(OSError):
            stat, made = os.stat(git), 0  # noqa: PTH116 - text
            with suppress(OSError):  # not all have this file, which nobody changes
                made = os.stat(f"{git}/description").st_mtime_ns // 1_000_000  # noqa: PTH116 - as above
            if os.path.realpath(root) == root:
                own = [stat.st_ino, made]
                at = min(at, max(made, self._looked))  # sessions may have begun in it already
        remote = hashed(_remote(root)).hex() if own else ""
        is_known = known is not None and known.own == own
        if known and is_known and known.remote == remote and (known.mark or root in self._asked):
            return
        mark = identity(root) if own else ""
        self._asked.add(root)
        if known and is_known:
            mark = mark or known.mark
            if (mark, remote) == (known.mark, known.remote):
                return
        line = {"repository": root, "own": own, "remote": remote, "mark": mark}
        if own or known:
            self._write(line | {"at": at, "seen": self._looked})

    def _find(self) -> None:
        """Work out where the repositories that are gone from their places are now."""

        def place(old: str, left: _Left) -> str:
            """Find the repository, or the first like it since."""
            if old in self._refused:
                return old
            same = [root for root, here in self._here.items() if here.mark == left.mark != ""]
            there = [root for root, here in self._here.items() if here.own == left.own]
            if len(there) == 1 and (left.own[1] or there[0] in same):  # an inode is used again
                return there[0]
            came = sorted((self._here[root].since, root) for root in same)
            is_first = len(came) == 1 or (len(came) > 1 and came[0][0] < came[1][0])
            is_new = is_first and came[0][0] >= left.seen and old not in same
            return came[0][1] if is_new else old

        self._found = {
            old: [Move(old, place(old, left), left.at, "git") for left in every]
            for old, every in self._left.items()
        }

    def move(self, old: str, new: str, *, at: int, undo: bool = False) -> None:
        """Note a move by the user, or take any back; NotFoundError if there is no such move."""
        if undo and not any((move.old, move.new) == (old, new) for move in self.moves):
            raise NotFoundError("no such move", hint="`indexerd move` lists them")
        self._write({"old": old, "new": new, "at": at, "undo": undo})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            append_line(self._path, json.dumps(line).encode(), durable=True)
        except OSError as bad:
            raise WriteError(f"cannot write {self._path}: {bad.strerror}") from None
        self._apply(line)
        self._find()
        self.version += 1

    def _apply(self, line: dict[str, Any]) -> None:
        if "worktree" in line:
            self._mains.pop(line["worktree"], None)
            if line["main"] != line["worktree"]:
                self._mains[line["worktree"]] = line["main"]
        elif "repository" in line:
            root, own, at = line["repository"], [*map(int, line["own"])], line["at"]
            before = self._here.get(root, _Repository([], "", "", at))
            since = self._known.setdefault(tuple(own), at)
            if before.own and before.own != own:
                left = _Left(before.own, before.mark, at, line["seen"])
                self._left[root] = [*self._left.get(root, ()), left]
            self._here[root] = _Repository(own, line["remote"], line["mark"], since)
        else:
            move = Move(line["old"], line["new"], line["at"], "user")
            others = tuple(one for one in self._said if (one.old, one.new) != move[:2])
            if not line["undo"]:
                self._said = (*others, move)
            elif others != self._said:
                self._said = others
            else:
                self._refused.add(move.old)


def _moved(path: str, old: str, new: str) -> str:
    return (new.rstrip("/") + path[len(old.rstrip("/")) :]).rstrip("/") or "/"


def repository(directory: str) -> tuple[str, str] | None:
    """Find the work tree that a directory is in, and the directory of its main repository.

    The latter is without symbolic links, and "" if it is not there. None: no repository, or no
    such directory.
    """
    root = directory.rstrip("/")
    if not os.path.isdir(directory):  # noqa: PTH112 - never raises
        return None
    while root:
        git = f"{root}/.git"
        if os.path.isdir(git):  # noqa: PTH112 - as above
            return root, os.path.realpath(root)
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


def _remote(root: str) -> str:
    found = _REMOTE.search(_read(f"{root}/.git/config"))
    return os.fsdecode(found[1]) if found else ""


def identity(root: str) -> str:
    """Hash a repository's remote and oldest commit; "" if it has none, or git does not answer."""
    remote = _remote(root)
    if not remote or os.path.exists(f"{root}/.git/shallow"):  # noqa: PTH110 - never raises
        return ""
    argv = ("git", "-C", root, "rev-list", "--max-parents=0", "--timestamp", "--all")
    env = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    env |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - without a shell
            argv, env=env, capture_output=True, timeout=_GIT_SECONDS, check=True, text=True
        )
        first = min(
            (int(time), commit) for time, commit in map(str.split, done.stdout.splitlines())
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return hashed(remote, first[1]).hex()


def _read(path: str) -> bytes:
    with suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123 - text
        return file.read(_READ_MAX)
    return b""

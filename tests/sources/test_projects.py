"""Where repositories are found again: real ones, looked at before and after they move."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from indexerd.sources.projects import Projects


def git(at: Path, *argv: str, date: str = "") -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    env = {**os.environ, "GIT_COMMITTER_DATE": date} if date else None
    command = ("git", "-C", at, *who, *argv)
    subprocess.run(command, check=True, capture_output=True, timeout=20, env=env)


def copy(old: Path, new: Path) -> None:
    shutil.copytree(old, new, copy_function=shutil.copy)  # of another age


class Disk:
    """Directories of which some are repositories; `began` is when the first look began."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.projects = Projects(self.root)
        self.began = 0

    def repository(self, name: str, remote: str = "") -> Path:
        path = self.root / name
        path.mkdir(exist_ok=True)
        git(path, "init")
        git(path, "remote", "add", "origin", f"git@example.org:{remote or name}.git")
        git(path, "commit", "--allow-empty", "-m", name, date="2026-01-01T00:00:00Z")
        return path

    def look(self, *names: str) -> None:
        self.began = self.began or time.time_ns() // 1_000_000
        at = time.time_ns() // 1_000_000 + 1  # later than what began before
        self.projects.look([str(self.root / name) for name in names], at)

    def rename(self, old: str, new: str) -> None:
        (self.root / old).rename(self.root / new)

    def now(self, name: str) -> str:
        """Where a session is that began in a directory before anything moved."""
        return str(
            Path(self.projects.now(str(self.root / name), self.began)).relative_to(self.root)
        )


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_repository_that_takes_anothers_place_stays_itself(
    disk: Disk, *, restarted: bool
) -> None:
    """Each session goes with its own repository, in a swap, too, and nothing is noted twice."""
    for name in ("x", "x-v2", "a", "b"):
        disk.repository(name)
    disk.look("x", "x-v2", "a", "b")
    if restarted:
        disk.projects = Projects(disk.root)
    for old, new in (("x", "x-old"), ("x-v2", "x"), ("a", "t"), ("b", "a"), ("t", "b")):
        disk.rename(old, new)
    for _ in range(3):
        disk.look("x", "x-old", "a", "b")
        assert [*map(disk.now, ("x", "x-v2", "a", "b"))] == ["x-old", "x", "b", "a"]
    noted = (disk.root / "projects.jsonl").read_text().splitlines()
    assert len(noted) == 4 + 5
    assert [*map(Projects(disk.root).now, [str(disk.root / "a")])] == [str(disk.root / "b")]
    assert len(disk.projects.moves) == 4


def test_a_copy_that_was_there_before_is_not_where_it_moved(disk: Disk) -> None:
    """The repository itself is found among its copies once a session is in the new place."""
    one = disk.repository("c1")
    copy(one, disk.root / "c2")
    disk.look("c1", "c2")
    disk.rename("c1", "c1-new")
    disk.look("c2")
    assert disk.now("c1") == "c1"
    disk.look("c1-new")
    assert disk.now("c1") == "c1-new"
    copy(disk.root / "c1-new", disk.root / "c3")
    shutil.rmtree(disk.root / "c1-new")
    disk.look("c3")
    assert disk.now("c1") == "c1"  # where none of two copies is the one


def test_what_the_user_says_wins(disk: Disk) -> None:
    """Over what git tells; a found move that is taken back is not found again."""
    place = disk.repository("shop")
    disk.look("shop")
    disk.rename("shop", "store")
    disk.look("store")
    assert disk.now("shop") == "store"
    later = time.time_ns() // 1_000_000
    disk.projects.move(str(place), "/elsewhere", at=later)
    assert disk.projects.now(str(place / "api"), disk.began) == "/elsewhere/api"
    disk.projects.move(str(place), "/elsewhere", at=later, undo=True)
    disk.look("store")
    assert disk.now("shop") == "store"
    disk.projects.move(str(place), str(disk.root / "store"), at=later, undo=True)
    disk.look("store")
    assert disk.now("shop") == "shop"


def test_a_link_to_where_it_moved_is_the_same_project(disk: Disk) -> None:
    old = disk.repository("old")
    disk.look("old")
    disk.rename("old", "new")
    old.symlink_to("new")
    disk.look("old", "new")
    assert disk.now("old") == "new"
    (disk.root / "link").symlink_to("new")
    disk.look("link")
    assert disk.projects.asked(str(disk.root / "link")) == str(disk.root / "new")
    assert disk.projects.project(str(disk.root / "link")) == str(disk.root / "new")


def test_a_repository_is_known_by_its_worktree(disk: Disk) -> None:
    """One that is renamed with sessions in its worktree only, and has a second root commit."""
    main = disk.repository("main")
    git(main, "worktree", "add", str(disk.root / "fix"))
    disk.look("main")
    git(main, "checkout", "--orphan", "pages")
    git(main, "commit", "--allow-empty", "-m", "pages")
    disk.rename("main", "moved")
    git(disk.root / "moved", "worktree", "repair", str(disk.root / "fix"))
    disk.look("fix")
    assert disk.now("main") == "moved"
    assert disk.projects.project(str(disk.root / "fix")) == str(disk.root / "moved")


def test_what_is_inside_goes_along(disk: Disk) -> None:
    """Worktrees, also removed ones, and repositories without a remote or a description."""
    main = disk.repository("main")
    (main / ".git/description").unlink()
    for name in ("fix", "old"):
        git(main, "worktree", "add", str(main / ".claude/worktrees" / name))
    (main / "inner").mkdir()
    git(main / "inner", "init")
    inside = ("main/.claude/worktrees/fix", "main/.claude/worktrees/old", "main/inner")
    disk.look("main", *inside)
    git(main, "worktree", "remove", str(main / ".claude/worktrees/old"))
    disk.rename("main", "moved")
    disk.look("moved", *inside)
    moved = str(disk.root / "moved")
    assert disk.now("main/inner") == "moved/inner"
    for name in inside[:2]:
        assert disk.projects.project(str(disk.root / name), disk.began) == moved
    disk.look("moved", *inside)
    assert disk.now("main/inner") == "moved/inner"


def test_what_was_found_stays_found(disk: Disk) -> None:
    """By a copy elsewhere, when there are more."""
    one = disk.repository("v1")
    disk.look("v1")
    copy(one, disk.root / "v2")
    shutil.rmtree(one)
    disk.look("v1", "v2")
    assert disk.now("v1") == "v2"
    copy(disk.root / "v2", disk.root / "v3")
    disk.look("v3")
    assert disk.now("v1") == "v2"


def test_what_is_still_there_has_not_moved(disk: Disk) -> None:
    """Where only the repository left a directory: another inside it, and plain directories."""
    home = disk.repository("home")
    app = disk.repository("home/app", "app")
    for name in ("keep", "gone"):
        (home / name).mkdir()
    inside = ("home/app", "home/keep", "home/gone")
    disk.look("home", *inside)
    (home / "dotfiles").mkdir()
    (home / ".git").rename(home / "dotfiles/.git")
    (home / "gone").rmdir()
    disk.look("home", "home/dotfiles", *inside)
    assert disk.now("home") == "home/dotfiles"
    assert [*map(disk.now, inside)] == ["home/app", "home/keep", "home/dotfiles/gone"]
    assert disk.now("home/dotfiles") == "home/dotfiles"
    assert app.is_dir()


def test_a_clone_that_moves_takes_only_its_own_sessions(disk: Disk) -> None:
    """Not those of clones that are gone; a link left behind is no directory in the old place."""
    one = disk.repository("x1")
    (one / "api").mkdir()
    copy(one, disk.root / "x2")
    disk.look("x1", "x2", "x2/api")
    shutil.rmtree(one)
    disk.look("x1", "x2")
    disk.rename("x2", "x3")
    (disk.root / "x2").symlink_to("x3")
    disk.look("x3", "x2/api")
    assert [*map(disk.now, ("x1", "x2", "x2/api"))] == ["x1", "x3", "x3/api"]


def test_a_place_is_identified_by_the_repository_that_is_there_now(disk: Disk) -> None:
    """Also one that got its remote later, or that took another one's place."""
    place = disk.root / "shop"
    place.mkdir()
    git(place, "init")
    disk.look("shop")
    disk.repository("shop")
    disk.look("shop")
    git(place, "remote", "set-url", "origin", "https://example.org/shop")
    git(place, "checkout", "--orphan", "pages")
    git(place, "commit", "--allow-empty", "-m", "pages")
    disk.look("shop")
    copy(place, disk.root / "moved")  # which only what identifies it can tell
    shutil.rmtree(place)
    disk.look("moved")
    assert disk.now("shop") == "moved"
    (place / ".idea").mkdir(parents=True)  # no repository
    disk.look("shop", "moved")
    assert disk.now("shop") == "moved"
    disk.repository("shop", "unrelated")
    disk.look("shop", "moved")
    later = time.time_ns() // 1_000_000
    assert disk.now("shop") == "moved"
    assert disk.projects.now(str(place), later) == str(place)
    shutil.rmtree(place)
    disk.look("moved")
    assert disk.now("shop") == "moved"
    assert disk.projects.now(str(place), later) == str(place)

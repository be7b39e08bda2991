"""Projects that moved, and worktrees: through the socket, the command line and the home page.

tests/sources/test_projects.py has the rules by which a repository is found again.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.errors import NotFoundError
from tests.e2e.web.views import browsing
from tests.e2e.world import Session, World, listed, until, wait
from tests.sources.test_projects import git


def repository(path: Path, remote: str = "git@example.org:shop.git", first: str = "1") -> Path:
    path.mkdir()
    git(path, "init")
    git(path, "remote", "add", "origin", remote)
    git(path, "commit", "--allow-empty", "-m", first, date="2026-01-01T00:00:00Z")
    return path


@pytest.fixture
def live(world: World) -> Iterator[World]:
    world.root = world.root.resolve()
    with world.daemon():
        yield world


@pytest.fixture
def with_view(world: World) -> None:
    world.listen()


def begun(world: World, cwd: Path, name: str = "Why?") -> Session:
    session = Session(world.sessions, cwd=str(cwd))
    session.turn(name)
    until(lambda: world.row(session.id), "the session")
    return session


def below(world: World, cwd: Path) -> set[str]:
    return {*listed(world, cwd=str(cwd))}


def command(directory: Path, session: Session) -> str:
    return f"cd {directory} && pi --session {session.path}"


def test_a_moved_directory_is_one_project_with_its_new_one(with_view: None, live: World) -> None:
    """Lists, counts, searches, names and `resume` go where the user says that a project is now."""
    root = live.root
    old, new = root / "shop", root / "store"
    (new / "api").mkdir(parents=True)
    before = begun(live, old / "api", "Tune the zebra cache.")
    refused = {"shop nowhere": "not a directory", "shop shop": "the same"}
    refused |= {"/ store": "root directory", "shop /": "root directory"}
    for pair, why in refused.items():
        live.run("move", *pair.split(), code=2)
        assert why in live.stderr
    assert live.run("move", "shop", "store") == f"1 session now found in {new}; no file was moved\n"
    began_later = begun(live, old)  # another project, under the old name
    later = begun(live, new)
    row = live.row(before.id)
    assert (row["cwd"], row["movedTo"]) == (str(old / "api"), str(new / "api"))
    assert row["resume"] == command(new / "api", before)
    assert "movedTo" not in live.row(began_later.id)
    assert below(live, new) == {before.id, later.id}
    assert below(live, new / "api") == {before.id}
    until(lambda: live.call("search", query="zebra", cwd=str(new))["hits"], "its text")
    answer = live.call("counts", cwd=str(new))
    assert answer["agents"] == {"pi": 2}
    counted = {one["cwd"]: one["sessions"] for one in answer["projects"]}
    assert counted == {str(new): 2, str(new / "api"): 1, str(old): 1}  # as a filter finds them
    until(lambda: len(live.call("usage")["mostPrompts"]) == 3, "the others' use")
    used = {row["sessionId"]: row["movedTo"] for row in live.call("usage")["mostPrompts"]}
    assert used == {before.id: str(new / "api"), began_later.id: None, later.id: None}
    assert live.call("resolve", ref="tune the zebra cache", cwd=str(new))["how"] == "name"
    assert live.run("resume", before.id).strip() == row["resume"]
    with browsing(live) as (browser, _):
        page = browser.get(f"/?project={new}").text
    assert re.search(r">\s*store\s*<", page)
    assert f"/s/{before.id}" in page
    assert str(old / "api") not in page
    (move,) = live.run("move", "--json")["moves"]
    assert (move["old"], move["new"], move["by"]) == (str(old), str(new), "user")
    leaf = live.call("branches", ref=before.id)["tips"][0]["leafId"]
    made = live.call("branch", ref=before.id, leaf=leaf)
    until(lambda: below(live, new / "api") == {before.id, made["sessionId"]}, "the branch")
    assert live.run("move", "--undo", "shop", "store") == "taken back for 1 session\n"
    assert live.row(before.id)["resume"] == command(old / "api", before)
    with pytest.raises(NotFoundError):
        live.call("move", old=str(old), new=str(new), undo=True)


def test_what_is_known_of_moves_survives_the_caches(world: World) -> None:
    """Moves and worktrees that are gone are not in a cache; commands without a daemon know them."""
    root = world.root = world.root.resolve()
    main, tree = repository(root / "shop"), root / "trees/fix"
    git(main, "worktree", "add", str(tree))
    (root / "new").mkdir()
    with world.daemon():
        session, moved = begun(world, tree), begun(world, root / "old")
        wait(world, session.id, project=str(main))
        world.call("move", old=str(root / "old"), new=str(root / "new"))
    shutil.rmtree(tree)
    shutil.rmtree(world.state / "search")
    for path in world.state.glob("store.sqlite*"):
        path.unlink()
    with world.daemon():
        assert wait(world, session.id, project=str(main))["cwd"] == str(tree)
        assert wait(world, moved.id, movedTo=str(root / "new"))
    for asked in (main, tree):
        found = world.run("list", "--cwd", str(asked), "--json")["sessions"]
        assert [row["sessionId"] for row in found] == [session.id]


@pytest.mark.parametrize("bare", [False, True])
def test_worktrees_count_as_their_repository(live: World, bare: bool) -> None:
    """Also one without sessions, where someone asks; `resume` stays in the worktree."""
    root = live.root
    main = repository(root / "shop")
    if bare:  # a layout in which every work tree is a linked one
        (root / "bare").mkdir()
        git(root, "clone", "--bare", str(main), str(root / "bare/.bare"))
        main, work = root / "bare", root / "bare/.bare"
    else:
        work = main
    git(work, "worktree", "add", "-b", "fix", str(root / "fix"))
    git(work, "worktree", "add", "-b", "new", str(root / "new"))
    (root / "fix/api").mkdir()
    session = begun(live, root / "fix/api", "Tune the zebra cache.")
    row = wait(live, session.id, project=str(main / "api"))
    assert (row["cwd"], row["resume"]) == (
        str(root / "fix/api"),
        command(root / "fix/api", session),
    )
    assert "movedTo" not in row
    for asked in (main, root / "fix", root / "new"):
        assert below(live, asked) == {session.id}, asked
    assert below(live, root / "fix-2") == set()
    projects = live.call("counts")["projects"]
    assert projects == [{"cwd": str(main / "api"), "sessions": 1}]


def test_a_repository_is_found_again_by_its_history(live: World) -> None:
    """The same remote and first commit, in a directory that sessions use; never by its name."""
    root = live.root
    origin = repository(root / "shop")
    session = begun(live, origin / "api")
    (origin / "api").mkdir()
    marks = live.state / "projects.jsonl"
    until(lambda: marks.exists() and str(origin) in marks.read_text(), "the first look")
    elsewhere = root / "code/shop"
    elsewhere.parent.mkdir()
    other_remote = repository(root / "a", "git@example.org:other.git")
    other_history = repository(root / "b", first="2")
    begun(live, other_remote)
    begun(live, other_history)
    until(lambda: str(other_history) in marks.read_text(), "a look at the others")
    origin.rename(elsewhere)
    asked = begun(live, root / "c")  # elsewhere has no session yet
    until(lambda: live.call("status")["lastScanAt"], "a scan")
    assert "movedTo" not in live.row(session.id)
    assert "movedTo" not in live.row(asked.id)
    begun(live, elsewhere)
    row = wait(live, session.id, movedTo=str(elsewhere / "api"))
    assert row["resume"] == command(elsewhere / "api", session)
    (move,) = live.call("move")["moves"]
    assert move["by"] == "git"
    elsewhere.rename(origin)
    wait(live, session.id, resume=command(origin / "api", session))

"""A warning before Claude Code deletes sessions: of which, by whose settings, and where."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from indexerd.archive.copies import Archive
from indexerd.archive.retention import deleted_soon
from indexerd.settings import Settings
from indexerd.sources.roots import session_roots
from indexerd.store.store import StateStore
from indexerd.web.server import find_running
from tests.archive.keeping import OFTEN
from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World, until

AGES = (40, 25, 5)  # days


def aged(session: Any, days: float) -> Any:
    """Give a session's file this age; its messages are from now."""
    session.turn()
    then = time.time() - days * 86_400
    os.utime(session.path, (then, then))
    return session


def furnish(world: World) -> None:
    home = world.root / "home"
    for days in AGES:
        session = aged(ClaudeSession(home), days)
    below = session.path.with_suffix("") / "subagents"
    helper = ClaudeSession(home, folder=below, session_id="agent-a1b2c3d4")
    helper.prompt("Please look for quaggas.", isSidechain=True)
    aged(helper, 29)
    aged(world.session(), 29)  # pi deletes nothing


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A home whose sessions were read once."""
    world = World(tmp_path_factory.mktemp("read"))
    world.install_pi()
    furnish(world)
    world.run("run", "--once")
    return world


@pytest.fixture
def settings(read: World) -> Iterator[Path]:
    file = read.root / "home/.claude/settings.json"
    yield file
    file.unlink(missing_ok=True)


def found(world: World, key: str = "found") -> list[str]:
    checks = world.run("doctor", "--json", code=None)["checks"]
    return [check[key] for check in checks if check["name"] == "retention"]


@pytest.mark.parametrize(
    ("days", "deleted"),
    [
        (None, 2),
        (10, 3),
        (365, 0),
        (0, 0),  # refused by Claude Code, which then deletes nothing
        ("ten", 2),
        (True, 2),
    ],
)
def test_the_settings_in_force_say_what_is_deleted(
    read: World, settings: Path, days: Any, deleted: int
) -> None:
    """Files near the end of the period count, by their own time, not the messages'."""
    if days is not None:
        settings.write_text(json.dumps({"model": "opus", "cleanupPeriodDays": days}))
    said = f"Claude Code will delete {deleted} sessions within 7 days"
    assert found(read) == ([said] if deleted else [])


def test_the_cure_names_the_file_to_change_and_the_archive(
    read: World, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that is on already may be full."""
    (cure,) = found(read, "cure")
    assert f" in {settings}, " in cure
    assert "`indexerd archive on`" in cure
    monkeypatch.setitem(read.env, "INDEXERD_ARCHIVE__ENABLED", "true")
    (cure,) = found(read, "cure")
    assert "raise `[archive] max_gb`; or set" in cure


def test_settings_that_cannot_be_read_are_ignored(
    read: World, settings: Path, tmp_path: Path
) -> None:
    """Neither a pipe nor nonsense holds the check up; a link is followed."""
    default = ["Claude Code will delete 2 sessions within 7 days"]
    settings.write_text('{"cleanupPeriodDays": 3')
    assert found(read) == default
    settings.unlink()
    os.mkfifo(settings)
    assert found(read) == default
    settings.unlink()
    (tmp_path / "mine.json").write_text('{"cleanupPeriodDays": 365}')
    settings.symlink_to(tmp_path / "mine.json")
    assert found(read) == []


def test_managed_settings_decide_alone(read: World, settings: Path, tmp_path: Path) -> None:
    """Their place is not the user's, so this asks the rule itself."""
    roots = session_roots(Settings(), read.env, read.root / "home")
    archive = Archive(read.root / "none")
    store = StateStore(read.state / "store.sqlite", readonly=True)
    infos = [info for _, _, info in store.files() if info]
    settings.write_text('{"cleanupPeriodDays": 365}')
    managed = tmp_path / "managed-settings.json"
    for days, sessions in {365: None, 10: 3, 0: None}.items():
        managed.write_text(json.dumps({"cleanupPeriodDays": days}))
        given = infos, roots, archive, int(1000 * time.time()), str(managed)
        soon = deleted_soon(*given, archiving=False)
        assert (soon and soon["sessions"]) == sessions


def test_status_and_the_home_page_warn(world: World) -> None:
    """They say how many, and how to keep them; `doctor` sees at once that they are kept."""
    furnish(world)
    world.listen()
    world.env |= OFTEN
    said = "Claude Code will delete 2 sessions within 7 days"
    with world.daemon():
        soon = until(lambda: world.call("status")["deletedSoon"], "the count")
        assert soon["sessions"] == 2
        assert world.call("status")["state"] == "ok"  # nothing is wrong with the daemon
        status, doctor = world.run("status"), world.run("doctor")
        for text in (status, doctor):
            assert said in text
            assert "`indexerd archive on` keeps copies; or set `" in " ".join(text.split())
        view = until(lambda: find_running(world.state), "the view's start")
        with httpx2.Client(follow_redirects=True) as browser:
            page = browser.get(world.run("web", "--json")["link"]).text
            assert said in page
            assert "<code>indexerd archive on</code> keeps copies; or set " in page
            assert said not in browser.get(f"{view.url}/?q=widget").text
        world.run("archive", "on")
        until(lambda: said not in world.run("doctor"), "copies of what will be deleted")
        until(lambda: "indexerd archive on" not in world.run("status"), "a new count")

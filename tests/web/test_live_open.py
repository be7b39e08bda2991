"""Sessions that are looked at: few are open, none for long, and one that moved is followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.errors import NotFoundError
from indexerd.settings import Settings
from indexerd.web.live import IDLE_SECONDS, OPEN_MAX, LiveSessions
from tests.sessions.tree_sessions import said
from tests.web.live_world import Document, World, _go_on


def _leave() -> None:
    """Nobody waits any more."""
    raise NotFoundError("nobody waits")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A home with a session."""
    found = World(tmp_path)
    found.write(said("a", None, "user", "Go."), said("b", "a", "assistant", "Gone."))
    yield found
    found.live.close()


def folders(where: Path) -> list[Path]:
    """The directories of open sessions."""
    return list(where.glob("indexerd-*"))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def test_few_are_open_and_none_for_long(world: World, scratch: Path) -> None:
    """At most four, the least recently used goes; ten minutes unasked, and it goes too."""
    names = [f"n{n}" for n in range(OPEN_MAX + 2)]
    for name in names:
        world.write(said("a", None, "user", "Go."), name=name)
    versions = {name: world.ask(name=name)["version"] for name in names}
    assert len(folders(scratch)) == OPEN_MAX
    assert "base" in world.ask(versions[names[-1]], name=names[-1])
    assert "base" not in world.ask(versions[names[0]], name=names[0])
    world.now += IDLE_SECONDS / 2
    world.ask(name=names[-1])
    world.now += IDLE_SECONDS / 2 + 1
    world.live.tend()
    assert len(folders(scratch)) == 1
    world.live.close()
    assert folders(scratch) == []


def test_one_that_is_being_read_is_closed_after_that(world: World, scratch: Path) -> None:
    """Closing waits for nobody, and takes nothing away from whoever reads."""
    reading, go_on = threading.Event(), threading.Event()
    found: list[Document] = []

    def check() -> None:
        reading.set()
        go_on.wait(20)

    thread = threading.Thread(
        target=lambda: found.append(world.live.document(world.stored(), None, check))
    )
    thread.start()
    try:
        assert reading.wait(20)
        with pytest.raises(NotFoundError):  # whoever waits for a turn may leave as well
            world.live.document(world.stored(), None, _leave)
        world.live.close()
        assert len(folders(scratch)) == 1
    finally:
        go_on.set()
        thread.join(20)
    assert len(found[0]["nodes"]) == 2
    assert folders(scratch) == []


def test_whoever_left_reads_no_more(world: World) -> None:
    """The check ends a reading, and what waits for its turn; the next one goes on from there."""
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise NotFoundError("nobody waits")

    with pytest.raises(NotFoundError):
        world.live.document(world.stored(), None, check)
    assert len(world.ask()["nodes"]) == 2


def test_a_file_that_is_gone_leaves_what_is_stored(world: World) -> None:
    """The page says what is known; should the file come back, all of it is told."""
    version = world.ask()["version"]
    held = world.path().read_bytes()
    world.path().unlink()
    gone = world.ask(version)
    assert (gone["nodes"], gone["live"], gone["leaf"]) == ([], {"gone": True}, -1)
    assert gone["session"]["name"] == "A name"
    assert world.ask(gone["version"]) == {"version": gone["version"], "base": gone["version"]}
    world.path().write_bytes(held)
    back = world.ask(gone["version"])
    assert "base" not in back
    assert [node["id"] for node in back["nodes"]] == ["a", "b"]


def test_a_session_that_moved_is_followed(world: World) -> None:
    """What is stored names another file: that one is read, and told whole."""
    version = world.ask()["version"]
    other = world.path().rename(world.folder / "elsewhere.jsonl")
    stored = world.stored()
    stored["session"]["sessionFile"] = str(other)
    told = world.live.document(stored, version, _go_on)
    assert "base" not in told
    assert len(told["nodes"]) == 2


def test_what_is_forgotten_is_kept_nowhere(world: World, tmp_path: Path) -> None:
    """Purged while somebody looks at it: what its caches held goes with it; others stay open."""
    place = tmp_path / "view"
    live = LiveSessions(Settings, {}, world.home, within=place)
    for name in ("s1", "s2"):
        world.write(said("a", None, "user", "Go."), name=name)
        live.document(world.stored(name), None, _go_on)
    assert len(folders(place)) == 2
    assert place.stat().st_mode & 0o777 == 0o700
    live.forget("s1")
    live.forget("never seen")
    assert len(folders(place)) == 1
    live.close()
    assert folders(place) == []

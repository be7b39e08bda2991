"""A directory that the daemon needs goes for good while it runs, and one day comes back."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import IndexerdError
from tests.e2e.world import World, until

pytestmark = pytest.mark.faults


def said(path: Path, event: str) -> list[dict[str, Any]]:
    """Lines of a log with this event."""
    return [one for one in map(json.loads, path.read_text().splitlines()) if one["event"] == event]


def answers(world: World) -> bool:
    """Whether the daemon does."""
    try:
        return bool(world.call("hello"))
    except (IndexerdError, OSError):
        return False


def causes(world: World, code: str) -> str:
    """What `status` says of a kind of problem."""
    return " ".join(one["cause"] for one in world.call("status")["problems"] if one["code"] == code)


def gone(path: Path) -> bool:
    """Delete a directory that somebody may write to meanwhile; whether it is gone."""
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def refused(world: World) -> bool:
    """Whether the directory of sessions is named as none."""
    problems = {one["code"]: one["cause"] for one in world.call("status")["problems"]}
    return str(world.sessions.parent) in problems.get("root_refused", "")


def test_the_sockets_directory_goes(world: World) -> None:
    """V10: a file is in its place: the daemon indexes on, says so once; without it, it is back."""
    runtime = world.root / "run/indexerd"
    world.socket = runtime / "s.sock"
    world.env["INDEXERD_SOCKET"] = str(world.socket)
    log = world.state / "log.jsonl"
    with world.daemon() as process:
        shutil.rmtree(runtime)
        runtime.write_text("in the way")
        until(lambda: said(log, "socket.rejected"), "the complaint")
        session = world.session(turns=5)
        world.wait_meta(session.id)
        assert process.poll() is None
        assert not answers(world)
        assert len(said(log, "socket.rejected")) == 1

        runtime.unlink()
        until(lambda: answers(world), "the socket")
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        assert world.call("hello")["pid"] == process.pid
        assert world.row(session.id)["state"]


def test_the_sessions_directory_goes(world: World) -> None:
    """V10: status names it, what was described stays, and it is followed when back."""
    world.scripted()
    session = world.session(turns=5)
    place, kept = world.sessions.parent, world.root / "kept"
    with world.daemon():
        meta = world.wait_meta(session.id)
        place.rename(kept)
        place.write_text("in the way")
        until(lambda: refused(world), "the word of it")
        assert world.call("resolve", ref=meta["name"])["sessionId"] == session.id

        place.unlink()
        kept.rename(place)
        until(lambda: not refused(world), "the root")
        session.talk(5)
        world.wait_meta(session.id, lambda one: one["lastIndexedLeafId"] == session.last)
        assert world.call("status")["state"] == "ok"
    assert len(world.calls()) == 2


def test_the_state_directory_goes(world: World) -> None:
    """V10: while it cannot be made the daemon stays, and says so; then it ends, to begin anew.

    The next one knows all again, and makes no call for it.
    """
    world.scripted()
    session = world.session(turns=5)
    with world.daemon() as process:
        world.wait_meta(session.id)
        until(lambda: gone(world.state), "the directory to go")
        world.state.write_text("in the way")
        until(lambda: "gone" in causes(world, "state_unwritable"), "the problem")
        assert process.poll() is None
        world.state.unlink()
        assert process.wait(30) == 1
    assert "begin anew" in (world.root / "stderr").read_text()
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        until(lambda: world.call("search", query="widget")["hits"], "its text")
        assert world.call("status")["state"] == "ok"
        new = world.session(turns=5)
        world.wait_meta(new.id)
    assert [one["session"] for one in world.calls()] == [session.id, new.id]

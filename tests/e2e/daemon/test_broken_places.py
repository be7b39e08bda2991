"""The daemon outlives a full disk or a missing directory and recovers when it is back."""

import os
import shutil
import stat
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from indexerd.daemon.daemon import TICK_SECONDS
from indexerd.errors import IndexerdError
from tests.e2e.world import World, hit_by, index_state, problems, until, wait

pytestmark = pytest.mark.faults


def on_a_small_disk(place: Path, size: str) -> list[str]:
    place.mkdir(parents=True, exist_ok=True)
    mount = f'mount -t tmpfs -o mode=0700,size={size} tmpfs "$0" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", mount, str(place)]


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65_536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="mounting a tmpfs needs root on Linux, and unshare",
)


@mounts
def test_a_full_state_directory(world: World) -> None:
    """S0.36: with no space for its state the daemon keeps running, and recovers once there is."""
    world.scripted()
    old = world.session(turns=5)
    with world.daemon(under=on_a_small_disk(world.state, "4m")) as process:
        world.wait_meta(old.id)
        until(lambda: hit_by(world, "widget"), "its text")
        ballast = fill(Path(f"/proc/{process.pid}/root{world.state}"))
        new = world.session(turns=6)
        words = " ".join(f"word{number}x{new.id[:8]}" for number in range(20_000))
        for number in range(4):
            new.turn(f"Question {number}. {words}", f"Zeppelin {number}. {words}")
        new.turn()
        old.talk(5)
        small = world.session(turns=2)  # below the threshold: it is only listed
        until(lambda: "state_unwritable" in problems(world), "the problem in the status")
        for _ in range(30):  # no scan and no other loop hides it
            assert "state_unwritable" in problems(world)
            time.sleep(0.1)
        status = world.call("status")
        assert status["state"] == "degraded"
        assert all(problem["cause"] and problem["cure"] for problem in status["problems"])
        assert world.call("resolve", ref=old.id)["sessionId"] == old.id
        assert old.id in hit_by(world, "widget")
        assert process.poll() is None
        ballast.unlink()
        for session, count in ((new, 11), (old, 10), (small, 2)):
            wait(world, session.id, userMessageCount=count)
        until(lambda: hit_by(world, "zeppelin"), "the text that was read meanwhile")
        world.wait_meta(new.id)
        world.wait_meta(old.id, lambda meta: meta["userMessageCount"] == 10)
        until(lambda: not problems(world), "the end of the problem")
        until(lambda: not world.call("status")["indexing"], "the end of work")
        booked = world.call("status")["budget"]["calls"]
        assert process.poll() is None
    assert Counter(call["session"] for call in world.calls()) == {old.id: 2, new.id: 1}
    assert booked >= len(world.calls())


@mounts
def test_a_full_meta_directory(world: World) -> None:
    """The old meta file stays whole; once there is space again, a run replaces it."""
    world.scripted()
    session = world.session(turns=5)
    with world.daemon(under=on_a_small_disk(world.metas, "64k")) as process:
        world.metas = Path(f"/proc/{process.pid}/root{world.metas}")
        old = world.wait_meta(session.id)
        names = sorted(os.listdir(world.metas))
        ballast = fill(world.metas)
        session.talk(5)
        until(lambda: index_state(world, session.id) == "failed", "the failure")
        assert world.meta(session.id) == old
        assert sorted(os.listdir(world.metas)) == sorted([*names, ballast.name])
        ballast.unlink()
        world.call("index", ref=session.id, force=True, wait=True)
        assert world.wait_meta(session.id)["userMessageCount"] == 10


def answers(world: World) -> bool:
    try:
        return bool(world.call("hello"))
    except (IndexerdError, OSError):
        return False


def test_the_sockets_directory_is_replaced_by_a_file(world: World) -> None:
    """The daemon keeps indexing; the socket returns when the file is gone."""
    runtime = world.root / "run/indexerd"
    world.socket = runtime / "s.sock"
    world.env["INDEXERD_SOCKET"] = str(world.socket)
    with world.daemon() as process:
        shutil.rmtree(runtime)
        runtime.write_text("in the way")
        session = world.session(turns=5)
        world.wait_meta(session.id)
        time.sleep(TICK_SECONDS)  # it has tried to make the socket by then
        assert process.poll() is None
        assert not answers(world)
        runtime.unlink()
        until(lambda: answers(world), "the socket")
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        assert world.call("hello")["pid"] == process.pid
        assert world.row(session.id)["state"]


def test_the_state_directory_is_moved_away(world: World) -> None:
    """The daemon rebuilds its state and calls no model twice for the same session."""
    world.scripted()
    session = world.session(turns=5)
    with world.daemon():
        world.wait_meta(session.id)
        world.state.rename(world.root / "away")
        until(lambda: answers(world) and (world.state / "store.sqlite").exists(), "the start")
        world.seen(session)
        until(lambda: hit_by(world, "widget"), "its text")
        new = world.session(turns=5)
        world.wait_meta(new.id)
    assert [call["session"] for call in world.calls()] == [session.id, new.id]

"""The daemon as a process: signals, configuration, file modes, limits and clean-up."""

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.world import NEW_PYTHON, World, ends_well, hooked, proc, scanned, until

pytestmark = pytest.mark.faults


AHEAD = """\
import os, time

def ahead(real=time.time):
    return real() + (0 if os.path.exists(os.environ["SET_BACK"]) else 86_400)

time.time = ahead
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc counts what is read")
def test_the_clock_is_set_back(world: World) -> None:
    """A clock set back by a day causes no stall and no endless reading of a newer session."""
    back = world.root / "back"
    world.env["SET_BACK"] = str(back)
    hooked(world, AHEAD)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with world.daemon() as process:
        old, late = world.session(turns=5), world.session(turns=1)
        message = {"role": "user", "content": [{"type": "text", "text": "word " * 200_000}]}
        late.entry("message", message=message, timestamp=tomorrow.isoformat())
        os.utime(late.path, (tomorrow.timestamp(),) * 2)
        world.wait_meta(old.id)
        back.touch()
        new = world.session(turns=5)
        world.wait_meta(new.id)
        old.talk(5)
        world.wait_meta(old.id, lambda meta: meta["userMessageCount"] == 10)
        until(lambda: not world.call("status")["textPending"], "the words")
        times = [row["modifiedAt"] for row in world.call("list")["sessions"]]
        assert times == sorted(times, reverse=True)
        assert world.call("list")["sessions"][0]["sessionId"] == late.id
        read = proc(process.pid, "io", "rchar")
        scanned(world, 3)
        assert proc(process.pid, "io", "rchar") - read < late.path.stat().st_size


def test_files_are_private_under_any_umask(world: World) -> None:
    """S2.22: directories have mode 0700, files 0600, and only the owner can use the socket."""
    session = world.session(turns=5)
    old = os.umask(0)
    try:
        with world.daemon(under=NEW_PYTHON):
            world.wait_meta(session.id)
            modes = {}
            for path in (world.socket, *world.state.rglob("*"), *world.metas.rglob("*")):
                with suppress(FileNotFoundError):  # a temporary file
                    modes[path] = stat.S_IMODE(path.lstat().st_mode)
            for path in (world.state, world.metas):
                modes[path] = stat.S_IMODE(path.lstat().st_mode)
    finally:
        os.umask(old)
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert wrong == {}


def test_two_daemons_cannot_share_a_meta_directory(world: World) -> None:
    """S0.41: a second daemon is refused despite another state directory; no lock file stays."""
    session = world.session(turns=1)
    with world.daemon():
        world.seen(session)
        env, elsewhere = world.env, {"XDG_STATE_HOME": str(world.root / "other")}
        world.env = env | elsewhere | {"INDEXERD_SOCKET": "/nowhere/s"}
        answer = world.run("run", "--once", "--json", code=75)
        assert str(world.metas) in answer["error"]["message"]
        world.env = env
    assert not [*world.pi.rglob(".*")]


def test_broken_standard_streams_are_harmless(world: World) -> None:
    """With broken pipes as its streams the daemon indexes, logs and exits with code 0."""
    world.env["INDEXERD_LOG__LEVEL"] = "debug"  # write much to the broken streams
    read, wrote = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "indexerd", "run"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), wrote)
    with ends_well(subprocess.Popen(words, env=world.env, cwd=world.root, **streams)):
        os.close(wrote)
        for _ in range(2):
            world.wait_meta(world.session(turns=5).id)
        assert world.call("status")["state"] == "ok"
    assert "daemon.stopped" in (world.state / "log.jsonl").read_text()


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux can read another process's limits"
)
@pytest.mark.parametrize(("hard", "want"), [(1024, 1024), (8192, 4096)])
def test_the_limit_of_open_files_is_raised(world: World, hard: int, want: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("the limit is low here")
    limits = f'ulimit -S -n 256; ulimit -H -n {hard}; exec "$@"'
    with world.daemon(under=["sh", "-c", limits, "sh"]) as process:
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (want, hard)


DEAD = 4_194_999  # larger than any pid
ID = "4f6c0a52-6f0e-4c0e-9d54-2d5f3f0a0001"
LEFT = (
    *(f".{ID}.{DEAD}.1.tmp", f"{ID}.meta.json.{DEAD}.1767225600000.tmp", f".s1.{DEAD}.77.tmp"),
    *(f".a.b-c.{10**18}.1.tmp", f".{ID}.0.1.tmp"),
)
FOREIGN = (
    *("notes.tmp", f".{ID}.tmp", f".{ID}.{DEAD}.tmp", f".{ID}.x.1.tmp", f".{ID}.{DEAD}.1.tmp~"),
    *(f"{ID}.meta.json.bak", f"..{DEAD}.1.tmp", f".bad id.{DEAD}.1.tmp"),
)


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


@pytest.mark.parametrize("once", [True, False])
def test_temporary_files_of_dead_writers_are_removed_at_start(world: World, once: bool) -> None:
    """S0.37: only temporary files of indexerd and of the older extension are removed."""
    world.scripted()
    world.metas.mkdir()
    alive = f".{ID}.1.5.tmp"
    for name in (*LEFT, *FOREIGN, alive):
        (world.metas / name).write_bytes(b'{"half":')
    stays = {*FOREIGN, alive}
    with nullcontext(world.run("run", "--once")) if once else world.daemon():
        until(lambda: names(world.metas) == stays, "the sweep")
    assert (world.metas / alive).read_bytes() == b'{"half":'


def test_readiness_is_reported_and_a_deleted_socket_returns(world: World) -> None:
    """READY comes when the socket answers, WATCHDOG while it runs, STOPPING after SIGINT."""
    world.env |= {"NOTIFY_SOCKET": str(world.root / "n"), "WATCHDOG_USEC": "400000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(world.env["NOTIFY_SOCKET"])
        line.settimeout(20)

        def wait_for(word: str) -> None:
            while word not in line.recv(4096).decode().splitlines():
                pass

        with world.daemon(ready=False) as process:
            wait_for("READY=1")
            assert world.call("hello")["pid"] == process.pid
            wait_for("WATCHDOG=1")
            world.socket.unlink()
            until(lambda: world._answers(process), "the socket")
            assert world.socket.stat().st_mode & 0o777 == 0o600
            assert world.call("hello")["pid"] == process.pid
            process.send_signal(signal.SIGINT)
            wait_for("STOPPING=1")
            assert process.wait(10) == 0
            assert not world.socket.exists()

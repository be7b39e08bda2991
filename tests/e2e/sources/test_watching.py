"""New session directories, lost file events and limits of inotify."""

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Session, World, logged, scanned, until, wait
from tests.sessions.opencode_rows import Rows

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify"),
]

NAMESPACE = ["unshare", "-Ur"]
LIMIT = Path("/proc/sys/user/max_inotify_instances")


def watches(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.call("status")["watches"]
    return found


@pytest.fixture(autouse=True)
def scan_rarely(world: World) -> None:
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "300"


def test_directories_created_after_the_start_are_watched(world: World) -> None:
    """No agent has a directory at first; each is noticed by a scan, and then watched."""
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "1"
    shutil.rmtree(world.pi.parent)
    home, data = world.root / "home", world.root / "data/opencode"
    with world.daemon():
        until(lambda: world.call("status")["lastScanAt"], "the first scan")
        thread, claude = CodexThread(home), ClaudeSession(home)
        thread.turn()
        claude.turn()
        session = world.session(turns=1)
        data.mkdir(parents=True)
        Rows(data / "opencode.db").session("ses_1")
        for ref in (thread.id, claude.id, session.id, "ses_1"):
            until(partial(world.row, ref), "the session")
        thread.turn()
        wait(world, thread.id, userMessageCount=2)
        Rows(data / "opencode-dev.db").session("ses_2")  # of another channel of opencode
        until(partial(world.row, "ses_2"), "the session in a second database")


def queue_length() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@pytest.mark.skipif(
    not Path("/proc/sys/fs/inotify").exists() or queue_length() > 40_000, reason="a long queue"
)
def test_an_overflow_loses_nothing(world: World) -> None:
    """More events than the kernel's queue holds cause a scan."""
    sessions = [world.session(turns=1) for _ in range(4)]
    with world.daemon() as process:
        until(lambda: world.call("status")["lastScanAt"], "the first scan")
        first = world.call("status")["lastScanAt"]
        process.send_signal(signal.SIGSTOP)
        until(lambda: "\nState:\tT" in Path(f"/proc/{process.pid}/status").read_text(), "the stop")
        for _ in range(queue_length() // 2 + 500):  # alternate: the kernel merges equal events
            os.utime(sessions[0].path)
            os.utime(sessions[1].path)
        for session in sessions:
            session.turn()
        fresh = Session(world.pi / "sessions/--new--")
        fresh.talk(2)
        sessions[3].path.unlink()
        process.send_signal(signal.SIGCONT)
        for session in (*sessions[:3], fresh):
            wait(world, session.id, userMessageCount=2)
        until(lambda: world.row(sessions[3].id)["gone"], "the one that went")
        assert watches(world)["overflows"] >= 1
        assert world.call("status")["lastScanAt"] != first
        until(lambda: logged(world, "watch.overflow"), "the word")
        # Later changes are seen through events again.
        fresh.turn()
        wait(world, fresh.id, userMessageCount=3)


def namespaced() -> bool:
    if not shutil.which("unshare") or not LIMIT.exists():
        return False
    probe = [*NAMESPACE, "sh", "-c", f"echo 0 > {LIMIT}"]
    return subprocess.run(probe, check=False, capture_output=True, timeout=10).returncode == 0


def test_a_watch_limit_falls_back_to_polling(world: World) -> None:
    """One warning names the setting; indexing goes on by scans until watches are possible."""
    if not namespaced():
        pytest.skip("cannot create a user namespace")
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "0.3"
    session = world.session(turns=5)
    with world.daemon(
        under=[*NAMESPACE, "sh", "-c", f'echo 0 > {LIMIT}; exec "$@"', "sh"]
    ) as process:
        world.wait_meta(session.id)
        scans = len(logged(world, "watch.armed"))
        scanned(world)
        status = world.call("status")
        assert (status["state"], status["watches"]["mode"]) == ("degraded", "poll")
        (problem,) = status["problems"]
        assert problem["code"] == "watch_instances"
        assert "max_user_instances" in problem["cure"]
        assert len(logged(world, "watch.degraded")) == 1
        assert len(logged(world, "watch.armed")) == scans
        enter = ["nsenter", "-U", "-t", str(process.pid), "sh", "-c", f"echo 10 > {LIMIT}"]
        subprocess.run(enter, check=True, timeout=10)
        until(lambda: watches(world)["mode"] == "inotify", "the watcher")
        until(lambda: world.call("status")["state"] == "ok", "the end of the problem")
        assert len(logged(world, "watch.degraded")) == 1

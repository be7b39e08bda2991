"""What a service manager hears of the daemon: ready, alive, stopping; and how it ends at all."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.world import World, until

pytestmark = pytest.mark.faults

# Loaded by the daemon's interpreter before anything else: it hangs where a test says so.
HANGING = """
import os, time
from indexerd.sources.tail import Tail
from indexerd.sources.watch import Watch
from indexerd.daemon import process, watch_loop
from indexerd.daemon.unix_server import UnixServer

process.END_SECONDS = float(os.environ["HANGS_FOR"])
watch_loop.STALL_SECONDS = float(os.environ["STALLS_FOR"])

def hanging(kind, name):
    work = getattr(kind, name)
    def wait(self, *args, **more):
        place = os.path.join(os.environ["HANGS"], name)
        while os.path.exists(place):
            open(place + ".held", "w").close()
            time.sleep(0.02)
        return work(self, *args, **more)
    setattr(kind, name, wait)

hanging(Tail, "read")
hanging(Watch, "arm")
start = UnixServer.start

async def late(self):
    import asyncio
    await asyncio.sleep(0.3)
    await start(self)

UnixServer.start = late
"""


class Manager:
    """The manager's end of the notification socket, and what hangs on its word."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.place = world.root / "hangs"
        self.place.mkdir()
        (self.place / "sitecustomize.py").write_text(HANGING)
        world.env["PYTHONPATH"] = f"{self.place}:{world.env['PYTHONPATH']}"
        world.env |= {"HANGS": str(self.place), "HANGS_FOR": "600", "STALLS_FOR": "600"}
        world.env["NOTIFY_SOCKET"] = str(world.root / "n")
        world.env["WATCHDOG_USEC"] = "400000"
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.line.bind(world.env["NOTIFY_SOCKET"])
        self.line.settimeout(20)

    def wait(self, word: str) -> None:
        """Wait until the daemon says a word."""
        for _ in range(10_000):
            if word in self.line.recv(4096).decode().splitlines():
                return
        raise AssertionError(f"{word} was not said")

    def silent(self) -> bool:
        """Whether no ping comes while ten would, be it that nothing comes; one may be late."""
        self.line.settimeout(1)
        said = b""
        with suppress(TimeoutError):
            for _ in range(10):
                said += self.line.recv(4096)
        self.line.settimeout(20)
        return said.count(b"WATCHDOG=1") < 2

    def hang(self, what: str) -> Path:
        """Let the daemon's next call of this hang, until the file is removed."""
        (self.place / what).touch()
        return self.place / what

    def held(self, what: str) -> bool:
        """Whether a call of it hangs now."""
        return (self.place / f"{what}.held").exists()


@pytest.fixture
def manager(world: World) -> Iterator[Manager]:
    """A manager for the daemon of this home."""
    made = Manager(world)
    yield made
    made.line.close()


def test_ready_means_that_it_answers_and_a_socket_that_goes_is_made_again(
    world: World, manager: Manager
) -> None:
    """V5: READY comes once the socket answers, and STOPPING at the end. S6: it stays in place."""
    with world.daemon(ready=False) as process:
        manager.wait("READY=1")
        assert world.call("hello")["pid"] == process.pid
        world.socket.unlink()
        until(world.socket.exists, "the socket")
        assert world.socket.stat().st_mode & 0o777 == 0o600
        assert world.call("hello")["pid"] == process.pid
        process.send_signal(signal.SIGTERM)
        manager.wait("STOPPING=1")
        assert process.wait(10) == 0


@pytest.mark.parametrize("what", ["read", "arm"])
def test_the_watchdog_is_fed_by_work_alone(world: World, manager: Manager, what: str) -> None:
    """V2: no ping while the reader, or what follows the files, hangs; look-ups go on meanwhile."""
    world.env["STALLS_FOR"] = "0.4" if what == "arm" else "600"
    session = world.session(turns=1)
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        manager.wait("WATCHDOG=1")
        place = manager.hang(what)
        session.turn()
        until(lambda: manager.held(what), "the hang")
        if what == "arm":
            until(lambda: "scan_stalled" in problems(world), "the problem")
        until(manager.silent, "silence")
        assert world.call("resolve", ref=session.id)["sessionId"] == session.id
        place.unlink()
        manager.wait("WATCHDOG=1")
        until(lambda: world.row(session.id)["userMessageCount"] == 2, "the turn")
        until(lambda: "scan_stalled" not in problems(world), "the end of the problem")


def problems(world: World) -> set[str]:
    """Codes of what is wrong."""
    return {one["code"] for one in world.call("status")["problems"]}


def test_a_file_system_that_hangs_does_not_keep_us(world: World, manager: Manager) -> None:
    """V1: where a reading never returns, the end comes all the same, and says so in the log."""
    world.env["HANGS_FOR"] = "0.5"
    session = world.session(turns=1)
    with world.daemon() as process:
        until(lambda: world.row(session.id), "the session")
        manager.hang("read")
        session.turn()
        until(lambda: manager.held("read"), "the hang")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    last = json.loads((world.state / "log.jsonl").read_text().splitlines()[-1])
    assert (last["event"], "hangs" in last["reason"]) == ("daemon.stopped", True)
    assert not world.socket.exists()


def test_a_second_signal_ends_at_once(world: World, manager: Manager) -> None:
    """V1: whoever asks twice does not wait for what hangs."""
    session = world.session(turns=1)
    with world.daemon() as process:
        until(lambda: world.row(session.id), "the session")
        manager.hang("read")
        session.turn()
        until(lambda: manager.held("read"), "the hang")
        process.send_signal(signal.SIGTERM)
        manager.wait("STOPPING=1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 130

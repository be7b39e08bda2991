"""What a service manager hears of the daemon: ready, alive, stopping."""

from __future__ import annotations

import signal
import socket

import pytest

from tests.e2e.world import World, until

pytestmark = pytest.mark.faults


def test_ready_means_that_it_answers_and_a_socket_that_goes_is_made_again(world: World) -> None:
    """V5, S6: READY once the socket answers, pings while it works, STOPPING at the end."""
    world.env |= {"NOTIFY_SOCKET": str(world.root / "n"), "WATCHDOG_USEC": "400000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(world.env["NOTIFY_SOCKET"])
        line.settimeout(20)

        def said(word: str) -> None:
            while word not in line.recv(4096).decode().splitlines():
                pass

        with world.daemon(ready=False) as process:
            said("READY=1")
            assert world.call("hello")["pid"] == process.pid
            said("WATCHDOG=1")
            world.socket.unlink()
            until(lambda: world._answers(process), "the socket")
            assert world.socket.stat().st_mode & 0o777 == 0o600
            assert world.call("hello")["pid"] == process.pid
            process.send_signal(signal.SIGTERM)
            said("STOPPING=1")
            assert process.wait(10) == 0

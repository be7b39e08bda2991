"""The notification protocol over real sockets; e2e/daemon/test_service.py uses systemd itself."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.daemon.process import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A datagram socket in place of systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(5)
        yield sock


def test_every_message_is_one_datagram(manager: socket.socket) -> None:
    """Each message is one datagram, as in sd_notify(3)."""
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    for word in ("READY=1", "STATUS=3 sessions"):
        notifier.send(word)
    assert [manager.recv(4096) for _ in range(2)] == [b"READY=1", b"STATUS=3 sessions"]


@pytest.mark.parametrize("path", ["", "@", "relative/path", "vsock:2:1234"])
def test_silent_without_a_manager(path: str) -> None:
    """A missing or unreachable manager causes no error."""
    notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "x"})
    assert not notifier.watchdog_seconds
    notifier.send("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("60000000", "", 60.0),
        ("500000", "own", 0.5),
        ("60000000", "1", 0),
        ("0", "", 0),
        ("", "", 0),
        ("1e6", "", 0),
    ],
)
def test_watchdog_deadline(usec: str, pid: str, seconds: float) -> None:
    """The deadline is in seconds, and 0 if it is invalid or for another process."""
    pid = str(os.getpid()) if pid == "own" else pid
    env = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    assert Notifier(env).watchdog_seconds == seconds

"""The notification protocol over real sockets; e2e/daemon/test_service.py uses systemd itself."""

import os

import pytest

from indexerd.daemon.process import Notifier


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

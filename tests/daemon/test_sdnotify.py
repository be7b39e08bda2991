"""The notification protocol over real sockets; e2e/daemon/test_service.py uses systemd itself."""

import os

import pytest

from indexerd.daemon.process import Notifier


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
    for path in ("/run/x", "@", "relative/path", "vsock:2:1234", ""):
        notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid})
        notifier.send("READY=1")  # an unreachable manager is no error
        assert notifier.watchdog_seconds == (seconds if path else 0)

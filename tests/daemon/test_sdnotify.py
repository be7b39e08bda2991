"""The notification protocol over real sockets (V2, V5); test_systemd_real.py has systemd itself."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.daemon.sdnotify import STATUS_MAX, Notifier

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A datagram socket that stands where systemd's would be."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        held.bind(str(tmp_path / "notify"))
        held.settimeout(5)
        yield held


def at(manager: socket.socket) -> Notifier:
    """A notifier that talks to this manager."""
    return Notifier({"NOTIFY_SOCKET": manager.getsockname()})


def test_every_message_is_one_datagram(manager: socket.socket) -> None:
    """Pings, status and the end are sent as sd_notify(3) writes them."""
    notifier = at(manager)
    assert notifier.watchdog()
    assert notifier.status("indexing 3")
    assert notifier.status("")
    assert notifier.stopping()

    found = [manager.recv(4096) for _ in range(4)]
    assert found == [b"WATCHDOG=1", b"STATUS=indexing 3", b"STATUS=", b"STOPPING=1"]


@on_linux
@given(st.text(max_size=600))
def test_status_is_one_line_of_bounded_length(text: str) -> None:
    """Whatever a status says, it cannot start another message (`READY=1`), nor grow."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        held.bind("")  # the kernel picks an abstract name
        held.settimeout(5)
        name = held.getsockname()
        assert Notifier({"NOTIFY_SOCKET": "@" + os.fsdecode(name[1:])}).status(text)
        message = held.recv(65536)

    assert message.startswith(b"STATUS=")
    assert len(message) <= len("STATUS=") + STATUS_MAX
    assert message.decode().isprintable()


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "@"},
        {"NOTIFY_SOCKET": "relative/path"},
        {"NOTIFY_SOCKET": "vsock:2:1234"},
    ],
)
def test_silent_without_a_manager(env: dict[str, str]) -> None:
    """Not under systemd every call is a quiet False, and there is no watchdog."""
    notifier = Notifier({**env, "WATCHDOG_USEC": "1000000"})

    assert notifier.watchdog_seconds is None
    assert not any((notifier.ready("x"), notifier.watchdog(), notifier.stopping()))
    assert not notifier.status("x")


def test_a_full_queue_holds_nobody_up(manager: socket.socket) -> None:
    """A ping that does not fit is dropped at once; READY waits a little for room, not for ever."""
    notifier = at(manager)
    sent = 0
    while notifier.watchdog():
        sent += 1
        assert sent < 100_000

    assert not notifier.status("x")
    assert not notifier.ready("x")
    assert manager.recv(4096) == b"WATCHDOG=1"
    assert notifier.ready("x")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("60000000", "", 60.0),
        ("500000", "me", 0.5),
        ("60000000", "1", None),
        ("0", "", None),
        ("", "", None),
        ("-5", "", None),
        ("1e6", "", None),
        ("9" * 30, "", None),
        ("٣", "", None),
    ],
)
def test_watchdog_deadline(usec: str, pid: str, seconds: float | None) -> None:
    """The deadline is in seconds, ours only where it is meant for this process, and a number."""
    env = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": usec}
    if pid:
        env["WATCHDOG_PID"] = str(os.getpid()) if pid == "me" else pid

    assert Notifier(env).watchdog_seconds == seconds

"""The blocking client against servers in processes of their own: crowds, memory, masks, deaths."""

import contextlib
import os
import resource
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from indexerd import errors
from indexerd.client import Client, call_once
from indexerd.daemon import unix_server
from indexerd.protocol import wire
from tests.client_servers import SECONDS, process, stopped


def test_six_hundred_clients_at_once(directory: Path) -> None:
    """S8: at least 512 are served, each with its own answer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1000:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1000), hard))
    with process(directory) as server, contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        crowd = [stack.enter_context(Client(server.path, SECONDS)) for _ in range(600)]
        assert [one.call("echo", {"n": n})["n"] for n, one in enumerate(crowd)] == list(range(600))


def test_no_descriptor_left_does_not_spin(directory: Path) -> None:
    """S8: EMFILE on accept: old connections are served, new ones wait, the processor rests."""
    with process(directory, files=40) as server, contextlib.ExitStack() as stack:
        first = stack.enter_context(Client(server.path, SECONDS))
        assert first.call("echo") == {}
        crowd = [stack.enter_context(Client(server.path, SECONDS)) for _ in range(60)]
        before = wait_for_refusals(first, 1)
        after = wait_for_refusals(first, before["rejected"]["no_files"] + 2)
        busy = (after["cpu"] - before["cpu"]) / (after["clock"] - before["clock"])
        assert busy < 0.5
        for one in crowd[:40]:
            one.close()
        assert crowd[-1].call("echo") == {}


def wait_for_refusals(daemon: Client, count: int) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS
    waiting = threading.Event()
    while True:
        told: dict[str, Any] = daemon.call("stats")
        if told["rejected"].get("no_files", 0) >= count:
            return told
        assert time.monotonic() < deadline
        waiting.wait(0.02)


def test_ten_megabytes_without_newline(directory: Path) -> None:
    """S7: one error reply, then the end, also for a client that sends all before it reads."""
    with process(directory) as server:
        before = server.resident()
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(SECONDS)
            one.connect(os.fspath(server.path))
            one.sendall(b"x" * 10_000_000)
            said = b"".join(iter(lambda: one.recv(1000), b""))
        assert said == wire.too_long().to_line()
        assert call_once(server.path, "stats")["rejected"] == {"too_long": 1}
        assert server.resident() - before < 8 * 1024 * 1024


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_directory_and_socket_are_private_under_any_umask(directory: Path, umask: int) -> None:
    """S2: directories 0700, socket 0600; neither more, nor so little that we lock ourselves out."""
    with process(directory, path=directory / "new" / "d" / "s.sock", umask=umask) as server:
        for each in (server.path.parent.parent, server.path.parent):
            assert stat.S_IMODE(each.stat().st_mode) == 0o700
        assert stat.S_IMODE(server.path.lstat().st_mode) == 0o600
        assert call_once(server.path, "echo") == {}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the private directory covers it")
def test_the_socket_is_private_from_its_first_moment(directory: Path) -> None:
    """S2: no window: it is 0600 before anything is done to its file (see the server's hook)."""
    with process(directory, umask=0) as server:
        assert call_once(server.path, "modes") == [0o600]


def test_a_live_socket_is_never_stolen(directory: Path) -> None:
    """S4: a second server gives up, even while the first is stopped; the first goes on."""
    with process(directory) as server:
        with pytest.raises(errors.AlreadyRunningError):
            unix_server._listen(server.path)
        with stopped(server.pid), pytest.raises(errors.AlreadyRunningError):
            unix_server._listen(server.path)
        assert call_once(server.path, "echo") == {}


def test_a_stale_socket_is_replaced(directory: Path) -> None:
    """S4: a server that was killed leaves its file; the next one takes the place."""
    with process(directory) as server, Client(server.path, SECONDS) as daemon:
        server.kill()
        assert stat.S_ISSOCK(server.path.lstat().st_mode)
        with pytest.raises(errors.DaemonDownError):
            daemon.call("echo")
    with process(directory) as server:
        assert call_once(server.path, "echo") == {}

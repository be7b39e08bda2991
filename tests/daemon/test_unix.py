"""The Unix-socket server, by real sockets: bounds, privacy, and a file that is ours.

The servers run on a loop in a thread of the test's own process, so that handlers and counters
can be looked at. Those whose umask, descriptors or memory matter are in test_client.py.
"""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import AccessError
from tests.daemon.unix_served import SECONDS, Asking, Served, eventually, line, servers
from tests.short_directory import short_directory

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a short name."""
    with short_directory() as made:
        yield made


@pytest.fixture
def serve(directory: Path) -> Iterator[Callable[..., Served]]:
    yield from servers(directory)


def code(told: Any) -> int:
    found: int = told["error"]["code"]
    return found


# Order and errors.


@pytest.mark.parametrize("method", ["boom", "no json"])
def test_an_unforeseen_error_is_reported_and_says_nothing(
    serve: Callable[..., Served], method: str
) -> None:
    """A bug answers "internal error" without its text, is told to the daemon, and kills nothing."""
    served = serve()
    with Asking(served.path) as one:
        told = one.ask(method)["error"]
        assert (told["code"], told["message"]) == (-32603, "internal error")
        assert "division" not in json.dumps(told)
        assert "result" in one.ask("echo")
    assert [name for name, _ in served.errors] == [method]


# What peers may send.


@pytest.mark.parametrize(
    "junk",
    [
        b"\n",
        b"nonsense\n",
        bytes(range(256)).replace(b"\n", b"") + b"\n",
        b"[" * 100_000 + b"\n",
        b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":NaN}}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n',
        b"\x16\x03\x01\x02\x00\x01\n",
    ],
)
def test_a_line_of_junk_gets_one_error(serve: Callable[..., Served], junk: bytes) -> None:
    """And the connection can still be used."""
    served = serve()
    with Asking(served.path) as one:
        one.sock.sendall(junk)
        assert code(one.receive()) == -32700
        assert "result" in one.ask("echo")


def test_a_complete_line_that_is_too_long_is_refused(serve: Callable[..., Served]) -> None:
    """The bound holds with the newline in sight, and requests before it are answered."""
    served = serve(line_bytes=100)
    with Asking(served.path) as one:
        one.send((1, "echo", {}), (2, "echo", {"text": "x" * 100}), (3, "echo", {}))
        assert [one.receive()["id"] for _ in range(2)] == [1, None]
        assert one.receive() is None
    assert (served.refused, served.begun) == (["too_long"], 1)


def test_half_a_request_is_not_waited_for_for_ever(serve: Callable[..., Served]) -> None:
    """A begun request ends in time or its connection does; an idle connection stays."""
    served = serve(half_line_seconds=0.1)
    with Asking(served.path) as idle, Asking(served.path) as half:
        assert "result" in half.ask("echo")
        half.sock.sendall(b'{"jsonrpc"')
        assert half.receive() is None
        assert served.refused == ["half_sent"]
        assert "result" in idle.ask("echo")


def test_the_end_of_the_sending_side_lets_answers_through(serve: Callable[..., Served]) -> None:
    """`printf … | nc -N`: all is answered, the last line needs no newline, then comes the end."""
    served = serve()
    with Asking(served.path) as one:
        one.send(*((n, "echo", {}) for n in range(50)), (50, "gated", {}))
        one.sock.sendall(line(51, "echo", {}).rstrip(b"\n"))
        one.sock.shutdown(socket.SHUT_WR)
        eventually(lambda: served.begun == 51)
        served.open_gate()
        assert [one.receive()["id"] for _ in range(52)] == list(range(52))
        assert one.receive() is None
    eventually(lambda: len(served.server.peers) == 0)


# How many, and who.


CONNECT_AS_NOBODY = """
import os, socket, sys
one = socket.socket(socket.AF_UNIX)
one.settimeout(10)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try:
    one.connect(sys.argv[1])
    one.sendall(b'{"jsonrpc":"2.0","id":1,"method":"echo"}\\n')
    print("read", one.recv(100))
except PermissionError as refused:
    print(type(refused).__name__)
"""


@root_only
def test_another_user_is_turned_away(serve: Callable[..., Served], directory: Path) -> None:
    """S2.22: EACCES by the mode of the socket, even in a directory that is open to all."""
    served = serve()
    command = [sys.executable, "-c", CONNECT_AS_NOBODY, os.fspath(served.path)]
    directory.chmod(0o755)
    served.path.parent.chmod(0o755)
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert run.stdout == "PermissionError\n"


# The file.


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(
    serve: Callable[..., Served], directory: Path, mode: int
) -> None:
    """No socket where others can put theirs, /tmp included."""
    directory.chmod(mode)
    with pytest.raises(AccessError, match="other users can write"):
        serve(directory / "s.sock")
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "link to a socket"])
def test_what_is_no_socket_is_never_removed(
    serve: Callable[..., Served], directory: Path, kind: str
) -> None:
    """A symlink, file or directory in the socket's place is refused and left alone."""
    path = directory / "s.sock"
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(os.fspath(directory / "t.sock"))
        make: dict[str, Callable[[], object]] = {
            "file": lambda: path.write_text("mine"),
            "link to a socket": lambda: path.symlink_to(directory / "t.sock"),
        }
        make[kind]()
        before = path.lstat()
        with pytest.raises(AccessError, match="not a socket"):
            serve(path)
        after = path.lstat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert (directory / "t.sock").exists()


def test_a_removed_socket_is_made_anew(serve: Callable[..., Served]) -> None:
    """The file, or its whole directory, is gone: it is made again; connections stay."""
    served = serve()
    with Asking(served.path) as old:
        assert "result" in old.ask("echo")
        for whole in (False, True):
            served.path.unlink()
            if whole:
                served.path.parent.rmdir()
            served.run(served.server.check())
            with Asking(served.path) as new:
                assert "result" in new.ask("echo")
            assert "result" in old.ask("echo")
        assert stat.S_IMODE(served.path.lstat().st_mode) == 0o600


# The end.


def test_requests_that_do_not_end_are_cut_short(serve: Callable[..., Served]) -> None:
    """After that time they are cancelled, and answered with a typed error."""
    served = serve(grace_seconds=0.05)
    with Asking(served.path) as one, Asking(served.path) as deaf:
        one.send((1, "gated", {}))
        deaf.send((1, "big", {"size": 5_000_000}))
        eventually(lambda: served.begun == 2)
        served.run(served.server.close())
        told = one.receive()["error"]
        assert told["data"]["kind"] == "daemon_down"
        assert told["data"]["retryable"] is True
        assert one.receive() is None
        assert served.cancelled == 1
        assert len(served.server.peers) == 0


# What peers may leave unread.


def test_a_peer_that_never_reads_is_given_up(serve: Callable[..., Served]) -> None:
    """Its requests are left undone, unsent bytes stay few, and it is closed in time."""
    served = serve(stall_seconds=0.2)
    with Asking(served.path) as deaf, Asking(served.path) as other:
        deaf.send(*((n, "big", {"size": 65536}) for n in range(300)))
        assert "result" in other.ask("echo")
        eventually(lambda: served.refused == ["not_reading"])
        eventually(lambda: len(served.server.peers) == 1)
        assert served.begun < 100
        assert "result" in other.ask("echo")


# Subscribers.


def test_a_subscriber_that_lags_is_hung_up_on(serve: Callable[..., Served]) -> None:
    """Events never wait for a reader: who is too far behind is hung up on, and nobody else."""
    served = serve(unsent_bytes=100_000)
    with Asking(served.path) as deaf, Asking(served.path) as other:
        for each in (deaf, other):
            each.ask("subscribe")
        sent = 0
        while not served.refused:
            served.tell({"event": "status.changed", "n": sent, "text": "x" * 5000})
            assert other.receive()["params"]["n"] == sent
            sent += 1
            assert sent < 1000
        assert served.refused == ["lagging"]
        eventually(lambda: served.closed == ["subscriber"])
        served.tell({"event": "status.changed"})
        assert other.receive()["params"] == {"event": "status.changed"}
        assert "result" in other.ask("echo")


# How many, and who.


def test_connections_above_the_cap_are_closed_unanswered(serve: Callable[..., Served]) -> None:
    """The cap holds, is counted, and a place that is left can be taken."""
    served = serve(connections=3)
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(Asking(served.path)) for _ in range(3)]
        assert all("result" in one.ask("echo") for one in inside)
        with Asking(served.path) as outside:
            assert outside.receive() is None
        assert served.refused == ["connections"]
        inside[0].sock.close()
        eventually(lambda: len(served.server.peers) == 2)
        with Asking(served.path) as next_one:
            assert "result" in next_one.ask("echo")

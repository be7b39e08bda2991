"""The blocking client against servers that answer wrongly, late or not at all."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexerd import errors
from indexerd.client import Client, call_once
from indexerd.protocol import wire

SECONDS = 20.0  # before a test gives up; each step takes less than a tenth


@contextlib.contextmanager
def scripted(path: Path, play: Callable[[socket.socket], None]) -> Iterator[str]:
    def run() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as peer:
            peer.settimeout(SECONDS)
            play(peer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(SECONDS)
        listener.bind(os.fspath(path))
        listener.listen()
        thread = threading.Thread(target=run)
        thread.start()
        yield os.fspath(path)
        thread.join(SECONDS)


def answers(line: bytes) -> Callable[[socket.socket], None]:
    return lambda peer: peer.recv(1 << 16).endswith(b"\n") and peer.sendall(line)


@pytest.mark.parametrize(
    ("line", "kind", "exit_code"),
    [
        (wire.unknown_method(wire.Request(1, "new", {})).to_line(), errors.UsageError, 2),
        (wire.too_long().to_line(), errors.UsageError, 2),
        (wire.Failure(1, wire.Fault.INTERNAL, "internal error").to_line(), errors.IndexerdError, 1),
        (
            b'{"jsonrpc":"2.0","id":1,"error":{"code":1099,"message":"?","data":{"kind":"new"}}}\n',
            errors.IndexerdError,
            1,
        ),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-1}}\n', errors.IndexerdError, 1),
    ],
)
def test_faults_and_unknown_kinds_are_typed_errors(
    directory: Path, line: bytes, kind: type[errors.IndexerdError], exit_code: int
) -> None:
    """An older or newer daemon causes no traceback."""
    where = scripted(directory / "s", answers(line))
    with where as path, pytest.raises(errors.IndexerdError) as raised:
        call_once(path, "get", {"ref": "x"}, SECONDS)
    assert type(raised.value) is kind
    assert raised.value.exit_code == exit_code


def test_an_unusable_socket_means_the_daemon_is_down(directory: Path) -> None:
    """ENOENT, ENOTDIR, a plain file, a stale socket, or a connection that closes at once."""
    (directory / "file").write_text("x")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.fspath(directory / "stale"))
    for name in ("none", "file/below", "file", "stale"):
        with pytest.raises(errors.DaemonDownError) as raised:
            call_once(directory / name, "hello", timeout=SECONDS)
        assert raised.value.exit_code == 69


@pytest.mark.parametrize("said", [b"", b'{"jsonrpc":"2.0","id":1,"resu'])
def test_a_closed_connection_means_the_daemon_is_down(directory: Path, said: bytes) -> None:
    """Without an answer, or in the middle of one."""
    with scripted(directory / "s", answers(said)) as path, Client(path, SECONDS) as daemon:
        for _ in range(2):
            with pytest.raises(errors.DaemonDownError):
                daemon.call("hello")


def test_time_runs_out(directory: Path) -> None:
    """A silent or slow daemon causes a DeadlineError, which ends the connection."""

    def drip(peer: socket.socket) -> None:
        while True:
            peer.sendall(b" ")
            threading.Event().wait(0.01)

    for name, play in (("silent", lambda peer: peer.recv(1000) and peer.recv(1)), ("drip", drip)):
        with scripted(directory / name, play) as path, Client(path, 0.1) as daemon:
            with pytest.raises(errors.DeadlineError):
                daemon.call("hello")
            with pytest.raises(errors.DaemonDownError):
                daemon.call("hello")


def test_a_path_that_the_system_refuses_names_the_variable(directory: Path) -> None:
    with pytest.raises(errors.UsageError) as raised:
        Client(directory / ("x" * 200))
    assert "INDEXERD_SOCKET" in raised.value.hint

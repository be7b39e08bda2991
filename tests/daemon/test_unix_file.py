"""The Unix socket as a file: who may connect, what is replaced, what is removed at the end."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexerd.errors import (
    AccessError,
    AlreadyRunningError,
    UsageError,
)
from tests.daemon.unix_served import SECONDS, Asking, Served, eventually, servers
from tests.short import short_directory

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a short name."""
    with short_directory() as made:
        yield made


@pytest.fixture
def serve(directory: Path) -> Iterator[Callable[..., Served]]:
    """Make servers, and stop them all."""
    yield from servers(directory)


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
except (PermissionError, BrokenPipeError, ConnectionResetError) as refused:
    print(type(refused).__name__)
"""


@root_only
def test_another_user_is_turned_away(serve: Callable[..., Served], directory: Path) -> None:
    """S3: EACCES by the modes; with these opened up, closed unanswered by the peer's uid."""
    served = serve()
    command = [sys.executable, "-c", CONNECT_AS_NOBODY, os.fspath(served.path)]
    directory.chmod(0o755)
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert run.stdout == "PermissionError\n"
    served.path.parent.chmod(0o755)
    served.path.chmod(0o666)
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert run.stdout in {"read b''\n", "BrokenPipeError\n", "ConnectionResetError\n"}
    eventually(lambda: served.refused == ["peer"])
    assert served.begun == 0
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


# The file.


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(
    serve: Callable[..., Served], directory: Path, mode: int
) -> None:
    """S1, V10: no socket where others can put theirs, /tmp included."""
    directory.chmod(mode)
    with pytest.raises(AccessError, match="written to by others"):
        serve(directory / "s.sock")
    assert list(directory.iterdir()) == []


def test_what_cannot_be_made_is_said(serve: Callable[..., Served], directory: Path) -> None:
    """V10: a file where a directory should be is a clear error, not a traceback."""
    (directory / "file").write_text("x")
    with pytest.raises(AccessError, match="cannot make the socket"):
        serve(directory / "file" / "below" / "s.sock")


def test_a_path_that_is_too_long_is_refused(serve: Callable[..., Served], directory: Path) -> None:
    """S5: with the way out as a hint, and nothing made."""
    with pytest.raises(UsageError) as refused:
        serve(directory / "new" / ("x" * 120))
    assert "INDEXERD_SOCKET" in refused.value.hint
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "directory", "fifo", "dangling link", "link to a socket"])
def test_what_is_no_socket_is_never_removed(
    serve: Callable[..., Served], directory: Path, kind: str
) -> None:
    """S4: a symlink, file or directory in the socket's place is refused and left alone."""
    path = directory / "s.sock"
    other = directory / "other"
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(os.fspath(directory / "t.sock"))
        make: dict[str, Callable[[], object]] = {
            "file": lambda: path.write_text("mine"),
            "directory": path.mkdir,
            "fifo": lambda: os.mkfifo(path),
            "dangling link": lambda: path.symlink_to(other),
            "link to a socket": lambda: path.symlink_to(directory / "t.sock"),
        }
        make[kind]()
        before = path.lstat()
        with pytest.raises(AccessError, match="not a socket"):
            serve(path)
        after = path.lstat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert (directory / "t.sock").exists()
    assert not other.exists()


def test_a_removed_socket_is_made_anew(serve: Callable[..., Served]) -> None:
    """S6: the file, or its whole directory, is gone: noticed, made again; connections stay."""
    served = serve()
    with Asking(served.path) as old:
        assert served.run(served.server.check()) is True
        for whole in (False, True):
            served.path.unlink()
            if whole:
                served.path.parent.rmdir()
            assert served.run(served.server.check()) is False
            assert served.run(served.server.check()) is True
            with Asking(served.path) as new:
                assert "result" in new.ask("echo")
            assert "result" in old.ask("echo")
        assert stat.S_IMODE(served.path.lstat().st_mode) == 0o600


def test_a_restart_loses_nobody_at_the_door(serve: Callable[..., Served]) -> None:
    """S6: who has connected and not been let in when the file is made anew is answered."""
    served = serve()

    async def knock_and_restart() -> Asking:
        one = Asking(served.path)
        served.path.unlink()
        assert not await served.server.check()
        return one

    with served.run(knock_and_restart()) as one:
        assert "result" in one.ask("echo")
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


def test_a_replaced_socket_is_noticed_and_not_stolen(serve: Callable[..., Served]) -> None:
    """S6, S4: somebody else's file or live socket stays; once it is gone we are back."""
    served = serve()
    served.path.unlink()
    served.path.write_text("mine")
    for _ in range(2):
        with pytest.raises(AccessError):
            served.run(served.server.check())
    assert served.path.read_text() == "mine"
    served.path.unlink()
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(os.fspath(served.path))
        thief.listen()
        with pytest.raises(AlreadyRunningError):
            served.run(served.server.check())
    assert served.run(served.server.check()) is False
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


# The end.


def test_closing_removes_our_own_file_only(serve: Callable[..., Served], directory: Path) -> None:
    """What stands in our place by then is not ours to remove."""
    ours = serve()
    ours.run(ours.server.close())
    assert not ours.path.exists()
    replaced = serve(directory / "r.sock")
    replaced.path.unlink()
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(os.fspath(replaced.path))
        replaced.run(replaced.server.close())
        assert stat.S_ISSOCK(replaced.path.lstat().st_mode)


def test_requests_that_do_not_end_are_cut_short(serve: Callable[..., Served]) -> None:
    """V1: after that time they are cancelled, and answered with a typed error."""
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
        assert served.server.connections == 0

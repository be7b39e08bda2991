"""io/lock: one daemon a state directory, tried with real processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.errors import AccessError, AlreadyRunningError
from indexerd.store.lock import hold, lives

ROOT = Path(__file__).parents[2]
HOLDER = """
import os, subprocess, sys
from pathlib import Path
from indexerd.store.lock import hold
lock = hold(Path(sys.argv[1]))
child = 0
if sys.argv[2] == "fork":
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"alive")
        sys.stdin.read()
        lock.release()
        os._exit(0)
    os.read(reader, 5)
if sys.argv[2] == "exec":
    child = subprocess.Popen(["sleep", "60"], close_fds=False).pid
print(child, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(path: Path, kind: str = "plain") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a process that holds the lock, and perhaps a child of it; end both."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        yield process, child
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock file will be; two directories are missing."""
    return tmp_path / "state" / "indexerd" / "indexerd.lock"


def test_second_process_is_refused_with_the_holder_named(path: Path) -> None:
    """S0.41, A11: the message and the file tell pid and start; the code is 75."""
    with holder(path) as (process, _):
        with pytest.raises(AlreadyRunningError) as caught:
            hold(path)
        note = path.read_text()
    found = re.fullmatch(
        rf"another indexerd \(pid {process.pid}, since ([0-9TZ:-]+)\) holds {re.escape(str(path))}",
        str(caught.value),
    )
    assert found is not None, str(caught.value)
    assert note == f"pid {process.pid} since {found[1]}\n"
    assert caught.value.exit_code == 75


def test_kill_frees_the_lock_at_once(path: Path) -> None:
    """A11: after kill -9 the next one holds it, the stale note notwithstanding."""
    with holder(path) as (process, _):
        process.kill()
        process.wait()
        with hold(path):
            assert path.read_text().startswith(f"pid {os.getpid()} since ")


@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_children_do_not_keep_the_lock(path: Path, kind: str) -> None:
    """A11: neither a forked child nor an exec'ed one holds the lock after its parent's kill."""
    with holder(path, kind) as (process, child):
        with pytest.raises(AlreadyRunningError):
            hold(path)
        process.kill()
        process.wait()
        assert lives(child)
        hold(path).release()


def test_child_that_releases_does_not_free_its_parents_lock(path: Path) -> None:
    """A forked child that leaves a `with` block must not unlock the daemon."""
    lock = hold(path)
    pid = os.fork()
    if pid == 0:
        lock.release()
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(AlreadyRunningError):
        hold(path)
    lock.release()


def test_hole_that_native_forks_leave_is_told(path: Path) -> None:
    """A11: a copy that outlives its holder keeps the lock, and the message says what is known."""
    lock = hold(path)
    copy = os.dup(lock._fd)
    lock.abandon()
    path.write_text("pid 4194999 since 2026-11-21T10:00:00Z\n")
    with pytest.raises(AlreadyRunningError, match="pid 4194999, which last held it, has ended"):
        hold(path)
    os.close(copy)
    hold(path).release()


def test_release_frees_and_keeps_the_file(path: Path) -> None:
    """The file is never unlinked: same inode before and after; a second release does nothing."""
    with hold(path) as lock:
        inode = path.stat().st_ino
        with pytest.raises(AlreadyRunningError):
            hold(path)
    assert path.read_bytes() == b""
    with hold(path):
        lock.release()
        with pytest.raises(AlreadyRunningError):
            hold(path)
    assert path.stat().st_ino == inode


def test_release_frees_a_copy_too(path: Path) -> None:
    """`release` unlocks aloud, so that a copy in a forked child holds nothing."""
    lock = hold(path)
    copy = os.dup(lock._fd)
    lock.release()
    hold(path).release()
    os.close(copy)


def test_modes(path: Path) -> None:
    """A8: with umask 000, the file is 0600 and the directories that were made are 0700."""
    before = os.umask(0)
    try:
        hold(path).release()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700


def test_descriptor_is_not_inherited(path: Path) -> None:
    """O_CLOEXEC is set, and the file is the one of that name."""
    with hold(path) as lock:
        assert fcntl.fcntl(lock._fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert os.fstat(lock._fd).st_ino == path.stat().st_ino


def test_deleted_file_locks_nobody_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file deleted between open and flock is opened anew: the lock is on the file of that name.

    Deleted every time, it is an error and not a loop.
    """
    real, left = fcntl.flock, [2]

    def deleting(fd: int, how: int) -> None:
        real(fd, how)
        if left[0]:
            left[0] -= 1
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", deleting)
    with hold(path) as lock:
        assert os.fstat(lock._fd).st_ino == path.stat().st_ino
    left[0] = 1_000_000
    with pytest.raises(AlreadyRunningError, match="deleted again and again"):
        hold(path)


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory"])
def test_what_is_not_a_regular_file_is_refused(path: Path, kind: str) -> None:
    """X2, X3: no link is followed, no FIFO waited for; the error names the path."""
    path.parent.mkdir(parents=True)
    other = path.with_name("other")
    if kind == "link":
        other.write_bytes(b"the user's")
    if kind in {"link", "dangling"}:
        path.symlink_to(other)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(AccessError, match=re.escape(str(path))):
        hold(path)
    assert other.exists() == (kind == "link")
    assert kind != "link" or other.read_bytes() == b"the user's"


def test_file_system_without_flock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOLCK is an error that says where to put the state directory, not a daemon without lock."""

    def refuse(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(AccessError, match="cannot be locked") as caught:
        hold(path)
    assert "local disk" in caught.value.hint


NOTES = st.one_of(
    st.binary(max_size=600),
    st.from_regex(rb"pid [0-9]{1,30} since 2026-[0-9]{2}-[0-9]{2}T[0-9:]{0,8}Z?\n?"),
)


@given(note=NOTES)
@example(note=b"")
@example(note=b"pid 99999999999999999999 since 2026-01-01T00:00:00Z\n")
@example(note=b"pid 1 since 2026-01-01T00:00:00Z\n\x1b[2J")
@settings(max_examples=100, deadline=None)
def test_any_note_gives_a_readable_message(note: bytes) -> None:
    """A torn or foreign note is never shown, and never hinders the message."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "lock"
        with hold(path):
            path.write_bytes(note)
            with pytest.raises(AlreadyRunningError) as caught:
                hold(path)
    said = str(caught.value).removesuffix(f" holds {path}")
    assert re.fullmatch(
        r"another process( \(pid [0-9]{1,10}, which last held it, has ended\))?"
        r"|another indexerd \(pid [0-9]{1,10}, since [0-9T:Z-]{20}\)",
        said,
    )

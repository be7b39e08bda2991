"""The lock of a state directory, and files that are replaced as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from indexerd.disk import hold, write_atomically
from indexerd.errors import AccessError, AlreadyRunningError

HOLDER = """
import sys, pathlib, time
from indexerd.disk import hold
lock = hold(pathlib.Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_with_the_holder_named(tmp_path: Path) -> None:
    """S0.41, A11: the message tells the pid, the code is 75; kill -9 frees the lock at once."""
    path = tmp_path / "a/b/lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(AlreadyRunningError) as told:
            hold(path)
    finally:
        process.kill()
        process.communicate()
    assert f"pid {process.pid}," in str(told.value)
    assert told.value.exit_code == 75
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    lock = hold(path)
    inode = path.stat().st_ino
    lock.release()
    lock.release()
    assert path.stat().st_ino == inode
    hold(path).release()


@pytest.mark.parametrize("note", [b"", b"pid 0 since", b"\x1b[31m", b"pid 99999999 since \xff\n"])
def test_any_note_gives_a_readable_message(tmp_path: Path, note: bytes) -> None:
    """A torn or foreign note is never shown, and never hinders the message."""
    path = tmp_path / "lock"
    lock = hold(path)
    path.write_bytes(note)
    with pytest.raises(AlreadyRunningError) as told:
        hold(path)
    assert str(told.value) == f"another process holds {path}"
    lock.release()


def test_a_lock_whose_file_was_removed_does_not_stand(tmp_path: Path) -> None:
    """V10: a second daemon could lock a new file of that name."""
    lock = hold(tmp_path / "lock")
    assert lock.stands()
    lock.path.unlink()
    assert not lock.stands()
    lock.path.touch()
    assert not lock.stands()
    lock.release()


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda one: one.symlink_to("/dev/null")])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, make: object) -> None:
    """X2, X3: no link is followed, no FIFO waited for; the error names the path."""
    path = tmp_path / "lock"
    make(path)  # type: ignore[operator]
    began = time.monotonic()
    with pytest.raises(AccessError, match=str(path)):
        hold(path)
    assert time.monotonic() - began < 5


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """A3: and nothing beside it."""
    path = tmp_path / "x"
    write_atomically(path, b"old")
    code = (
        "import resource, signal, sys, pathlib\n"
        "from indexerd.disk import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "write_atomically(pathlib.Path(sys.argv[1]), b'n' * 100)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    assert ran.returncode == 1
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]
    assert path.stat().st_mode & 0o777 == 0o600

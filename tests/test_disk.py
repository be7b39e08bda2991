"""The lock of a state directory, files that are replaced as a whole, and files that rotate."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from indexerd.disk import RotatingFile, hold, write_atomically
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


# -- lines in files that rotate --


def test_files_are_rotated_and_two_old_ones_kept(tmp_path: Path) -> None:
    """§6: no file exceeds its limit, the newest lines stay in order, older ones are dropped."""
    file = RotatingFile(tmp_path / "x.jsonl", limit=100, keep=2)
    for number in range(60):
        assert file.append(b"line %03d" % number)
    names = ["x.jsonl.2", "x.jsonl.1", "x.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    lines = [line for name in names for line in (tmp_path / name).read_text().splitlines()]
    assert lines == [f"line {number:03}" for number in range(60 - len(lines), 60)]
    assert all((tmp_path / name).stat().st_size <= 100 for name in names)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """S2.22, A8: 0600 in a 0700 directory under umask 000, and a wider old file is narrowed."""
    old = tmp_path / "old.jsonl"
    old.write_bytes(b"")
    old.chmod(0o644)
    before = os.umask(0)
    try:
        assert RotatingFile(tmp_path / "new" / "x.jsonl", limit=100).append(b"x")
        assert RotatingFile(old, limit=100).append(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new" / "x.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_a_full_disk_loses_the_line_and_says_so(tmp_path: Path) -> None:
    """S0.45, A3: a write that fails is answered by False, not by an error."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from indexerd.disk import RotatingFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "file = RotatingFile(Path(sys.argv[1]), limit=1000)\n"
        "print([file.append(b'0123456789') for _ in range(3)])\n"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "x")]
    ran = subprocess.run(argv, capture_output=True, check=True, text=True)
    assert ran.stdout == "[True, False, False]\n"


def test_writers_in_threads_and_processes_never_mix_lines(tmp_path: Path) -> None:
    """§6: four threads and two processes, with rotations between: every line there is whole."""
    path = tmp_path / "x.jsonl"
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from indexerd.disk import RotatingFile\n"
        "file = RotatingFile(Path(sys.argv[1]), limit=20_000)\n"
        "def work():\n"
        "    for n in range(100): assert file.append(b'<' + b'%03d' % n * 30 + b'>')\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path)])
    file = RotatingFile(path, limit=20_000)

    def work() -> None:
        for number in range(100):
            assert file.append(b"<" + b"%03d" % number * 30 + b">")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait(30) == 0
    found = [line for one in tmp_path.iterdir() for line in one.read_bytes().splitlines()]
    assert len(found) > 200
    assert all(re.fullmatch(rb"<(\d{3})\1{29}>", line) for line in found)

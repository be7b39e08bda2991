"""The lock of a state directory, files that are replaced whole, and files that rotate."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from indexerd.disk import append_line, write_atomically


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """And no new one, as of an export."""
    path = tmp_path / "x"
    write_atomically(path, b"old")
    code = (
        "import resource, signal, sys, pathlib\n"
        "from indexerd.disk import append_rotating, create_file, write_atomically\n"
        "from indexerd.errors import WriteError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "log = path.with_name('log')\n"
        "done = [append_rotating(log, b'0123456789', limit=1000) for _ in range(3)]\n"
        "assert done == [True, False, False]\n"
        "try: create_file(path.with_name('new'), [b'n' * 100])\n"
        "except WriteError as full: assert full.exit_code == 75\n"
        "write_atomically(path, b'n' * 100)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    assert b"File too large" in ran.stderr
    assert path.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "x"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors have no names here")
def test_a_durable_line_is_on_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is synced, and so is a new file's name, which a power cut could lose."""
    done: list[str] = []
    fsync, path = os.fsync, tmp_path / "budget.jsonl"

    def noted(fd: int) -> Any:
        rows = path.read_bytes().count(b"\n")
        done.append(f"{rows} in {os.readlink(f'/proc/self/fd/{fd}')}")
        return fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    for number in (1, 2):
        append_line(path, b"{%d}" % number, durable=True)
    file, place = path.resolve(), tmp_path.resolve()
    assert done == [f"1 in {file}", f"1 in {place}", f"2 in {file}"]
    assert path.stat().st_mode & 0o777 == 0o600

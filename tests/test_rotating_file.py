"""Lines that are appended to files which cannot grow without bound."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from indexerd.disk import RotatingFile

WHO: dict[str, Any] = {
    "session_id": "a1b2",
    "model": "google/x",
    "timestamp": "2026-11-21T10:00:00Z",
}


def rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a file, each of which must be strict JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    return [json.loads(line, parse_constant=refuse) for line in lines]


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


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    """After a crash inside a write, the next line begins on its own."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'whole\n{"tor')

    assert RotatingFile(path, limit=1000).append(b"next")
    assert path.read_bytes() == b'whole\n{"tor\nnext\n'


def test_a_removed_or_moved_file_begins_anew(tmp_path: Path) -> None:
    """V6: logrotate, or a removed state directory, needs no signal."""
    path = tmp_path / "state" / "x.jsonl"
    file = RotatingFile(path, limit=1000)
    file.append(b"one")
    path.rename(tmp_path / "moved")
    file.append(b"two")
    path.unlink()
    path.parent.rmdir()
    file.append(b"three")

    assert (tmp_path / "moved").read_bytes() == b"one\n"
    assert path.read_bytes() == b"three\n"


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

    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x")],
        capture_output=True,
        check=True,
        text=True,
    )

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

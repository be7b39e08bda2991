"""Rows that are on disk before `append` returns, whatever ended the writer before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.models.journal import Journal

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from indexerd.models.journal import Journal

path, name, count = sys.argv[1:]
journal = Journal(Path(path))
for n in range(int(count)):
    journal.append({"name": name, "n": n, "pad": "x" * (n % 97)})
    print(n, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is, or will be."""
    return tmp_path / "budget.jsonl"


def writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    """Another process, appending."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_the_file_is_the_users_alone(path: Path) -> None:
    """S2.22: 0600, whatever the umask."""
    old = os.umask(0)
    try:
        Journal(path).append({"n": 1})
    finally:
        os.umask(old)

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_row_is_on_disk_before_append_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M15: written, then synced; a new file's name is synced too: a power cut could lose it."""
    done: list[tuple[str, str]] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(fd: int, *rest: Any) -> Any:
            done.append((name, os.readlink(f"/proc/self/fd/{fd}")))
            return real(fd, *rest)

        monkeypatch.setattr(os, name, call)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("descriptors have no names here")
    noted("write")
    noted("fsync")
    journal = Journal(path)
    journal.append({"n": 1})
    file, place = str(path.resolve()), str(path.parent.resolve())
    assert done == [("write", file), ("fsync", file), ("fsync", place)]

    done.clear()
    journal.append({"n": 2})

    assert done == [("write", file), ("fsync", file)]


@pytest.mark.parametrize(
    "torn",
    [b'{"n":', b'{"n":3}', b"\x00" * 4096, b'{"n":"\xff', b"[" * 200_000, b'{"n":3}\n{"n'],
)
def test_a_torn_last_row_is_passed_over(path: Path, torn: bytes) -> None:
    """M15, F5: what a crash or a power cut left; the next row stands on a line of its own."""
    journal = Journal(path)
    journal.append({"n": 1})
    with path.open("ab") as out:
        out.write(torn)
    before = list(journal.rows())
    assert before[0] == {"n": 1}

    journal.append({"n": 2})

    assert list(journal.rows()) == [*before, {"n": 2}]


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """M15: the daemon starts whatever the file holds, and goes on writing."""
    path = tmp_path_factory.mktemp("j") / "j"
    path.write_bytes(data)
    journal = Journal(path)
    list(journal.rows())
    journal.append({"n": 2})

    assert list(journal.rows())[-1] == {"n": 2}


def test_what_was_appended_survives_a_kill(path: Path) -> None:
    """M15: kill -9 between two rows, or in one; every row that was confirmed is there."""
    process = writer(path, "a", 100_000)
    assert process.stdout is not None
    try:
        confirmed = [int(process.stdout.readline()) for _ in range(30)]
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=50)[0]
    confirmed += [int(line) for line in rest.split(b"\n")[:-1]]

    found = [row["n"] for row in Journal(path).rows()]

    assert found[: len(confirmed)] == confirmed
    assert found == list(range(len(found)))


def test_nothing_is_written_through_a_link(path: Path, tmp_path: Path) -> None:
    """X4: OSError, which is the caller's to judge."""
    path.symlink_to(tmp_path / "target")
    journal = Journal(path)

    with pytest.raises(OSError):
        journal.append({"n": 1})
    with pytest.raises(OSError):
        list(journal.rows())
    assert not (tmp_path / "target").exists()


def test_a_write_that_falls_short_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A4: what is there of the row is passed over, and the next one is whole."""
    journal = Journal(path)
    journal.append({"n": 1})
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:4]))  # a disk with 4 bytes left
        with pytest.raises(OSError, match="short write"):
            journal.append({"n": 2})

    journal.append({"n": 3})

    assert list(journal.rows()) == [{"n": 1}, {"n": 3}]


def test_a_kill_while_it_is_made_shorter_loses_no_row(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2, M15: until the new file is whole and in its place, the old one is."""
    journal = Journal(path)
    for n in range(5):
        journal.append({"n": n})

    def died(_self: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", died)
        with pytest.raises(KeyboardInterrupt):
            journal.shorten([{"n": 4}])
    assert [row["n"] for row in Journal(path).rows()] == [0, 1, 2, 3, 4]

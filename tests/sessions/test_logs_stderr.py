"""The log's way out: the journal, a reader that is gone or stopped, another stderr."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from indexerd.logs import Event, configure, get_logger


@pytest.fixture(autouse=True)
def _configured_for_one_test() -> Iterator[None]:
    held = structlog.get_config()
    yield
    structlog.configure(**held)


DRIVER = """
import os, sys
from pathlib import Path
from indexerd import logs
logs.configure("info", "json", log_file=Path(sys.argv[1]), stderr=sys.stderr)
for number in range(int(sys.argv[2])):
    logs.get_logger().info("daemon.ready", number=number, reason="r" * 200)
print("alive")
"""


def drive(path: Path, count: int, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """A real process that logs `count` lines and then says on stdout that it lives."""
    command = [sys.executable, "-c", DRIVER, str(path), str(count)]
    return subprocess.run(command, stdout=subprocess.PIPE, timeout=30, check=False, **how)


def test_the_journal_gets_its_levels(tmp_path: Path) -> None:
    """§6: `<N>` leads a line only where JOURNAL_STREAM names this very stream."""
    for matches in (True, False):
        reader, writer = os.pipe()
        held = os.fstat(writer)
        env = os.environ | {"JOURNAL_STREAM": f"{held.st_dev}:{held.st_ino + (not matches)}"}
        drive(tmp_path / "log.jsonl", 1, stderr=writer, env=env)
        os.close(writer)
        line = os.read(reader, 4096)
        os.close(reader)

        assert line.startswith(b'<6>{"ts"' if matches else b'{"ts"')
    assert b"<" not in (tmp_path / "log.jsonl").read_bytes()


def test_a_gone_reader_changes_nothing(tmp_path: Path) -> None:
    """V9: EPIPE on stderr costs the lines there; the file has them, the program goes on."""
    reader, writer = os.pipe()
    os.close(reader)

    ran = drive(tmp_path / "log.jsonl", 3, stderr=writer)
    os.close(writer)

    assert (ran.returncode, ran.stdout) == (0, b"alive\n")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 3


def test_a_closed_stderr_changes_nothing(tmp_path: Path) -> None:
    """V9: started with stderr closed, nothing is written into whatever has its number now."""
    path = tmp_path / "log.jsonl"
    command = f'exec "$0" -c "$1" {path} 3 2>&-'

    ran = subprocess.run(
        ["sh", "-c", command, sys.executable, DRIVER],
        stdout=subprocess.PIPE,
        timeout=30,
        check=False,
    )

    assert (ran.returncode, ran.stdout) == (0, b"alive\n")
    assert len(path.read_text().splitlines()) == 3


def test_a_reader_that_stopped_reading_does_not_stop_us(tmp_path: Path) -> None:
    """V9: a full pipe loses lines on stderr, whole ones, and the program does not wait for it."""
    reader, writer = os.pipe()

    ran = drive(tmp_path / "log.jsonl", 600, stderr=writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        got = pipe.read()

    assert (ran.returncode, ran.stdout) == (0, b"alive\n")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 600
    assert 0 < len(got.splitlines()) < 600
    assert all(json.loads(line) for line in got.splitlines())


def test_a_descriptor_that_became_another_file_is_left_alone(tmp_path: Path) -> None:
    """V9: if stderr was closed behind our back, its number may now be somebody's database."""
    other = tmp_path / "precious"
    with (tmp_path / "stderr").open("w") as stream:
        configure("info", "json", log_file=None, stderr=stream, env={})
        get_logger().info(Event.DAEMON_READY)
        taken = os.open(other, os.O_WRONLY | os.O_CREAT)
        os.dup2(taken, stream.fileno())
        os.close(taken)
        get_logger().info(Event.DAEMON_STOPPED)

    assert other.read_bytes() == b""
    assert (tmp_path / "stderr").read_text().count("\n") == 1


def test_an_unwritable_log_changes_nothing(tmp_path: Path) -> None:
    """S0.45: a directory, a FIFO, a symlink or /dev/null's child in the log's place costs it."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (tmp_path / "directory", tmp_path / "fifo", tmp_path / "link", Path("/dev/null/x")):
        stream = io.StringIO()
        configure("info", "json", log_file=path, stderr=stream, env={})
        get_logger().info(Event.DAEMON_READY)
        assert "daemon.ready" in stream.getvalue()
    assert (tmp_path / "target").read_bytes() == b""

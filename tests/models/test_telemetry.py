"""The audit trail and the rotating file beneath it: rows, rotation, and that they stop nothing."""

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

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.disk import RotatingFile
from indexerd.models import telemetry
from indexerd.models.telemetry import ERROR_MAX, Telemetry, index_row

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


def test_a_row_has_upstreams_names() -> None:
    """S0.44: customType, success, sessionId, model, timestamp; usage and error where known."""
    assert index_row(**WHO, success=True) == {
        "customType": "session-index:index",
        "success": True,
        "sessionId": "a1b2",
        "model": "google/x",
        "timestamp": "2026-11-21T10:00:00Z",
    }


def test_a_row_holds_what_the_audit_asks_for() -> None:
    """S0.44, S2.24: usage with an unknown cost said, redactions, attempt, bytes and time."""
    usage = {"inputTokens": 8000, "outputTokens": 300, "costUsd": None}
    row = index_row(
        **WHO,
        success=False,
        usage=usage,
        error="schema:\nname\x1b[31m missing " + "x" * 2000,
        redactions={"jwt": 2},
        attempt=3,
        bytes=51200,
        ms=812,
    )

    assert row["usage"] == usage
    assert row["redactions"] == {"jwt": 2}
    assert (row["attempt"], row["bytes"], row["ms"]) == (3, 51200, 812)
    assert row["error"].startswith("schema: name missing xxx")
    assert len(row["error"]) == ERROR_MAX


def test_rows_are_appended_and_private(tmp_path: Path) -> None:
    """S0.44, S2.22: one line a row, 0600, and what was there stays."""
    path = tmp_path / "telemetry.jsonl"
    for attempt in (1, 2):
        assert Telemetry(path).append(index_row(**WHO, success=attempt == 2, attempt=attempt))

    assert [row["attempt"] for row in rows(path)] == [1, 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=5), st.text(alphabet=st.characters(exclude_categories=()))))
def test_any_text_makes_one_line(
    tmp_path_factory: pytest.TempPathFactory, row: dict[str, str]
) -> None:
    """F7: line ends, control characters and lone surrogates do not break the file."""
    path = tmp_path_factory.mktemp("t") / "telemetry.jsonl"

    assert Telemetry(path).append({"row": row})
    assert len(path.read_bytes().split(b"\n")) == 2
    assert len(rows(path)) == 1


@pytest.mark.parametrize(
    "row",
    [{"a": float("nan")}, {"a": object()}, {"a": b"x"}, {"a": "x" * 100_000}, {("a",): 1}],
    ids=["NaN", "object", "bytes", "too long", "key"],
)
def test_a_row_that_is_none_is_refused_quietly(tmp_path: Path, row: dict[str, Any]) -> None:
    """F7: what is not JSON is not written, and not raised either."""
    path = tmp_path / "telemetry.jsonl"
    endless: dict[str, Any] = {}
    endless["a"] = endless

    assert Telemetry(path).append(row) is False
    assert Telemetry(path).append(endless) is False
    assert not path.exists()


def test_an_unwritable_file_is_said_and_not_raised(tmp_path: Path) -> None:
    """S0.44: failures never propagate into indexing."""
    assert Telemetry(tmp_path).append({"a": 1}) is False
    assert Telemetry(Path("/dev/null/telemetry.jsonl")).append({"a": 1}) is False


def test_it_is_rotated_at_sixteen_mebibytes(tmp_path: Path) -> None:
    """S0.44: a full file becomes the first old one; its rows are kept."""
    path = tmp_path / "telemetry.jsonl"
    with path.open("wb") as file:
        file.write(b'{"old": true}\n')
        file.seek(16 * 1024 * 1024 - 2)
        file.write(b"}\n")

    assert Telemetry(path).append({"new": True})

    assert rows(path) == [{"new": True}]
    assert (tmp_path / "telemetry.jsonl.1").stat().st_size == 16 * 1024 * 1024
    assert telemetry.KEPT_FILES == 2


def test_the_kinds_of_rows_are_upstreams() -> None:
    """interfaces.md §6: the four customType names."""
    kinds = {telemetry.INDEX, telemetry.INJECT, telemetry.QUERY, telemetry.DIGEST}

    assert kinds == {
        "session-index:index",
        "session-reference:inject",
        "query-session:query_session",
        "digest:segment",
    }


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

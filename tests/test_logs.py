"""The log: what a line holds, what it never holds, and that nothing about it stops the program."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import WriteError
from indexerd.logs import LINE_MAX, TEXT_MAX, Event, configure, get_logger

NAMES = """
daemon.started|ready|stopping|stopped watch.armed|degraded|overflow|rescan
session.discovered|appended|reset|removed|bad_line|quarantined
index.queued|started|attempt|retry|succeeded|failed|skipped meta.written|invalid
model.breaker_open|breaker_closed budget.reserved|exhausted socket.rejected config.invalid
"""
CANARY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


@pytest.fixture(autouse=True)
def _configured_for_one_test() -> Iterator[None]:
    held = structlog.get_config()
    yield
    structlog.configure(**held)


class Written:
    def __init__(self, directory: Path, level: str = "debug", fmt: str = "json") -> None:
        self.path = directory / "log.jsonl"
        self.stream = io.StringIO()
        configure(level, fmt, log_file=self.path, stderr=self.stream, env={})

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def test_every_event_of_the_contract_has_its_constant() -> None:
    """interfaces.md §6: the names other programs read are all there, and one stands for one."""
    expected = {
        f"{word}.{name}"
        for group in NAMES.split()
        for word, names in [group.split(".")]
        for name in names.split("|")
    }
    assert expected <= set(Event)


def test_a_line_begins_with_time_level_and_event(tmp_path: Path) -> None:
    """interfaces.md §6, S0.45: JSON with ts, level, event and the facts, the same on both."""
    log = Written(tmp_path)
    get_logger().info(Event.META_WRITTEN, session="abc", bytes=12, cost_usd=None)
    (line,) = log.lines
    assert list(line) == ["ts", "level", "event", "session", "bytes", "cost_usd"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
    assert (line["level"], line["event"]) == ("info", "meta.written")
    assert log.stream.getvalue() == log.path.read_text()


@pytest.mark.parametrize(
    "code",
    [
        "from indexerd.logs import get_logger; get_logger().error('daemon.stopped', a=1)",
        (
            "import sys, logging; from indexerd import logs\n"
            "logs.configure('debug', 'json', log_file=None, stderr=sys.stderr)\n"
            "logging.getLogger('some.library').error('raw response: words of the session')\n"
        ),
    ],
    ids=["before it is configured", "other libraries"],
)
def test_what_is_not_for_the_log_is_not_printed(code: str) -> None:
    """X11: a command that logs without a set-up, and a library, which may quote what it got."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_text_is_escaped_redacted_and_cut(tmp_path: Path) -> None:
    """X11, W14: control characters, secrets and long texts do not reach the log as they are."""
    log = Written(tmp_path)
    get_logger().info(
        Event.SESSION_BAD_LINE,
        path=b"/a\n\xff\x1b[31m".decode("utf-8", "surrogateescape"),
        reason=f"key {CANARY} refused",
        model="m" * 5000,
        raw=b"\x00bytes",
    )
    (line,) = log.lines
    assert line["path"] == "/a\\n\\xff\\x1b[31m"
    assert line["reason"] == "key [redacted:github-token] refused"
    assert line["model"] == "m" * (TEXT_MAX - 1) + "…"
    assert line["raw"] == "\\x00bytes"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(exclude_categories=()), max_size=700)
    | st.binary(max_size=40)
    | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=8,
)
facts = st.dictionaries(
    st.text(alphabet="abcdefgh_", min_size=3, max_size=80).filter(str.isidentifier),
    values,
    max_size=30,
)


@settings(max_examples=60)
@given(facts)
def test_any_facts_make_one_short_line_of_json(
    tmp_path_factory: pytest.TempPathFactory, facts: Any
) -> None:
    """§6: whatever is handed in, the line is strict JSON, printable, and fits into a pipe."""
    log = Written(tmp_path_factory.mktemp("log"))
    get_logger().info(Event.INDEX_FAILED, **facts)
    text = log.path.read_bytes()
    assert text.count(b"\n") == 1
    assert len(text) <= LINE_MAX + 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]", text.decode()[:-1])
    assert log.lines[0]["event"] == "index.failed"


def test_a_traceback_tells_places_and_no_values(tmp_path: Path) -> None:
    """X11: neither locals nor the words of foreign errors, which may quote a reply."""
    log = Written(tmp_path)
    secret_text = "what the session said"

    def parse(text: str) -> None:
        raise ValueError(f"Failed to parse response. Raw response: {text}")

    try:
        try:
            parse(secret_text)
        except ValueError as bad:
            raise WriteError("the disk is full") from bad
    except WriteError:
        get_logger().exception(Event.INDEX_FAILED, reason="defect")
    get_logger().error(Event.INDEX_FAILED, exc_info=OSError(28, "No space", secret_text))
    assert secret_text not in log.path.read_text() + log.stream.getvalue()
    first, second = log.lines
    assert first["level"] == "error"
    assert first["error"] == "WriteError: the disk is full"
    assert "ValueError" in first["trace"]
    assert re.fullmatch(r"\w+/test_logs\.py:\d+ parse", first["trace"][-1])
    assert second["error"] == "OSError: ENOSPC"


def test_a_terminal_gets_the_console_form() -> None:
    """[log] format = auto: on a terminal a line is for people, and NO_COLOR is heard."""
    code = (
        "import sys; from indexerd import logs\n"
        "logs.configure('info', 'auto', log_file=None, stderr=sys.stderr)\n"
        "logs.get_logger().info('daemon.ready')\n"
    )
    for variable, coloured in ((None, True), ("1", False)):
        env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
        env |= {"TERM": "xterm"} | ({"NO_COLOR": variable} if variable else {})
        ours, theirs = os.openpty()
        subprocess.run([sys.executable, "-c", code], stderr=theirs, env=env, check=True)
        os.close(theirs)
        shown = os.read(ours, 4096)
        os.close(ours)
        assert b"daemon.ready" in shown
        assert (b"\x1b[" in shown) is coloured


# -- stderr: the journal, a reader that is gone or stopped --

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


@pytest.mark.parametrize("how", ["gone", "closed"])
def test_a_gone_reader_changes_nothing(tmp_path: Path, how: str) -> None:
    """V9: EPIPE, or no stderr at all, costs the lines there; the file has them, and no other."""
    path, close = tmp_path / "log.jsonl", "2>&-" if how == "closed" else ""
    reader, writer = os.pipe()
    os.close(reader)
    argv = ["sh", "-c", f'exec "$0" -c "$1" {path} 3 {close}', sys.executable, DRIVER]
    ran = subprocess.run(argv, stdout=subprocess.PIPE, stderr=writer, timeout=30, check=False)
    os.close(writer)
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

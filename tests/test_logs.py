"""The log: what a line contains, what it never contains, and that it cannot stop the program."""

import json
import os
import re
import subprocess
import sys
import tempfile
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import WriteError
from indexerd.logs import LINE_MAX, TEXT_MAX, Logger

CANARY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


class Written(Logger):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "log.jsonl"
        self.configure("info", "json", log_file=self.path, stderr=None)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def test_text_is_escaped_redacted_and_cut(tmp_path: Path) -> None:
    log = Written(tmp_path)
    path = b"/a\n\xff\x1b[31m".decode("utf-8", "surrogateescape")
    log.log(INFO, "meta.invalid", path=path, reason=f"key {CANARY} refused", model="m" * 5000)
    (line,) = log.lines
    assert line["path"] == "/a\\n\\xff\\x1b[31m"
    assert line["reason"] == "key [redacted:github-token] refused"
    assert line["model"] == "m" * (TEXT_MAX - 1) + "…"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(exclude_categories=()), max_size=700)
    | st.binary(max_size=40)
    | st.just(object()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(values, max_size=30))
def test_any_facts_make_one_short_line_of_json(facts: Any) -> None:
    """Whatever is logged, the line is strict JSON, printable, and fits a pipe."""
    with tempfile.TemporaryDirectory() as directory:
        log = Written(Path(directory))
        log.log(INFO, "index.failed", **{f"key_{n}": one for n, one in enumerate(facts)})
        text, lines = log.path.read_bytes(), log.lines
    assert text.count(b"\n") == 1
    assert len(text) <= LINE_MAX + 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]", text.decode()[:-1])
    assert lines[0]["event"] == "index.failed"


def test_a_traceback_has_places_but_no_values(tmp_path: Path) -> None:
    """Neither locals nor messages of foreign errors, which may quote a reply."""
    log = Written(tmp_path)
    secret_text = "what the session said"

    def parse(text: str) -> None:
        raise ValueError(f"Failed to parse response. Raw response: {text}")

    try:
        try:
            parse(secret_text)
        except ValueError as bad:
            raise WriteError("the disk is full") from bad
    except WriteError as bad:
        log.log(ERROR, "index.failed", reason="defect", exc_info=bad)
    log.log(ERROR, "index.failed", exc_info=OSError(28, "No space", secret_text))
    assert secret_text not in log.path.read_text()
    first, second = log.lines
    assert first["level"] == "error"
    assert first["error"] == "WriteError: the disk is full"
    assert "ValueError" in first["trace"]
    assert re.fullmatch(r"\w+/test_logs\.py:\d+ parse", first["trace"][-1])
    assert second["error"] == "OSError: ENOSPC"


DRIVER = """
import logging, os, sys
from pathlib import Path
from indexerd.logs import LOG
LOG.log(40, "daemon.stopped")  # it is not configured yet
LOG.configure("info", "auto", log_file=Path(sys.argv[1]), stderr=sys.stderr)
logging.getLogger('some.library').error('raw response: words of the session')
for number in range(int(sys.argv[2])):
    LOG.log(20, "daemon.ready", number=number, reason="r" * 200)
print("alive")
"""


def drive(path: Path, count: int, **how: Any) -> None:
    command = [sys.executable, "-c", DRIVER, str(path), str(count)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, timeout=30, check=True, **how)
    assert ran.stdout == b"alive\n"


def test_a_terminal_gets_the_console_form(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    drive(tmp_path / "log.jsonl", 1, stderr=theirs)
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    assert b" info    daemon.ready           number=0 reason=rrr" in shown
    assert b"words of the session" not in shown


@pytest.mark.parametrize("how", ["gone", "stopped"])
def test_a_reader_that_is_gone_or_stopped_changes_nothing(tmp_path: Path, how: str) -> None:
    """EPIPE or a full pipe loses lines there; the file has them all."""
    path = tmp_path / "log.jsonl"
    reader, writer = os.pipe()
    if how == "gone":
        os.close(reader)
    drive(path, 600, stderr=writer)
    assert len(path.read_text().splitlines()) == 600

"""A command that adds to a prompt, or replaces it: real processes, every way to fail (S3.29)."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from indexerd.digests.prompts import Advice, consult
from indexerd.errors import IndexerdError

PATIENCE = 20.0  # seconds
PAYLOAD = {"task": "segment", "sessionId": "s1", "covering": [0, 9], "prompt": "Sum up \ud800."}
BAD = "its output is not what docs/CLI.md asks for"


def shell(script: str, *, seconds: float = PATIENCE) -> Any:
    try:
        return asyncio.run(consult(["/bin/sh", "-c", script], PAYLOAD, seconds=seconds))
    except IndexerdError as failed:
        return str(failed)


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        with suppress(FileNotFoundError):
            return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('echo \'{"prompt": "Say \\u001b[1mit"}\'', Advice([], "Say it")),
        ("echo '{}'; exit 3", "it ended with code 3"),
        ("true", BAD),
        ('echo \'{"context": "all of it"}\'', BAD),
    ],
)
def test_what_fails_says_why(script: str, reason: str) -> None:
    """The reason holds nothing of what was printed."""
    assert shell(script) == reason


@pytest.mark.parametrize("script", ["sleep 600 & echo $! >{}; wait", "sleep 600 & echo $! >{}"])
def test_at_the_deadline_the_group_is_killed(tmp_path: Path, script: str) -> None:
    """A hook's children end with it, those too that hold its output after its own end."""
    note = tmp_path / "pid"
    assert shell(script.format(note), seconds=0.4) == "it took longer than 0.4 s"
    end = time.monotonic() + PATIENCE
    while not gone(int(note.read_text())):
        assert time.monotonic() < end

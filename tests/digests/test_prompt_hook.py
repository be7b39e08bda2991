"""A command that adds to a prompt, or replaces it: real processes, every way to fail (S3.29)."""

from __future__ import annotations

import asyncio
import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from indexerd.digests.prompt_hook import OUTPUT_MAX, consult
from indexerd.errors import IndexerdError

PATIENCE = 20.0  # seconds
PAYLOAD = {"task": "segment", "sessionId": "s1", "covering": [0, 9], "prompt": "Sum up \ud800."}


NO_JSON = "its output is not what docs/CLI.md asks for"


def shell(script: str, *, seconds: float = PATIENCE) -> Any:
    try:
        return asyncio.run(consult(["/bin/sh", "-c", script], PAYLOAD, seconds=seconds))
    except IndexerdError as failed:
        return str(failed)


def gone(pid: int) -> bool:
    """Whether a process has ended; an orphan that nobody reaped yet has, too."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        with suppress(FileNotFoundError):
            return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def until_gone(pid: int) -> None:
    """Wait for a process's end; bounded."""
    end = time.monotonic() + PATIENCE
    while not gone(pid):
        assert time.monotonic() < end, f"process {pid} still runs"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo '{}'; exit 3", "it ended with code 3"),
        ("kill -9 $$", "it ended with code -9"),
        ("true", NO_JSON),
        ("echo '[]'", NO_JSON),
        ("printf '\\377\\376{}'", NO_JSON),
        ('echo \'{"context": "all of it"}\'', NO_JSON),
    ],
)
def test_what_fails_says_why(script: str, reason: str) -> None:
    """The reason holds nothing of what was printed."""
    assert shell(script) == reason


def test_output_is_bounded_and_its_writer_killed(tmp_path: Path) -> None:
    """A hook that prints without end is ended, long before its deadline."""
    note = tmp_path / "pid"
    found = shell(f"echo $$ >{note}; yes")
    assert found == f"it printed more than {OUTPUT_MAX} bytes"
    until_gone(int(note.read_text()))


def test_at_the_deadline_the_group_is_killed(tmp_path: Path) -> None:
    """A hook's children end with it, those too that hold its output after its own end."""
    for at, script in enumerate(("sleep 600 & echo $! >{}; wait", "sleep 600 & echo $! >{}")):
        note = tmp_path / f"pid{at}"
        found = shell(script.format(note), seconds=0.4)
        assert found == "it took longer than 0.4 s"
        until_gone(int(note.read_text()))


@pytest.mark.parametrize("late", [False, True])
def test_cancelling_ends_it(tmp_path: Path, late: bool) -> None:
    """When nobody waits any more the group is killed, at its start as well as later."""
    note = tmp_path / "pid"
    os.mkfifo(note)
    told = os.open(note, os.O_RDWR)  # it never waits for its writer

    async def cancelled() -> None:
        script = f"sleep 600 & echo $! >{note}; wait"
        asking = asyncio.create_task(consult(["/bin/sh", "-c", script], PAYLOAD, seconds=PATIENCE))
        await asyncio.wait([asking], timeout=0)  # it has begun
        if late:
            await asyncio.to_thread(select.select, [told], [], [], PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    try:
        asyncio.run(cancelled())
        begun = select.select([told], [], [], 0)[0]
        assert begun or not late
        if begun:
            until_gone(int(os.read(told, 100)))
    finally:
        os.close(told)

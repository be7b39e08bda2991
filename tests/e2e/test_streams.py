"""What a daemon is started with: streams that are closed or broken, few descriptors."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import World, ends_well, until

pytestmark = pytest.mark.faults

CLOSED = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]


@contextmanager
def started(world: World, *before: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon started in a way of its own; it must end with 0."""
    words = [*before, sys.executable, "-m", "indexerd", "run"]
    process = subprocess.Popen(words, env=world.env, cwd=world.root, **streams)
    with ends_well(process):
        yield process


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_streams_that_are_closed_or_broken_change_nothing(world: World, how: str) -> None:
    """V9: the daemon indexes, its log is whole, its end is 0; no file of ours is a stream."""
    world.env["INDEXERD_LOG__LEVEL"] = "debug"  # much to say to nobody
    first = world.session(turns=5)
    streams, before = {}, CLOSED
    if how == "broken":
        read, wrote = os.pipe()
        os.close(read)
        streams, before = {"stdin": wrote, "stdout": wrote, "stderr": wrote}, []
    with started(world, *before, **streams) as process:
        if streams:
            os.close(wrote)
        world.wait_meta(first.id)
        numbers = Path(f"/proc/{process.pid}/fd")
        if numbers.exists():
            held = [os.readlink(numbers / str(number)) for number in range(3)]
            assert all(one == os.devnull or one.startswith("pipe:") for one in held), held
        second = world.session(turns=5)
        world.wait_meta(second.id)
        assert world.call("status")["state"] == "ok"
    assert "daemon.stopped" in (world.state / "log.jsonl").read_text()
    with closing(sqlite3.connect(world.state / "store.sqlite")) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of others are Linux's")
@pytest.mark.parametrize(("hard", "want"), [(1024, 1024), (8192, 4096)])
def test_the_limit_of_open_files_is_raised(world: World, hard: int, want: int) -> None:
    """S8: started with few descriptors, it allows itself more, as far as it may."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("the limit is low here")
    before = ["sh", "-c", f'ulimit -S -n 256; ulimit -H -n {hard}; exec "$@"', "sh"]
    with started(world, *before) as process:
        until(world.socket.exists, "the socket")
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (want, hard)

"""Memory runs out: the kernel ends the daemon."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from indexerd.sources.quarantine import STARTS
from tests.e2e.world import World, ends_well, hooked

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]  # several starts

# Whoever reads this file is ended as the kernel ends what needs more memory than there is.
GREEDY = """
import os, signal
from indexerd.sources.tail import Tail
read = Tail.read
def greedy(self, path, *args, **more):
    if path.endswith("greedy.jsonl") and os.environ.get("GREEDY"):
        os.kill(os.getpid(), signal.SIGKILL)
    return read(self, path, *args, **more)
Tail.read = greedy
"""


def whole(world: World) -> bool:
    with closing(sqlite3.connect(f"file:{world.state}/store.sqlite?mode=ro", uri=True)) as base:
        return bool(base.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def test_a_daemon_that_is_ended_for_its_memory_comes_back(world: World) -> None:
    """V7: the kernel ends it three times at one file; then it lives, and knows what it knew."""
    hooked(world, GREEDY)
    world.scripted()
    good = world.session(turns=5)
    with world.daemon():
        meta = world.wait_meta(good.id)
    bad = world.session(turns=5)
    bad.path = bad.path.rename(world.sessions / "greedy.jsonl")
    start = [sys.executable, "-m", "indexerd", "run"]
    world.env["GREEDY"] = "1"
    with (world.root / "stderr").open("ab") as log:
        for _ in range(STARTS):
            died = subprocess.run(
                start, env=world.env, cwd=world.root, stderr=log, timeout=30, check=False
            )
            assert died.returncode == -9
            assert whole(world)
            assert world.meta(good.id) == meta
        process = subprocess.Popen(start, env=world.env, cwd=world.root, stderr=log)
    with ends_well(process):
        good.talk(5)
        world.wait_meta(good.id, lambda one: one["lastIndexedLeafId"] == good.last)
        (problem,) = world.call("status")["problems"]
        assert "3 times while it was read" in problem["cause"]
    assert len(world.calls()) == 2
    del world.env["GREEDY"]
    with world.daemon():
        bad.turn()
        world.wait_meta(bad.id)
    assert len(world.calls()) == 3

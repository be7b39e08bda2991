"""Memory runs out: the kernel ends the daemon, or an allocation fails. Nothing is half alive."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from indexerd.errors import IndexerdError
from indexerd.sources.quarantine import STARTS
from tests.e2e.world import Session, World, ends_well, hooked, until

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

# An allocation fails in this place while a file exists.
SHORT = """
import importlib, os
module, kind, name = os.environ["SHORT_IN"].split(":")
owner = getattr(importlib.import_module(module), kind)
work = getattr(owner, name)
def short(*args, **more):
    if os.path.exists(os.environ["SHORT"]):
        open(os.environ["SHORT"] + ".met", "w").close()
        bytearray(1 << 60)
    return work(*args, **more)
setattr(owner, name, short)
"""


def whole(world: World) -> bool:
    with closing(sqlite3.connect(f"file:{world.state}/store.sqlite?mode=ro", uri=True)) as base:
        return bool(base.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def finds(world: World, session: Session) -> bool:
    try:
        hits = world.call("search", query="xylophone")["hits"]
    except IndexerdError:  # it is on its way out
        return False
    return session.id in {hit["sessionId"] for hit in hits}


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


PLACES = {
    "reading": "indexerd.sources.tail:Tail:read",
    "text": "indexerd.search.session_texts:Texts:some",
    "job": "indexerd.indexing.indexer:Indexer:_index",
}


@pytest.mark.parametrize("place", PLACES)
def test_an_allocation_that_fails_is_an_end_or_no_harm(world: World, place: str) -> None:
    """V7: it goes on when memory is there again, or has ended with 1 and is started anew."""
    hooked(world, SHORT)
    world.scripted()
    world.env |= {"SHORT_IN": PLACES[place], "SHORT": str(world.root / "short")}
    short = world.root / "short"
    old = world.session(turns=5)
    with world.daemon():
        meta = world.wait_meta(old.id)
    short.touch()
    with world.daemon(ready=False) as process:
        new = world.session(turns=5)
        until(Path(f"{short}.met").exists, "the failure")
        short.unlink()
        new.turn(f"Tune the xylophone. Session: {new.id}")
        until(lambda: process.poll() is not None or finds(world, new), "its end, or all its work")
        assert process.poll() in {None, 1}
    with world.daemon():
        until(lambda: finds(world, new), "the session")
        if world.meta(new.id) is None:  # a run that failed has its pause
            world.run("index", new.id, "--force", "--wait", code=None)  # or it runs by itself
        assert world.wait_meta(new.id)["lastIndexedLeafId"] == new.last
        assert world.meta(old.id) == meta
        assert world.call("status")["state"] == "ok"
    assert whole(world)
    assert sum(call["session"] == old.id for call in world.calls()) == 1
    assert os.path.getsize(world.root / "stderr") < 100_000

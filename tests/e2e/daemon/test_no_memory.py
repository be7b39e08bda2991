"""Memory runs out: the kernel ends the daemon, or an allocation fails. Nothing is half alive."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from indexerd.errors import IndexerdError
from indexerd.sources.quarantine import STARTS
from tests.e2e.world import Session, World, ends_well, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]  # several starts

LIMIT = 256 << 20  # bytes; the daemon takes less than a third of it
GROUPS = Path("/sys/fs/cgroup")

# Whoever reads this file needs far more than the limit.
GREEDY = f"""
import os
from indexerd.sources.tail import Tail
read = Tail.read
def greedy(self, path, *args, **more):
    if path.endswith("greedy.jsonl") and os.environ.get("GREEDY"):
        held = bytearray(os.urandom(4096)) * ({LIMIT} // 1024)
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


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory, and none to swap to."""
    older, newer = GROUPS / "memory", GROUPS / "cgroup.subtree_control"
    if newer.exists() and "memory" in newer.read_text().split():
        made, limits = GROUPS / f"rig-{uuid.uuid4().hex}", {"memory.max": LIMIT}
        limits["memory.swap.max"] = 0
    elif (older / "memory.limit_in_bytes").exists():
        made, limits = older / f"rig-{uuid.uuid4().hex}", {"memory.limit_in_bytes": LIMIT}
        limits["memory.swappiness"] = 0
    else:
        pytest.skip("no control groups for memory")
    try:
        made.mkdir()
    except OSError as bad:
        pytest.skip(f"no control group can be made here: {bad.strerror}")
    try:
        for name, value in limits.items():
            if (made / name).exists():
                (made / name).write_text(str(value))
        yield made
    finally:
        until(lambda: _empty(made), "the end of the group's processes")
        made.rmdir()


def _empty(group: Path) -> bool:
    return not (group / "cgroup.procs").read_text()


def whole(world: World) -> bool:
    """Whether the store is sound, read without folding its log into it."""
    with closing(sqlite3.connect(f"file:{world.state}/store.sqlite?mode=ro", uri=True)) as base:
        return bool(base.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def finds(world: World, session: Session) -> bool:
    """Whether a daemon finds a session by the word of its last turn."""
    try:
        hits = world.call("search", query="xylophone")["hits"]
    except IndexerdError:  # it is on its way out
        return False
    return session.id in {hit["sessionId"] for hit in hits}


def hooked(world: World, code: str) -> None:
    """Have this run in each interpreter before anything else."""
    (world.root / "sitecustomize.py").write_text(code)
    world.env["PYTHONPATH"] = f"{world.root}:{world.env['PYTHONPATH']}"


def test_a_daemon_that_is_ended_for_its_memory_comes_back(world: World, group: Path) -> None:
    """V7: the kernel ends it three times at one file; then it lives, and knows what it knew."""
    hooked(world, GREEDY)
    world.scripted()
    good = world.session(turns=5)
    with world.daemon():
        meta = world.wait_meta(good.id)
    bad = world.session(turns=5)
    bad.path = bad.path.rename(world.sessions / "greedy.jsonl")

    start = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs"; exec "$@"', "sh"]
    start += [sys.executable, "-m", "indexerd", "run"]
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

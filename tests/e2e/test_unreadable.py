"""Files that cannot be read, or hardly: named, healed, and nobody else's loss."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from indexerd.agents.base import READ_MAX
from tests.e2e.world import Session, World, until

pytestmark = pytest.mark.faults

# One file fails as a bad disk does, another as one of somebody else's, while a third file exists.
BAD_DISK = """
import os

read, opened = os.pread, os.open

def fails(name):
    return name in os.environ["FAILING"].split() and os.path.exists(os.environ["WHILE"])

def pread(fd, length, offset):
    if fails("eio") and os.readlink(f"/proc/self/fd/{fd}").endswith("eio.jsonl"):
        raise OSError(5, "Input/output error")
    return read(fd, length, offset)

def open_(path, *more, **named):
    if fails("denied") and os.fsdecode(path).endswith("denied.jsonl"):
        raise PermissionError(13, "Permission denied", path)
    return opened(path, *more, **named)

os.pread, os.open = pread, open_
"""


def problems(world: World) -> dict[str, dict[str, str]]:
    """What `status` complains of, by the file's name."""
    found = world.call("status")["problems"]
    return {Path(one["cause"].partition(":")[0]).name: one for one in found}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_file_that_cannot_be_read_is_named_and_heals(world: World) -> None:
    """F19, F21: a read error, and a mode of 000: `status` says which file, and the others go on."""
    (world.root / "sitecustomize.py").write_text(BAD_DISK)
    world.env["PYTHONPATH"] = f"{world.root}:{world.env['PYTHONPATH']}"
    while_there = world.root / "while"
    while_there.touch()
    world.env |= {"FAILING": "eio denied", "WHILE": str(while_there)}
    bad = {}
    for name in ("eio.jsonl", "denied.jsonl"):
        bad[name] = world.session(turns=5)
        bad[name].path = bad[name].path.rename(world.sessions / name)
    good = world.session(turns=5)
    with world.daemon() as process:
        world.wait_meta(good.id)
        found = until(lambda: len(problems(world)) == 2 and problems(world), "both problems")
        assert found.keys() == bad.keys()
        for problem in found.values():
            assert problem["code"] == "unreadable"
            assert "mode and owner" in problem["cure"]
        assert "Input/output error" in found["eio.jsonl"]["cause"]
        assert "Permission denied" in found["denied.jsonl"]["cause"]
        good.turn()
        until(lambda: world.row(good.id)["userMessageCount"] == 6, "the good one's turn")
        assert len(problems(world)) == 2

        while_there.unlink()
        for one in bad.values():
            world.wait_meta(one.id)
        until(lambda: world.call("status")["state"] == "ok", "the end of the problems")
        assert process.poll() is None


def peak(pid: int) -> int:
    """The most memory that a process had, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    return 0


def counted(world: World, session: Session, number: int) -> bool:
    """Whether the daemon counts so many."""
    return bool(world.row(session.id).get("userMessageCount") == number)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("size", [100_000_000, 50_000_000, 9_000_000])
def test_a_line_of_100_mb_costs_no_memory(world: World, size: int) -> None:
    """F8: it is passed over piece by piece, and the lines after it count.

    Of one that may be read in full when it is asked for, search and a model have the beginning.
    """
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1000"
    session = world.session(turns=4)
    with world.daemon() as process:
        until(partial(counted, world, session, 4), "the session")
        until(partial(found, world, "adjust widget"), "its words")
        before = peak(process.pid)
        session.say("assistant", "A zeppelin. \u0001\U0001f6a2 " + "x" * size)
        session.turn("Where does the gondola hang?")
        until(partial(counted, world, session, 5), "what comes after")
        until(partial(found, world, "gondola"), "its words")
        assert found(world, "zeppelin") is (size <= READ_MAX)
        done = world.call("index", ref=session.id, force=True, wait=True)
        assert done["status"] == "indexed"
        assert peak(process.pid) - before < 64


def found(world: World, word: str) -> bool:
    """Whether search finds a word."""
    return bool(world.call("search", query=word)["hits"])

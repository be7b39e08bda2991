"""Killed, or without power, at every system call that changes something on the disk.

What is ended: a writer of meta files, of the books, of the audit trail, of both caches, and a
whole library that reads what is new. What is found afterwards is what was before a step or after
it, whole; what was promised is there; and no more was spent than the books say.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import Session
from tests.meta.writer_driver import Driver
from tests.sources import crash_driver

pytestmark = pytest.mark.faults

CALLS = (
    *("openat", "mkdir", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
POINTS_MAX, CUTS_MAX = 50, 24  # of a journey with many more, evenly spread
SCRIPT = str(crash_driver.__file__)
MOUNTS = sys.platform == "linux" and os.geteuid() == 0 and shutil.which("unshare") is not None
# How many steps are seen to be done, whatever the moment: each of these, and nothing between.
STAGES = {
    "books": {0, 1, 2, 3, 4, 5},
    "files": {0, 1, 2, 3},
    "trail": {0, 1, 2, 3, 4, 5},
    "store": {0, 1, 3, 5},
    "texts": {0, 1, 2, 3, 4},
}
PROMISED = {"books": (0, 1, 2, 3, 5)}  # rows that so many promises stand for


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """One driver for all, which may mount what nobody else sees, where it may."""
    one = Driver(*(["unshare", "-m"] if MOUNTS else []), script=SCRIPT)
    yield one
    one.close()


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """Where an image of a disk needs no disk, so that others of them are not waited for."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as found:
        yield Path(found)


class Place:
    """Where one journey begins again and again, and what is beside it."""

    def __init__(self, root: Path, driver: Driver, journey: str, where: Path) -> None:
        self.root, self.driver, self.where = root, driver, where
        self.beside, self.old = root / "beside", root / "old"
        self.beside.mkdir()
        self.job: dict[str, Any] = {"journey": journey, "beside": str(self.beside)}
        driver.run("prepare", self.old, **self.job)
        self._count = 0

    def fresh(self) -> Path:
        """A copy of what was before, on the disk; nothing is promised yet."""
        for name in ("promised", "bill"):
            (self.beside / name).unlink(missing_ok=True)
        self._count += 1
        target = self.where / str(self._count)
        self.driver.run("copied", target, **{"from": str(self.old)})
        return target

    def points(self, most: int = POINTS_MAX) -> list[str]:
        """The system calls of the journey, as strace names one to be killed at."""
        target = self.fresh()
        answer, calls = self.driver.traced(None, "travel", target, CALLS, **self.job)
        assert answer["status"] == 0
        counts = Counter(call.split("(")[0] for call in calls)
        assert counts["fsync"] + counts["fdatasync"] + counts["write"] + counts["pwrite64"]
        found = [
            f"{name}:signal=KILL:when={number}"
            for name, count in counts.items()
            for number in range(1, count + 1)
        ]
        return found[:: -(-len(found) // most)]

    def killed(self, inject: str) -> Path:
        """Where a journey ended at that call."""
        target = self.fresh()
        answer, calls = self.driver.traced(inject, "travel", target, CALLS, **self.job)
        assert os.WTERMSIG(answer["status"]) == signal.SIGKILL, (inject, calls)
        return target

    def promised(self) -> int:
        """How many steps were said to be done, as what is seen of them counts."""
        path = self.beside / "promised"
        count = len(path.read_text()) if path.exists() else 0
        return PROMISED.get(self.job["journey"], range(count + 1))[count]

    def bill(self) -> list[float]:
        """What the provider asks for."""
        path = self.beside / "bill"
        return [float(one) for one in path.read_text().split()] if path.exists() else []

    def judge(self, found: dict[str, Any], inject: str, *, durable: bool) -> int:
        """Nothing is torn, promised and gone, or spent and not booked; says how far it came."""
        assert "torn" not in found, (inject, found)
        seen = len(found["seen"])
        if durable:
            assert seen >= self.promised(), (inject, found)
        if self.job["journey"] == "books":
            bill = self.bill()
            assert found["calls"] >= len(bill), (inject, found)
            assert found["usd"] >= sum(bill), (inject, found)
            ops = ["reserve", "settle", "reserve", "breaker", "settle"]
            assert found["seen"] == ops[:seen]
            assert found["rests"] or not found["refunded"], (inject, found)
        return seen


@pytest.mark.parametrize("journey", STAGES)
def test_killed_at_every_call(driver: Driver, tmp_path: Path, journey: str) -> None:
    """A1, M15: steps are done or not, in their order; what was promised or spent is known."""
    place = Place(tmp_path, driver, journey, tmp_path)
    reached = set()
    for inject in place.points():
        found = driver.run("look", place.killed(inject), **place.job)
        reached.add(place.judge(found, inject, durable=True))
    assert reached == STAGES[journey]


@pytest.mark.parametrize(
    ("journey", "options"),
    [
        ("books", "data=writeback,noauto_da_alloc"),
        ("books", "noauto_da_alloc"),
        ("files", "data=writeback,noauto_da_alloc"),
        ("store", "noauto_da_alloc"),
        ("texts", "noauto_da_alloc"),
    ],
)
def test_power_cut_at_every_call(
    driver: Driver, tmp_path: Path, ram: Path, journey: str, options: str
) -> None:
    """A2, M15: the disk as it is at each call; caches may be older than said, and are whole.

    The image under a mounted ext4 is copied without a sync, and the copy mounted.
    """
    if not MOUNTS or not shutil.which("mkfs.ext4"):
        pytest.skip("mounting an ext4 image needs root on Linux, unshare, and mkfs.ext4")
    disk, other = tmp_path / "disk", tmp_path / "other"
    disk.mkdir()
    other.mkdir()
    with (ram / "image").open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(ram / "image")], check=True, capture_output=True)
    if not driver.run("mounted", disk, image=str(ram / "image"), options=options):
        pytest.skip("no loop device can be mounted here")
    try:
        place = Place(tmp_path, driver, journey, disk)
        for inject in place.points(CUTS_MAX):
            ended = place.killed(inject)
            shutil.copyfile(ram / "image", ram / "copy")
            assert driver.run("mounted", other, image=str(ram / "copy"), options=options)
            found = driver.run("look", other / ended.name, **place.job)
            driver.run("unmounted", other)
            place.judge(found, inject, durable=journey in ("books", "files"))
    finally:
        driver.run("unmounted", disk)


def test_a_library_killed_at_every_call(driver: Driver, tmp_path: Path) -> None:
    """A1, A3, F2: a position and what was counted up to it are of one moment, and go on from there.

    A reading after the crash comes to what one from the start comes to, word for word.
    """
    place = Place(tmp_path, driver, "library", tmp_path)
    folder = place.beside / "agent/sessions/--w--"
    grown, gone, still = (Session(folder, session_id=f"s{number}") for number in range(3))
    for session in (grown, gone, still):
        session.talk(3)
    driver.run("prepare", place.old, **place.job)
    before = driver.run("look", place.fresh(), **place.job)["positions"]
    grown.talk(4)
    gone.path.unlink()
    Session(folder, session_id="s4").talk(2)
    whole = place.fresh()
    assert driver.run("travel", whole, **place.job) is None
    truth = driver.run("look", whole, **place.job)
    after, kept = truth["positions"], set()
    assert before[str(grown.path)][2] == 3
    assert after[str(grown.path)][2] == 7
    for inject in place.points(CUTS_MAX):
        found = driver.run("look", place.killed(inject), **place.job)
        assert "torn" not in found, (inject, found)
        assert found["content"] == truth["content"], inject
        for path, position in found["positions"].items():
            assert position in (before.get(path), after.get(path)), (inject, path)
        kept.add(json.dumps(found["positions"], sort_keys=True))
    assert len(kept) > 1

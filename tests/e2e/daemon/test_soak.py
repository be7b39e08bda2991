"""An hour's worth of events in less than a minute must not grow the daemon.

Traffic goes to sixty sessions of four agents whose stored size stays level, so any growth is a
leak. Memory settles within some thousand events and then swings: a purge or a large answer needs
some for a moment, and the allocator sometimes gives 20 MB back at once. So the medians of the first
and the last third are compared, and may differ by SWING and GROWTH.

`INDEXERD_SOAK_SECONDS` runs it for longer; `-s` shows the figures.
"""

import json
import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from indexerd.logs import LIMIT_BYTES
from tests.e2e.daemon.traffic import Traffic
from tests.e2e.world import AFRESH, World, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600 + 2 * 3600)]

SESSIONS = 60
WARM, EVENTS = 1800, 2100  # events before memory has settled, events measured
SECONDS = float(os.environ.get("INDEXERD_SOAK_SECONDS", "0"))
MB = 1 << 20
GROWTH = 2 * MB  # resident memory per 1,000 events
SWING = 16 * MB  # difference of medians under the same traffic
IDLE_SECONDS, IDLE_TICKS, IDLE_WAKES = 6.0, 30, 240  # CPU ticks of 10 ms, wake-ups of all threads


@dataclass(frozen=True)
class Sample:
    events: int
    rss: int
    descriptors: int
    threads: int
    children: int
    sizes: dict[str, int]  # of files in the state directory


class Seen:
    def __init__(self, pid: int, state: Path) -> None:
        self._proc = Path(f"/proc/{pid}")
        self._state = state

    def sample(self, events: int) -> Sample:
        lines = (self._proc / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return Sample(
            events,
            int(status["VmRSS"].split()[0]) * 1024,
            len(os.listdir(self._proc / "fd")),
            int(status["Threads"]),
            sum(len(_read(task / "children").split()) for task in self._tasks()),
            {path.name: _size(path) for path in self._state.iterdir()},
        )

    def work(self) -> tuple[int, int]:
        ticks = _read(self._proc / "stat").rpartition(")")[2].split()[11:13]
        statuses = "".join(_read(task / "status") for task in self._tasks())
        wakes = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", statuses, re.MULTILINE)
        return sum(map(int, ticks)), sum(map(int, wakes))

    def _tasks(self) -> list[Path]:
        return list((self._proc / "task").iterdir())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_an_hour_of_traffic_leaks_nothing(world: World) -> None:
    """Memory, descriptors, threads, children, logs and caches stay level, and CPU use ends."""
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "10"
    world.state.mkdir(parents=True)
    _nearly_full(world.state / "log.jsonl")
    with world.daemon(under=AFRESH) as daemon:
        seen = Seen(daemon.pid, world.state)
        traffic = Traffic(world, daemon, SESSIONS)
        samples = _worked(traffic, seen)
        traffic.close()
        _at_rest(world, traffic, seen)
        _level(samples)
        assert set(traffic.refused) <= {
            "already_running", "ambiguous_reference", "not_found", "session_empty",
            "session_unreadable", "timeout", "write_failed",
        }, traffic.refused  # fmt: skip
        assert traffic.done.keys() >= {"turn", "ask", "purge", "reload"}
        problems = {problem["code"] for problem in world.call("status")["problems"]}
        assert problems <= {"invalid_meta"}
    kept = [*world.root.glob("home/**/*.tmp"), *world.root.glob("data/**/*.tmp")]
    assert kept == []
    _log_is_bounded(world, samples[-1].events)


def _nearly_full(path: Path) -> None:
    line = json.dumps({"ts": "2026-01-01T00:00:00.000Z", "level": "info", "event": "old"}) + "\n"
    path.write_text(line * ((LIMIT_BYTES - 50_000) // len(line)))


def _worked(traffic: Traffic, seen: Seen) -> list[Sample]:
    for _ in range(WARM):
        traffic.step()
    end = time.monotonic() + SECONDS
    samples, steps = [], 0
    while steps < EVENTS or time.monotonic() < end:
        traffic.step()
        steps += 1
        if steps % 25 == 0:
            samples.append(seen.sample(traffic.done.total()))
    return samples


def _level(samples: list[Sample]) -> None:
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]

    def middle(of: Callable[[Sample], int], some: list[Sample]) -> float:
        return statistics.median(map(of, some))

    grown = middle(lambda sample: sample.rss, last) - middle(lambda sample: sample.rss, first)
    events = middle(lambda sample: sample.events, last) - middle(
        lambda sample: sample.events, first
    )
    print(f"\n{samples[-1].events} events; RSS {first[0].rss / MB:.1f} to {last[-1].rss / MB:.1f}")
    print(f"MB, {grown / events * 1000 / MB:+.2f} MB in 1,000 events; {last[-1]}")
    assert grown < SWING + GROWTH * events / 1000
    for name, of, room in (
        ("descriptors", lambda sample: sample.descriptors, 6),
        ("threads", lambda sample: sample.threads, 2),
        ("store", lambda sample: sample.sizes["store.sqlite"], 2 * MB),
    ):  # type: str, Callable[[Sample], int], int
        assert max(map(of, last)) <= max(map(of, first)) + room, name
    assert max(sample.children for sample in samples) == 0
    assert max(sample.sizes.get("store.sqlite-wal", 0) for sample in samples) < 32 * MB


def _at_rest(world: World, traffic: Traffic, seen: Seen) -> None:
    def known() -> bool:
        status = world.call("status")
        there = {
            row["sessionId"] for row in world.call("list", archived=True, limit=500)["sessions"]
        }
        busy = status["queued"] or status["indexing"] or status["textPending"]
        return not busy and {actor.id for actor in traffic.actors if actor.turns} <= there

    until(known, "all sessions in the list, and an empty queue", 60.0)
    until(lambda: _rested(seen), "rest", 60.0)


def _rested(seen: Seen) -> bool:
    before, end = seen.work(), time.monotonic() + IDLE_SECONDS
    until(lambda: time.monotonic() > end, "some seconds")
    ticks, wakes = (after - was for was, after in zip(before, seen.work(), strict=True))
    print(f"\nat rest for {IDLE_SECONDS:g} s: {ticks} ticks, {wakes} wakes")
    return ticks <= IDLE_TICKS and wakes <= IDLE_WAKES


def _log_is_bounded(world: World, events: int) -> None:
    logs = sorted(world.state.glob("log.jsonl*"))
    assert [path.name for path in logs] == ["log.jsonl", "log.jsonl.1"]
    assert max(map(_size, logs)) <= LIMIT_BYTES
    assert len(logs) <= 3
    assert 0 < _size(logs[0]) < events * 500
    stamps = [json.loads(line)["ts"] for line in logs[0].read_text().splitlines()]
    assert all(earlier <= later for earlier, later in pairwise(stamps))

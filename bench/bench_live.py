"""An append, until a client of the socket sees it: alone, among 2,000 a second, in bursts.

    python bench/bench_live.py [--smoke] [--sessions N]

The daemon runs on a home of 5,000 small sessions. pi's way of writing is used: open, append a
line, close. Seen means: `get`, asked in a tight loop, counts the message; or the `session.updated`
event of a subscriber counts it. The limit, on a home of its own with the same files, and with the
same writer, is an event loop that reads inotify and the new bytes, and does nothing else
(`prototype.py`). They take turns, and while one has its turn the other has nothing to do;
percentiles are of each turn, and what is told is the middle of them.

Then 2,000 appends a second over 500 files, told by events; 20,000 a second, 12,000 of them; and as
many appends as the kernel's queue does not hold, and some new files, while nobody looks (SIGSTOP).
Of these the time until every count is right. The truth is on the disk: after each, counts are held
against the files' own lines, parsed one by one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from home import QUIET, Daemon, Home, Small, append, message, project, wait
from load import TEXT, Load, word
from measure import Bench, Target, cpu_of, percentile, ratio
from tellers import HELD, Limit, Ours, Teller, caught_up, prototype

BUSY = 500
QUEUED = Path("/proc/sys/fs/inotify/max_queued_events")
QUEUE_MOST = 100_000  # events: a queue that holds more is not made to overflow
NEW = 50  # files that appear while nobody looks
SWEEP = 30.0  # seconds between two sweeps as they are set by default
LIMIT = "in-loop inotify"
TURNS = 2  # of each, in each part


# -- alone ----------------------------------------------------------------------------------------


class World:
    """A home's files, how much was appended to each so far, and who follows them."""

    def __init__(self, bench: Bench, home: Home, made: list[Small]) -> None:
        self.bench, self.home, self.made = bench, home, made
        self.busy = made[-min(BUSY, len(made) // 2) :]  # those that are written to under load
        self.added = {one.path: 0 for one in made}
        self.serial = 0
        self.word = ""  # of the last load
        self.leaves: dict[Path, str] = {}  # of the sessions that were written to
        self.teller: Callable[[], Teller]
        self.process: subprocess.Popen[bytes]

    def one(self, at: Small) -> int:
        """Append a line to one session; how many it has now."""
        self.serial += 1
        entry, above = f"{self.serial:08x}", self.leaves.get(at.path, at.leaf)
        append(str(at.path), message(entry, above, "assistant", TEXT, time.time()))
        self.leaves[at.path] = entry
        self.added[at.path] += 1
        return self.added[at.path]

    def load(self, among: list[Small], rate: float, count: int) -> Load:
        """Have a process append so many lines over some sessions, in turn."""
        self.serial += count
        first = self.serial - count
        leaves = {str(one.path): self.leaves.get(one.path, one.leaf) for one in among}
        for number in range(count):
            path = among[number % len(among)].path
            self.added[path] += 1
            self.leaves[path] = f"{first + number:08x}"
        self.word = word(first)
        return Load(self.home, leaves, rate, count, first)

    def wanted(self, among: list[Small]) -> dict[Small, int]:
        """How many messages were appended to some sessions."""
        return {one: self.added[one.path] for one in among}

    def truth(self, one: Small) -> int:
        """Messages of a session as its file has them, every line parsed."""
        rows = (msgspec.json.decode(row) for row in one.path.read_bytes().splitlines())
        return sum(row["type"] == "message" for row in rows)

    def searchable(self, daemon: Daemon) -> None:
        """Wait until the words of the last load are found in all sessions that it wrote to.

        Project by project: of very many messages with a word a search ranks some thousand.
        """
        wanted: dict[str, set[str]] = {}
        for one in self.busy:
            wanted.setdefault(project(one), set()).add(one.id)
        with daemon.client() as client:

            def done() -> bool:
                for cwd in list(wanted):
                    asked = {"query": self.word, "cwd": cwd, "limit": BUSY}
                    hits = client.call("search", asked)["hits"]
                    if {one["sessionId"] for one in hits} != wanted[cwd]:
                        return False
                    del wanted[cwd]
                return True

            wait(done, "the words of what was appended", 0.05)

    def right(self, among: list[Small]) -> None:
        """Hold what is told against the disk."""
        with closing(self.teller()) as teller:
            caught_up(teller, self.wanted(among))
            wrong = sum(teller.count(one) != self.truth(one) - HELD for one in among)
        self.bench.check(f"messages of {len(among)} sessions: {wrong} are wrong", ok=not wrong)


def alone(world: World, teller: Teller, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds from an append until `get` and until an event tell of it, one at a time."""
    got, told = [], []
    for number in range(rounds):
        one = world.made[(7 * number) % len(world.made)]
        began = time.perf_counter()
        count = world.one(one)
        while teller.count(one) < count:
            pass
        got.append(1000 * (time.perf_counter() - began))
        _hear(teller, one, count)
        time.sleep(0.005 * (number % 3))
        one = world.made[(7 * number + 3) % len(world.made)]
        began = time.perf_counter()
        _hear(teller, one, world.one(one))
        told.append(1000 * (time.perf_counter() - began))
        time.sleep(0.005 * (number % 3))
    return got, told


def _hear(teller: Teller, one: Small, count: int) -> None:
    while True:
        path, told = teller.next()
        if path == str(one.path) and told >= count:
            return


# -- under load -----------------------------------------------------------------------------------


def loaded(world: World, teller: Teller, seconds: float, rate: float) -> tuple[list[float], float]:
    """Milliseconds from each append to the event that counts it, and the share of a processor."""
    among = world.busy
    before = {str(one.path): world.added[one.path] for one in among}
    heard: dict[str, list[tuple[int, float]]] = {str(one.path): [] for one in among}
    wanted = dict(before)
    count = int(seconds * rate)
    for number in range(count):
        wanted[str(among[number % len(among)].path)] += 1
    left = set(wanted)

    def listen() -> None:
        while left:
            path, told = teller.next()
            heard[path].append((told, time.perf_counter()))
            if told >= wanted[path]:
                left.discard(path)

    ear = threading.Thread(target=listen, daemon=True)
    ear.start()
    spent, began = cpu_of(teller.pid), time.perf_counter()
    times = world.load(among, rate, count).times()
    spent, took = cpu_of(teller.pid) - spent, time.perf_counter() - began
    ear.join(2 * SWEEP)
    world.bench.check("every append was told of", ok=not left)
    found = []
    for start, one in enumerate(among):
        moments = iter(heard[str(one.path)])
        told, at = before[str(one.path)], 0.0
        for turn, appended in enumerate(times[start :: len(among)], before[str(one.path)] + 1):
            while told < turn:
                told, at = next(moments, (1 << 30, float("inf")))
            found.append(1000 * (at - appended))
    return found, spent / took


def burst(world: World, teller: Teller, rate: float, count: int) -> tuple[float, float]:
    """Seconds from the last of many appends until all counts are right, and appends a second."""
    times = world.load(world.busy, rate, count).times()
    caught_up(teller, world.wanted(world.busy))
    return time.perf_counter() - times[-1], count / (times[-1] - times[0])


def overflow(world: World, teller: Teller, count: int) -> float:
    """Seconds from SIGCONT until all counts are right, with files that came meanwhile."""
    world.process.send_signal(signal.SIGSTOP)
    world.load(world.busy, 0, count).times()
    new = world.home.small(NEW, len(world.made))
    world.added |= {one.path: 0 for one in new}
    world.made += new
    began = time.perf_counter()
    world.process.send_signal(signal.SIGCONT)
    caught_up(teller, world.wanted([*world.busy, *new]))
    return time.perf_counter() - began


# -- all of it ------------------------------------------------------------------------------------


def main() -> int:
    bench = Bench("live", "From an append to a client of the socket")
    bench.options.add_argument("--sessions", type=int, default=5_000)
    small = bench.smoke
    count = 200 if small else bench.asked.sessions
    with Home() as home, Home() as other:
        ours = World(bench, home, home.small(count))
        limit = World(bench, other, other.small(count))
        with home.daemon(**QUIET) as daemon, prototype(other) as (process, path):
            daemon.settled(count)
            ours.teller, ours.process = (lambda: Ours(daemon)), daemon.process
            limit.teller, limit.process = (lambda: Limit(path, process.pid)), process
            sides = Sides(ours, limit, daemon)
            quiet(bench, sides, 5 if small else 60)
            steady(bench, sides, 0.5 if small else 2)
            ours.searchable(daemon)
            beaten(bench, sides, small=small)
            flooded(bench, sides, 1 if small else TURNS)
            ours.right(ours.made[-NEW:])
            limit.right(limit.busy)
    return bench.end()


class Sides:
    """The daemon and the prototype, each with files of its own."""

    def __init__(self, ours: World, limit: World, daemon: Daemon) -> None:
        self._worlds = (limit, ours)
        self.ours, self.daemon = ours, daemon

    def turns(
        self, rounds: int, work: Callable[[World, Teller], Any]
    ) -> tuple[list[Any], list[Any]]:
        """What some work finds of each, in turns: ours, the limit's."""
        found: tuple[list[Any], ...] = ([], [])
        for _ in range(rounds):
            wait(lambda: not self.daemon.ask("status")["textPending"], "all words", 0.05)
            for world, into in zip(self._worlds, found, strict=True):
                with closing(world.teller()) as teller:
                    into.append(work(world, teller))
        self.ours.right([one for one in self.ours.made if self.ours.added[one.path]])
        return found[1], found[0]


def quiet(bench: Bench, sides: Sides, rounds: int) -> None:
    """One append at a time."""
    ours, limit = sides.turns(TURNS, lambda world, teller: alone(world, teller, rounds))
    for at, which in enumerate(("get", "event")):
        mine, least = ([one[at] for one in turns] for turns in (ours, limit))
        show(bench, f"append to {which}, idle", mine, least)


def steady(bench: Bench, sides: Sides, seconds: float) -> None:
    """2,000 appends a second."""
    ours, limit = sides.turns(TURNS, lambda world, teller: loaded(world, teller, seconds, 2000))
    mine, least = ([one for one, _ in turns] for turns in (ours, limit))
    show(bench, f"append to event, 2,000/s over {len(sides.ours.busy)} files", mine, least)
    mine, least = ([100 * share for _, share in turns] for turns in (ours, limit))
    told = {"limit": LIMIT, "floor": median(least), "ratio": ratio(mine, least)}
    target = Target(35)
    bench.add("processor at 2,000 appends/s", median(mine), "%", target=target, **told)


def show(bench: Bench, name: str, mine: list[list[float]], least: list[list[float]]) -> None:
    """The middle and the worst of latencies, beside the prototype's."""
    for share, which, target in ((0.5, "p50", None), (0.99, "p99", Target(5))):
        ours, floor = ([percentile(one, share) for one in turns] for turns in (mine, least))
        told = {"limit": LIMIT, "floor": median(floor), "ratio": ratio(ours, floor)}
        bench.add(f"{name}, {which}", median(ours), "ms", target=target, **told)


def beaten(bench: Bench, sides: Sides, *, small: bool) -> None:
    """Bursts: nothing is missed."""
    rounds, count = (1, 2000) if small else (TURNS, 12_000)
    ours, limit = sides.turns(rounds, lambda world, teller: burst(world, teller, 20_000, count))
    note = f"{count} appends at {median(one for _, one in ours):.0f}/s"
    mine, least = ([one for one, _ in turns] for turns in (ours, limit))
    right(bench, "after a burst", mine, least, note)


def flooded(bench: Bench, sides: Sides, rounds: int) -> None:
    """More appends at once than the kernel's queue holds: nothing is missed."""
    held = int(QUEUED.read_text())
    if held > QUEUE_MOST:
        print(f"not measured: an overflow of a queue of {held} events")
        return
    before = sides.daemon.ask("status")["watches"]["overflows"]
    count = held + held // 5
    mine, least = sides.turns(rounds, lambda world, teller: overflow(world, teller, count))
    lost = sides.daemon.ask("status")["watches"]["overflows"] - before
    bench.check("the kernel's queue did overflow", ok=lost >= rounds)
    right(bench, "after an overflow", mine, least, f"{NEW} of the files new; {lost} overflows")


def right(bench: Bench, name: str, mine: list[float], least: list[float], note: str) -> None:
    """Milliseconds until all counts were right, beside the prototype's."""
    told = {"limit": LIMIT, "floor": 1000 * median(least), "ratio": ratio(mine, least)}
    told |= {"note": note, "target": Target(1000 * SWEEP)}
    bench.add(f"{name}, until all is right", 1000 * median(mine), "ms", **told)


if __name__ == "__main__":
    sys.exit(main())

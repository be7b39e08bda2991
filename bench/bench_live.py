"""An append, until a client of the socket sees it: alone, among 2,000 a second, in bursts.

    python bench/bench_live.py [--smoke] [--sessions N]

The daemon runs on a home of 5,000 small sessions. pi's way of writing is used: open, append a
line, close. Seen means: `get`, asked in a tight loop, counts the message; or the `session.updated`
event of a subscriber counts it. Beside it, on the same files and with the same writer, in turn: an
event loop that reads inotify and the new bytes, and does nothing else (`prototype.py`).

Then 2,000 appends a second over 500 files, told by events; 20,000 a second for 1.5 seconds; and as
many appends as the kernel's queue does not hold, and some new files, while the daemon is stopped
(SIGSTOP). Of these the time until every count is right. The truth is on the disk: after each, the
daemon's counts are held against the files' own lines, parsed one by one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from home import QUIET, Daemon, Home, Small, append, message, project, wait
from load import TEXT, Load, word
from measure import Bench, Target, cpu_of, percentile

from indexerd.errors import NotFoundError

BUSY = 500
QUEUED = Path("/proc/sys/fs/inotify/max_queued_events")
QUEUE_MOST = 100_000  # events: a queue that holds more is not made to overflow
NEW = 50  # files that appear while nobody looks
HELD = 2  # messages of a small session before anything is appended
OTHER = 2  # lines of a small session that are no messages
SWEEP = 30.0  # seconds between two sweeps as they are set by default


# -- who tells of an append: the daemon, or the prototype -----------------------------------------


class Ours:
    """The daemon, as a client sees it."""

    def __init__(self, daemon: Daemon) -> None:
        self.pid = daemon.pid
        self._asking, self._hearing = daemon.client(), daemon.client()
        self.told = self._hearing.events(["session.updated", "session.created"])

    def count(self, one: Small) -> int:
        """Messages that were appended to a session, as `get` tells it."""
        held = self._asking.call("get", {"ref": one.id})["session"]
        return int(held["messageCount"]) - HELD

    def next(self) -> tuple[str, int]:
        """The next event: a session's file, and how many messages were appended to it."""
        event = next(self.told)
        return event["sessionFile"], int(event.get("messages", HELD)) - HELD


class Limit:
    """The prototype, as a client sees it."""

    def __init__(self, path: Path, pid: int) -> None:
        self.pid = pid
        self._asking, self._hearing = _connected(path), _connected(path)
        self._hearing.write(b"subscribe\n")
        self._hearing.flush()
        self._hearing.readline()

    def count(self, one: Small) -> int:
        """Lines that were appended to a file."""
        self._asking.write(os.fsencode(one.path) + b"\n")
        self._asking.flush()
        return int(self._asking.readline()) - HELD - OTHER

    def next(self) -> tuple[str, int]:
        """The next event."""
        path, lines = json.loads(self._hearing.readline())
        return path, lines - HELD - OTHER


Teller = Ours | Limit


def _listens(path: Path) -> bool:
    try:
        _connected(path).close()
    except OSError:
        return False
    return True


def _connected(path: Path) -> Any:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    return made.makefile("rwb")


@contextmanager
def prototype(home: Home) -> Iterator[Limit]:
    """The prototype at work on the same files."""
    path = home.root / "p"
    path.unlink(missing_ok=True)
    script = str(Path(__file__).with_name("prototype.py"))
    process = subprocess.Popen([sys.executable, script, str(home.sessions), str(path)])
    try:
        wait(lambda: _listens(path), "the prototype")
        yield Limit(path, process.pid)
    finally:
        process.kill()
        process.wait()


# -- alone ----------------------------------------------------------------------------------------


class World:
    """The files, and how much was appended to each so far."""

    def __init__(self, bench: Bench, home: Home, made: list[Small]) -> None:
        self.bench, self.home, self.made = bench, home, made
        self.busy = made[-min(BUSY, len(made) // 2) :]  # those that are written to under load
        self.added = {one.path: 0 for one in made}
        self.serial = 0
        self.word = ""  # of the last load
        self.leaves: dict[Path, str] = {}  # of the sessions that were written to

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

    def truth(self, one: Small) -> int:
        """Messages of a session as its file has them, every line parsed."""
        rows = (json.loads(row) for row in one.path.read_bytes().splitlines())
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

    def right(self, daemon: Daemon, among: list[Small]) -> None:
        """Hold the daemon's counts against the disk."""
        caught_up(self, daemon, among)
        with daemon.client() as client:
            wrong = 0
            for one in among:
                told = client.call("get", {"ref": one.id})["session"]["messageCount"]
                wrong += told != self.truth(one)
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


def burst(world: World, daemon: Daemon, rate: float, count: int) -> tuple[float, float]:
    """Seconds from the last of many appends until all counts are right, and appends a second."""
    among = world.busy
    times = world.load(among, rate, count).times()
    took = caught_up(world, daemon, among)
    return max(0.0, took - times[-1]), count / (times[-1] - times[0])


def overflow(world: World, daemon: Daemon, count: int) -> float:
    """Seconds from SIGCONT until all counts are right, with files that came meanwhile."""
    among = world.busy
    daemon.signal(signal.SIGSTOP)
    world.load(among, 0, count).times()
    new = world.home.small(NEW, len(world.made))
    world.added |= {one.path: 0 for one in new}
    world.made += new
    began = time.perf_counter()
    daemon.signal(signal.SIGCONT)
    took = caught_up(world, daemon, [*among, *new]) - began
    world.right(daemon, new)
    return took


def caught_up(world: World, daemon: Daemon, among: list[Small]) -> float:
    """Wait until the daemon counts what was appended; the moment it did."""
    wanted = {one.id: world.added[one.path] + HELD for one in among}
    with daemon.client() as client:

        def done() -> bool:
            for key in list(wanted):
                try:
                    held = client.call("get", {"ref": key})["session"]
                except NotFoundError:
                    return False
                if held["messageCount"] != wanted[key]:
                    return False
                del wanted[key]
            return True

        wait(done, "a catching up")
    return time.perf_counter()


# -- all of it ------------------------------------------------------------------------------------


def main() -> int:
    bench = Bench("live", "From an append to a client of the socket")
    bench.options.add_argument("--sessions", type=int, default=5_000)
    small = bench.smoke
    with Home() as home:
        made = home.small(200 if small else bench.asked.sessions)
        world = World(bench, home, made)
        with home.daemon(**QUIET) as daemon:
            daemon.settled(len(made))
            quiet(bench, world, daemon, 5 if small else 100)
            steady(bench, world, daemon, 0.5 if small else 5)
            beaten(bench, world, daemon, small=small)
    return bench.end()


def quiet(bench: Bench, world: World, daemon: Daemon, rounds: int) -> None:
    """One append at a time."""
    ours = alone(world, Ours(daemon), rounds)
    with prototype(world.home) as limit:
        floor = alone(world, limit, rounds)
    for name, mine, least in zip(("get", "event"), ours, floor, strict=True):
        show(bench, f"append to {name}, idle", mine, least)
    world.right(daemon, world.made[:200])


def steady(bench: Bench, world: World, daemon: Daemon, seconds: float) -> None:
    """2,000 appends a second."""
    mine, share = loaded(world, Ours(daemon), seconds, 2000)
    world.searchable(daemon)
    with prototype(world.home) as limit:
        least, floor = loaded(world, limit, seconds, 2000)
    show(bench, f"append to event, 2,000/s over {len(world.busy)} files", mine, least)
    told = {"limit": "in-loop inotify", "floor": 100 * floor, "ratio": share / floor}
    bench.add("processor at 2,000 appends/s", 100 * share, "%", target=Target(35), **told)
    world.right(daemon, world.busy)


def show(bench: Bench, name: str, mine: list[float], least: list[float]) -> None:
    """The middle and the worst of latencies, beside the prototype's."""
    for share, which, target in ((0.5, "p50", None), (0.99, "p99", Target(5))):
        value, floor = percentile(mine, share), percentile(least, share)
        told = {"limit": "in-loop inotify", "floor": floor, "ratio": value / floor}
        bench.add(f"{name}, {which}", value, "ms", target=target, **told)


def beaten(bench: Bench, world: World, daemon: Daemon, *, small: bool) -> None:
    """Bursts, and a queue that overflows: nothing is missed."""
    rounds, count = (1, 2000) if small else (3, 30_000)
    found = [burst(world, daemon, 20_000, count) for _ in range(rounds)]
    rate = median(one for _, one in found)
    note = f"{count} appends at {rate:.0f}/s"
    told = {"note": note, "target": Target(1000 * SWEEP)}
    bench.add(
        "after a burst, until all is right", 1000 * median(at for at, _ in found), "ms", **told
    )
    world.right(daemon, world.busy)
    flooded(bench, world, daemon, rounds)


def flooded(bench: Bench, world: World, daemon: Daemon, rounds: int) -> None:
    """More appends at once than the kernel's queue holds."""
    held = int(QUEUED.read_text())
    if held > QUEUE_MOST:
        print(f"not measured: an overflow of a queue of {held} events")
        return
    before = daemon.ask("status")["watches"]["overflows"]
    took = [overflow(world, daemon, held + held // 5) for _ in range(rounds)]
    lost = daemon.ask("status")["watches"]["overflows"] - before
    bench.check("the kernel's queue did overflow", ok=lost >= rounds)
    note = f"{NEW} of the files new; {lost} overflows"
    told = {"note": note, "target": Target(1000 * SWEEP)}
    bench.add("after an overflow, until all is right", 1000 * median(took), "ms", **told)
    world.right(daemon, world.busy)


if __name__ == "__main__":
    sys.exit(main())

"""What the daemon costs while nothing happens, and how long its event loop is ever held up.

    python bench/bench_idle.py [--smoke]

On a home of 10,000 small sessions: processor time and context switches of a daemon that nobody
asks, between two sweeps, beside those of a bare event loop with its one timer, at the same time;
the processor time of one sweep, beside a bare scandir + stat of the same files; resident memory
after a restart, and the most there ever was at a first start, beside a process that has only
imported what a daemon of this kind imports (what more sessions add is told by bench_growth.py).
Then 1,500 sessions of 20 KB come at once while a client asks all the time: the longest it waited.
The sweep is that of the default settings, but for how often it comes.
What is checked: that sweeps happened when they should, and no more; that they find what no event
told of; that all came to be known.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from statistics import median

from bench_start import stats
from corpus import make
from home import PATIENCE, QUIET, Daemon, Home, Small, Writer, switches_of, wait
from measure import Bench, Target, cpu, cpu_of, percentile
from plain import imports

REST = 1.0  # seconds
RARE, OFTEN = 3600.0, 0.2  # seconds between sweeps
DEFAULT = 30.0
TICK = 4.0  # seconds; the daemon's own, which looks after its health
LOOP = f"""\
import asyncio
async def main():
    print(flush=True)
    await asyncio.sleep({TICK / 2})  # so that as many fall into the time that is looked at
    while True:
        await asyncio.sleep({TICK})
asyncio.run(main())
"""


def main() -> int:
    bench = Bench("idle", "Idle: processor, memory, and the longest wait")
    count = 200 if bench.smoke else 10_000
    with Home() as home:
        sweeps(home, RARE)
        made = home.small(count)
        with home.daemon(**QUIET) as daemon:
            daemon.settled(count)
            peak = daemon.memory("VmHWM")
        unseen = Unseen(home, made[0])
        with home.daemon(**QUIET) as daemon:
            daemon.settled(count)
            resting(bench, home, daemon, unseen)
            held = daemon.memory()
        told = {"limit": "imports alone", "floor": imports()}
        name = f"memory, {len(made)} sessions"
        bench.add(f"{name}, after a restart", held, "MB", target=Target(50), **told)
        bench.add("memory, the most at a first start", peak, "MB", target=Target(90), **told)
    with Home() as home:
        waiting(bench, home, 60 if bench.smoke else 1500)
    return bench.end()


class Unseen:
    """A session that can grow without an event: by a name that is outside of what is watched."""

    def __init__(self, home: Home, one: Small) -> None:
        """Give a session's file the other name; before the daemon starts."""
        aside = home.root / "aside" / one.path.name
        aside.parent.mkdir()
        os.link(one.path, aside)
        self._writer = Writer(replace(one, path=aside))

    def grow(self) -> None:
        """Have it grow."""
        self._writer.append()

    def check(self, bench: Bench, daemon: Daemon) -> None:
        """See that it is known, after a sweep that began since."""
        told = daemon.ask("get", {"ref": self._writer.id})["session"]["messageCount"]
        bench.check("a sweep finds what no event told of", ok=told == 2 + self._writer.entries)


def sweeps(home: Home, seconds: float) -> None:
    """Have the daemon sweep so often."""
    level = "debug"  # a line in the log for each
    home.configure(f'[watch]\nrescan_seconds = {seconds}\n[log]\nlevel = "{level}"\n')


# -- resting -------------------------------------------------------------------------------------


def resting(bench: Bench, home: Home, daemon: Daemon, unseen: Unseen) -> None:
    """Processor time between sweeps, and that of a sweep."""
    time.sleep(REST)  # what a start leaves behind is done by then
    seconds, before = (0.6 if bench.smoke else 2) * TICK, swept(home)
    (still, woken), (least, rarely) = shares(daemon.pid, seconds)
    bench.check("there was no sweep meanwhile", ok=swept(home) == before)
    told = {"limit": "a bare loop", "note": f"over {seconds:g} s"}
    promise = told | {"floor": 100 * least, "target": Target(0.05)}
    bench.add("processor, idle, between sweeps", 100 * still, "%", **promise)
    bench.add("context switches, idle", woken, "/s", floor=rarely, **told)
    top = str(home.sessions)
    bare = median(cpu(lambda: stats(top)) for _ in range(5))
    unseen.grow()
    one = sweep(bench, home, daemon, seconds / 2, still)
    unseen.check(bench, daemon)
    bench.add("processor, one sweep", 1000 * one, "ms", limit="scandir + stat", floor=1000 * bare)
    told = {"limit": "a bare loop, scandir + stat", "floor": 100 * (least + bare / DEFAULT)}
    part = 100 * (still + one / DEFAULT)
    bench.add("processor, idle, a sweep every 30 s", part, "%", target=Target(0.3), **told)


def shares(pid: int, seconds: float) -> list[tuple[float, float]]:
    """Of the daemon, and of a bare event loop beside it, for so long: how much of a processor it
    takes, and how often a second it is put on one."""
    with subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE) as bare:
        try:
            assert bare.stdout is not None
            bare.stdout.readline()
            pids = (pid, bare.pid)
            began = time.perf_counter()
            before = [(cpu_of(one), switches_of(one)) for one in pids]
            time.sleep(seconds)
            after = [(cpu_of(one), switches_of(one)) for one in pids]
            took = time.perf_counter() - began
        finally:
            bare.kill()
    return [
        ((spent - was) / took, (woken - then) / took)
        for (was, then), (spent, woken) in zip(before, after, strict=True)
    ]


def sweep(bench: Bench, home: Home, daemon: Daemon, seconds: float, still: float) -> float:
    """Seconds of the processor for one sweep: of many in a row, less what rest costs anyway."""
    sweeps(home, OFTEN)
    before = swept(home)
    daemon.signal(signal.SIGHUP)
    wait(lambda: swept(home) > before + 1, "two sweeps", 0.05)
    began, spent, first = time.perf_counter(), daemon.cpu(), swept(home)
    wait(lambda: time.perf_counter() > began + seconds, "the end", 0.1)
    last = swept(home)
    wait(lambda: swept(home) > last, "one more sweep", 0.01)
    spent, count = daemon.cpu() - spent, swept(home) - first
    bench.check("there were sweeps", ok=count > 1)
    return (spent - still * (time.perf_counter() - began)) / count


def swept(home: Home) -> int:
    """How many sweeps the daemon has told of."""
    return (home.root / "stderr").read_bytes().count(b'"watch.rescan"')


# -- waiting -------------------------------------------------------------------------------------


def waiting(bench: Bench, home: Home, count: int) -> None:
    """Ask all the time while sessions come in."""
    corpus = home.root / "later"
    made = make(corpus, "pi", count, 20_000 * count, seed=1)
    known = home.small(100)
    with home.daemon(**QUIET) as daemon, daemon.client() as client:
        daemon.settled(100)
        still = asked(lambda: client.call("hello"), 0.5)
        os.replace(corpus / "sessions", home.sessions / "moved")
        began = time.perf_counter()
        hello, resolve = [], []
        looked = time.perf_counter()
        chosen = cycle(known)
        while True:
            hello += asked(lambda: client.call("hello"), 0.1)
            resolve += asked(lambda: client.call("resolve", {"ref": next(chosen).id}), 0.1)
            if time.perf_counter() > looked + 0.5:
                looked = time.perf_counter()
                told = client.call("status")
                if told["sessions"] == count + 100 and not told["textPending"]:
                    break
            if looked > began + PATIENCE:
                break
        told = client.call("status")
        there = told["sessions"] == count + 100 and not told["textPending"]
        bench.check("all came to be known, and its text", ok=there)
    name = f"while {count} sessions ({made.bytes / 1e6:.0f} MB) are read"
    floor = {"limit": "idle"}
    for word, held in (("hello", hello), ("resolve", resolve)):
        for part, at, target in (("p99", 0.99, Target(5)), ("longest", 1.0, Target(20))):
            beside = percentile(still, at)
            told = floor | {"floor": beside, "ratio": percentile(held, at) / beside}
            bench.add(f"{word} {name}, {part}", percentile(held, at), "ms", target=target, **told)


def asked(ask: Callable[[], object], seconds: float) -> list[float]:
    """Milliseconds of each question, one after the other, for so long."""
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        ask()
        found.append(1000 * (time.perf_counter() - began))
    return found


if __name__ == "__main__":
    sys.exit(main())

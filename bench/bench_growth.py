"""How each cost grows with the number of sessions: 100, 1,000, 10,000, 30,000.

    python bench/bench_growth.py [--smoke]

At each number a home of small sessions, a daemon that has never seen them, and one that has. The
exponent is that of the curve through the last three points (least squares over the logarithms): 0
is a cost that does not grow, 1 one that grows with the sessions. What each session must cost (to be
read, to be held) cannot do better than 1, and is taken without what it is at the first point, which
is mostly the program's own, and only where it is more than a tenth above that; what one session
more costs is told beside it. A look-up should be near 0.

What is checked at each number: all sessions are known, and the answer to each question is right.
"""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from bench_idle import OFTEN, RARE, sweeps, swept
from home import QUIET, Daemon, Home, Small, Writer, wait
from measure import Bench, Target

from indexerd.errors import AmbiguousError, NotFoundError

COUNTS, FEW = (100, 1_000, 10_000, 30_000), (10, 30, 200)
ASKED = 100  # questions of a kind
APPENDS = 20
REST = 2.0  # seconds after which what a start leaves behind is done
LOOKUPS = ("resolve", "get", "append to event")
ABOVE = 0.1  # of what is the program's own: less than that above it is noise
MEMORY = "memory, after a restart"
SESSION = Target(0.8)  # KB: 10,000 sessions more are 8 MB at most
MOST = 0.15  # exponent of a look-up: a tenfold number of sessions makes it half as long again
EACH = ("first scan", "restart", "memory", "sweep")  # costs that every session has a part in
SMALLER = {"s": "ms", "ms": "us", "MB": "KB"}
Right = Callable[[Any, Small], bool]


def main() -> int:
    bench = Bench("growth", "Growth with the number of sessions")
    counts = FEW if bench.smoke else COUNTS
    found: dict[tuple[str, str], list[float]] = {}
    for count in counts:
        for key, value in costs(bench, count).items():
            found.setdefault(key, []).append(value)
    for (name, unit), values in found.items():
        own = values[0] if name.startswith(EACH) and len(values) > 3 else 0.0
        note = ", ".join(f"{n}: {v:.3g} {unit}" for n, v in zip(counts, values, strict=True))
        target = Target(MOST) if name in LOOKUPS else None
        bench.add(f"{name}, exponent", grown(counts, values, own), "", note=note, target=target)
        if own:
            each = (values[-1] - values[-2]) / (counts[-1] - counts[-2])
            told = {"target": SESSION} if name == MEMORY else {}
            bench.add(f"{name}, each session more", 1000 * each, SMALLER[unit], **told)
    return bench.end()


def grown(counts: Sequence[int], values: Sequence[float], own: float) -> float:
    """The exponent of what is above `own`, of the last three points where that is anything."""
    above = [(count, value - own) for count, value in zip(counts, values, strict=True)]
    told = [one for one in above[-3:] if one[1] > ABOVE * own]
    return exponent(*zip(*told, strict=True)) if len(told) > 1 else 0.0


def exponent(counts: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the line through the logarithms, by least squares."""
    xs = [math.log(one) for one in counts]
    ys = [math.log(max(one, 1e-9)) for one in values]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - mx) ** 2 for x in xs)


def costs(bench: Bench, count: int) -> dict[tuple[str, str], float]:
    """What everything costs with so many sessions."""
    found: dict[tuple[str, str], float] = {}
    with Home() as home:
        sweeps(home, RARE)
        made = home.small(count)
        with home.daemon(**QUIET) as daemon:
            found["first scan", "s"] = daemon.scanned()
            found["first scan and all text", "s"] = daemon.settled(count)
            found["first scan and all text, processor", "s"] = daemon.cpu()
            found["memory, most at a first start", "MB"] = daemon.memory("VmHWM")
        late = Writer(made[-1])
        late.append()  # while nobody follows: a restart that compares nothing would miss it
        with home.daemon(**QUIET) as daemon:
            found["restart, exec to READY", "ms"] = 1000 * daemon.ready()
            found["restart, exec to caught up", "ms"] = 1000 * daemon.scanned()
            daemon.settled(count)
            found["restart, processor", "ms"] = 1000 * daemon.cpu()
            found[MEMORY, "MB"] = daemon.memory()
            told = daemon.ask("status")["sessions"]
            bench.check(f"{count} sessions are known, not {told}", ok=told == count)
            held = daemon.ask("get", {"ref": late.id})["session"]["messageCount"]
            bench.check("what was appended meanwhile is known", ok=held == 2 + late.entries)
            time.sleep(REST)
            found |= first_asked(daemon, made[0])
            found |= lookups(bench, daemon, made)
            found["memory, when all was asked", "MB"] = daemon.memory()
            found["append to event", "ms"] = appends(daemon, made)
            found["sweep, processor", "ms"] = sweep(home, daemon)
    return found


def first_asked(daemon: Daemon, one: Small) -> dict[tuple[str, str], float]:
    """Milliseconds of the first questions after a start, which make ready what others find there.

    Nobody else is answered meanwhile: names are put together in the thread that answers.
    """
    asks = {"the first name": one.name, "the first name that nobody has": "rusty dor"}
    found = {}
    with daemon.client() as client:
        for what, ref in asks.items():
            began = time.perf_counter()
            with suppress(AmbiguousError, NotFoundError):
                client.call("resolve", {"ref": ref, "scope": "all"})
            found[what, "ms"] = 1000 * (time.perf_counter() - began)
    return found


def lookups(bench: Bench, daemon: Daemon, made: list[Small]) -> dict[tuple[str, str], float]:
    """Milliseconds of a question of each kind, the middle of many."""
    chosen = random.Random(1)
    with daemon.client() as client:

        def ask(name: str, method: str, params: Callable[[Small], object], right: Right) -> float:
            taken = []
            for _ in range(ASKED):
                one = chosen.choice(made)
                began = time.perf_counter()
                answer = client.call(method, params(one))  # type: ignore[arg-type]
                taken.append(1000 * (time.perf_counter() - began))
                bench.check(f"{name}: {one.name}", ok=right(answer, one))
            return median(taken)

        newest = {one.id for one in made[-50:]}
        asks: dict[str, tuple[str, Callable[[Small], object], Right]] = {
            "resolve": (
                "resolve",
                lambda one: {"ref": one.name, "scope": "all"},
                lambda told, one: told["sessionId"] == one.id,
            ),
            "get": (
                "get",
                lambda one: {"ref": one.id},
                lambda told, one: told["session"]["name"] == one.name,
            ),
            "list": (
                "list",
                lambda _: {"limit": 50},
                lambda told, _: {row["sessionId"] for row in told["sessions"]} == newest,
            ),
            "complete": (
                "complete",
                lambda one: {"prefix": one.name[:5]},
                lambda told, one: (
                    all(row["label"].startswith(one.name[:5]) for row in told["items"])
                    and bool(told["items"])
                ),
            ),
            "search, a rare word": (
                "search",
                lambda one: {"query": one.word},
                lambda told, one: {hit["sessionId"] for hit in told["hits"]} == {one.id},
            ),
            "search, a word of all": (
                "search",
                lambda _: {"query": "spring"},
                lambda told, _: len(told["hits"]) == min(20, len(made)),
            ),
        }
        return {(name, "ms"): ask(name, *rest) for name, rest in asks.items()}


def appends(daemon: Daemon, made: list[Small]) -> float:
    """Milliseconds from an append to the event that tells of it, the middle of some."""
    taken = []
    with daemon.client() as client:
        told = client.events(["session.updated"])
        for one in random.Random(2).sample(made, min(len(made), APPENDS)):
            began = time.perf_counter()
            Writer(one).append()
            while next(told).get("sessionId") != one.id:
                pass
            taken.append(1000 * (time.perf_counter() - began))
    return median(taken)


def sweep(home: Home, daemon: Daemon) -> float:
    """Milliseconds of the processor for one sweep: of some in a row."""
    sweeps(home, OFTEN)
    before = swept(home)
    daemon.signal(signal.SIGHUP)
    wait(lambda: swept(home) > before + 1, "two sweeps", 0.05)
    first, spent = swept(home), daemon.cpu()
    wait(lambda: swept(home) > first + 2, "three sweeps", 0.05)
    return 1000 * (daemon.cpu() - spent) / (swept(home) - first)


if __name__ == "__main__":
    sys.exit(main())

"""How each cost grows with the number of sessions: 100, 1,000, 10,000, 30,000.

    python bench/bench_growth.py [--smoke]

At each number a home of small sessions, a daemon that has never seen them, and one that has. Beside
both the plain program (`plain.py`) on the same files: it parses every line and puts all into SQLite
tables; its imports are left out, which any number of sessions has. Look-ups are asked of both in
turn. A sweep stands beside scandir + stat, an append beside inotify in an event loop
(`prototype.py`).

The exponent is that of the curve through the last three points (least squares over the logarithms):
0 is a cost that does not grow, 1 one that grows with the sessions. What each session must cost (to
be read, to be held) cannot do better than 1, and is taken without the least that was measured, as a
rule at the first point, which is mostly the program's own, and only where it is more than a tenth
above that; what one session more costs is told beside it. A look-up should be near 0: a ratio of
two such exponents says nothing, and the look-up at the last number is told beside its limit
instead.

What is checked at each number: all sessions are known, the answer to each question is right, the
ledger's log is folded into its file, and a sweep finds what no event told of.
"""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench_idle import OFTEN, RARE, Unseen, sweeps, swept
from bench_start import stats
from home import QUIET, Daemon, Home, Small, Writer, wait
from measure import Bench, Target, cpu, ratio
from plain import Peer, Plain

from indexerd.errors import AmbiguousError, NotFoundError

COUNTS, FEW = (100, 1_000, 10_000, 30_000), (10, 30, 200)
ASKED = 50  # questions of a kind
APPENDS = 20  # told by each
AGAIN = 2  # restarts before the one that is asked: what is told is the middle of all
REST = 0.5  # seconds after which what a start leaves behind is done
LOG_LEAST = 8_000_000  # bytes of a log that is not long, however short its file
LOOKUPS = ("resolve", "get", "append to event")
ABOVE = 0.1  # of what is the program's own: less than that above it is noise
POINTS = ("no point", "one point", "two points")
GROWS = 0.3  # an exponent that is worth being held against another
MEMORY = "memory, after a restart"
SESSION = Target(0.8)  # KB: 10,000 sessions more are 8 MB at most
MOST = 0.15  # exponent of a look-up: a tenfold number of sessions makes it half as long again
EACH = ("first scan", "restart", "memory", "sweep")  # costs that every session has a part in
SMALLER = {"s": "ms", "ms": "us", "MB": "KB"}
LIMITS = {"sweep, processor": "scandir + stat", "append to event": "in-loop inotify"}
Right = Callable[[Any, Small], bool]


class Cost(NamedTuple):
    """What something costs, what it costs the limit, and the ratio where rounds have their own."""

    ours: float
    limit: float
    ratio: float | None = None


Costs = dict[tuple[str, str], Cost]  # by name and unit


def main() -> int:
    bench = Bench("growth", "Growth with the number of sessions")
    counts = FEW if bench.smoke else COUNTS
    found: dict[tuple[str, str], list[Cost]] = {}
    for count in counts:
        for key, value in costs(bench, count).items():
            found.setdefault(key, []).append(value)
    for (name, unit), held in found.items():
        tell(bench, counts, name, unit, held)
    return bench.end()


def tell(bench: Bench, counts: Sequence[int], name: str, unit: str, held: Sequence[Cost]) -> None:
    """The exponent of a cost; what a session more costs, or, of a look-up, the last number's."""
    ours, bare = [one.ours for one in held], [one.limit for one in held]
    each = name.startswith(EACH) and len(held) > 3
    limit = LIMITS.get(name, "plain program")
    (slope, few), (beside, fewer) = (
        grown(counts, one, min(one) if each else 0.0) for one in (ours, bare)
    )
    told: dict[str, Any] = {"alone": f"an exponent; {limit}{fewer}: {beside:.2g}"}
    if min(slope, beside) > GROWS:
        told = {"limit": limit + fewer, "floor": beside}
    note = ", ".join(f"{n}: {v:.3g} {unit}" for n, v in zip(counts, ours, strict=True)) + few
    target = Target(MOST) if name in LOOKUPS else None
    bench.add(f"{name}, exponent", slope, "", note=note, target=target, **told)
    told = {"limit": limit}
    if each:
        more, least = (1000 * one_more(counts, values, unit) for values in (ours, bare))
        if least:
            told["floor"] = least
        else:
            told = {"alone": f"{limit}: nothing that can be told"}
        told["target"] = SESSION if name == MEMORY else None
        bench.add(f"{name}, each session more", more, SMALLER[unit], **told)
    else:
        told |= {"floor": bare[-1], "ratio": held[-1].ratio}
        bench.add(f"{name}, {counts[-1]} sessions", ours[-1], unit, **told)


def one_more(counts: Sequence[int], values: Sequence[float], unit: str) -> float:
    """What one session more costs, from the least to the last; of memory between the last two.

    A program keeps some memory in any case, of which few sessions do not need all.
    """
    since = len(values) - 2 if unit == "MB" else values.index(min(values))
    over = counts[-1] - counts[since]
    return max((values[-1] - values[since]) / over, 0.0) if over else 0.0


def grown(counts: Sequence[int], values: Sequence[float], own: float) -> tuple[float, str]:
    """The exponent of what is above `own`, of the last three points where that is anything.

    And of how many points it is, in words, where these are fewer than three.
    """
    above = [(count, value - own) for count, value in zip(counts, values, strict=True)]
    told = [one for one in above[-3:] if one[1] > ABOVE * own]
    slope = exponent(*zip(*told, strict=True)) if len(told) > 1 else 0.0
    return slope, "" if len(told) > 2 else f", of {POINTS[len(told)]}"


def exponent(counts: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the line through the logarithms, by least squares."""
    xs = [math.log(one) for one in counts]
    ys = [math.log(max(one, 1e-9)) for one in values]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - mx) ** 2 for x in xs)


def costs(bench: Bench, count: int) -> Costs:
    """What everything costs with so many sessions."""
    with Home() as home:
        sweeps(home, RARE)
        made = home.small(count)
        found = first(bench, home, count)
        late = Writer(made[-1])
        earlier = [again(bench, home, late, count) for _ in range(AGAIN)]
        late.append()  # while nobody follows: a restart that compares nothing would miss it
        unseen = Unseen(home, made[0])
        with Plain(home.root, home.sessions) as plain, home.daemon(**QUIET) as daemon:
            found |= middle([*earlier, restarted(bench, daemon, plain, late, count)])
            time.sleep(REST)
            found |= first_asked(bench, daemon, plain, made[0])
            found |= lookups(bench, daemon, plain, made)
            memory = Cost(daemon.memory(), plain.memory())
            found["memory, when all was asked", "MB"] = memory
            found["append to event", "ms"] = appends(home, daemon, made[1:])
            found["sweep, processor", "ms"] = sweep(bench, home, daemon, unseen)
    return found


def first(bench: Bench, home: Home, count: int) -> Costs:
    """A start that has to read everything."""
    with home.daemon(**QUIET) as daemon:
        ours = [daemon.scanned(), daemon.settled(count), daemon.cpu(), daemon.memory("VmHWM")]
        size, log = home.stored("ledger.sqlite"), home.stored("ledger.sqlite-wal")
        told = f"{count} sessions: the ledger's log of {log} bytes is folded into its file ({size})"
        bench.check(told, ok=log <= max(size, LOG_LEAST))
    with Plain(home.root, home.sessions) as plain:
        bare = [plain.scanned, plain.texts, plain.spent, plain.memory("VmHWM")]
        bench.check(f"the plain program knows {count} sessions", ok=plain.known == count)
    names = (
        ("first scan", "s"),
        ("first scan and all text", "s"),
        ("first scan and all text, processor", "s"),
        ("memory, most at a first start", "MB"),
    )
    return {name: Cost(*pair) for name, *pair in zip(names, ours, bare, strict=True)}


def again(bench: Bench, home: Home, late: Writer, count: int) -> Costs:
    """One restart of both, after an append that nobody saw."""
    late.append()
    with Plain(home.root, home.sessions) as plain, home.daemon(**QUIET) as daemon:
        return restarted(bench, daemon, plain, late, count)


def middle(runs: Sequence[Costs]) -> Costs:
    """The middle of several runs."""
    return {
        key: Cost(median(one[key].ours for one in runs), median(one[key].limit for one in runs))
        for key in runs[0]
    }


def restarted(bench: Bench, daemon: Daemon, plain: Plain, late: Writer, count: int) -> Costs:
    """A start that finds all but one session as they were."""
    ready, scanned = 1000 * daemon.ready(), 1000 * daemon.scanned()
    daemon.settled(count)
    found = {
        ("restart, exec to READY", "ms"): Cost(ready, 1000 * plain.ready),
        ("restart, exec to caught up", "ms"): Cost(scanned, 1000 * plain.texts),
        ("restart, processor", "ms"): Cost(1000 * daemon.cpu(), 1000 * plain.spent),
        (MEMORY, "MB"): Cost(daemon.memory(), plain.memory()),
    }
    told = daemon.ask("status")["sessions"]
    bench.check(f"{count} sessions are known, not {told}", ok=told == count)
    for who, answer in (
        ("the daemon", daemon.ask("get", {"ref": late.id})),
        ("the plain program", plain.ask("get", late.id)),
    ):
        right = answer["session"]["messageCount"] == 2 + late.entries
        bench.check(f"what was appended meanwhile is known to {who}", ok=right)
    return found


def first_asked(bench: Bench, daemon: Daemon, plain: Plain, one: Small) -> Costs:
    """Milliseconds of the first questions after a start, which make ready what others find there.

    They are waited for by whoever needs names: these are put together in a thread of their own, and
    what needs none is answered meanwhile.
    """
    slip = one.name[:4] + one.name[5:]  # a letter left out of a word of ten
    asks = {"the first name": one.name, "the first mistyped name": slip}
    found: Costs = {}
    with daemon.client() as client:
        for what, ref in asks.items():
            moments, told = [time.perf_counter()], {}
            with suppress(AmbiguousError, NotFoundError):
                told = client.call("resolve", {"ref": ref, "scope": "all"})
            moments.append(time.perf_counter())
            bare = plain.ask("resolve", ref)
            moments.append(time.perf_counter())
            for who, answer in (("the daemon", told), ("the plain program", bare)):
                right = answer.get("sessionId") == one.id
                bench.check(f"{what}, {ref}: {who} finds {one.name}", ok=right)
            began, asked, ended = moments
            found[what, "ms"] = Cost(1000 * (asked - began), 1000 * (ended - asked))
    return found


def lookups(bench: Bench, daemon: Daemon, plain: Plain, made: list[Small]) -> Costs:
    """Milliseconds of a question of each kind, the middle of many, asked of both in turn."""
    chosen, found = random.Random(1), Costs()
    with daemon.client() as client:
        for name, (ask, text, right) in questions(made).items():
            taken: tuple[list[float], list[float]] = ([], [])
            for _ in range(ASKED):
                one = chosen.choice(made)
                word = text(one)
                ours: tuple[Callable[..., Any], object] = (client.call, ask(word))
                for (call, params), into in zip((ours, (plain.ask, word)), taken, strict=True):
                    began = time.perf_counter()
                    answer = call(name.partition(",")[0], params)
                    into.append(1000 * (time.perf_counter() - began))
                    bench.check(f"{name}: {one.name}", ok=right(answer, one))
            found[name, "ms"] = Cost(*map(median, taken), ratio(*taken))
    return found


def questions(
    made: list[Small],
) -> dict[str, tuple[Callable[[str], object], Callable[[Small], str], Right]]:
    """Of each kind: the daemon's parameters of a text, that text of a session, what is right."""
    newest = {one.id for one in made[-50:]}
    return {
        "resolve": (
            lambda name: {"ref": name, "scope": "all"},
            lambda one: one.name,
            lambda told, one: told["sessionId"] == one.id,
        ),
        "get": (
            lambda ref: {"ref": ref},
            lambda one: one.id,
            lambda told, one: told["session"]["name"] == one.name,
        ),
        "list": (
            lambda _: {"limit": 50},
            lambda _: "",
            lambda told, _: {row["sessionId"] for row in told["sessions"]} == newest,
        ),
        "complete": (
            lambda part: {"prefix": part},
            lambda one: one.name[:5],
            lambda told, one: (
                all(row["label"].startswith(one.name[:5]) for row in told["items"])
                and bool(told["items"])
            ),
        ),
        "search, a rare word": (
            lambda word: {"query": word},
            lambda one: one.word,
            lambda told, one: {hit["sessionId"] for hit in told["hits"]} == {one.id},
        ),
        "search, a word of all": (
            lambda word: {"query": word},
            lambda _: "spring",
            lambda told, _: len(told["hits"]) == min(20, len(made)),
        ),
    }


def appends(home: Home, daemon: Daemon, made: list[Small]) -> Cost:
    """Milliseconds from an append to the event that tells of it, the middle of some.

    While one is measured the other stands still, and makes up for it afterwards.
    """
    script, path = str(Path(__file__).with_name("prototype.py")), home.root / "b"
    taken: tuple[list[float], list[float]] = ([], [])
    sample = random.Random(2).sample(made, min(len(made), 2 * APPENDS))
    with Peer(path, script, str(home.sessions), str(path)) as bare, daemon.client() as client:
        told = client.events(["session.updated"])
        bare.say(b"subscribe")
        bare.hear()

        def ours(one: Small) -> None:
            while next(told).get("sessionId") != one.id:
                pass

        def limit(one: Small) -> None:
            while str(one.path).encode() not in bare.hear():
                pass

        tellers = ((ours, daemon.pause), (limit, bare.pause))
        for number, one in enumerate(sample):
            mine = number % 2
            hears, (others, still) = tellers[mine][0], tellers[1 - mine]
            still(on=True)
            began = time.perf_counter()
            Writer(one).append()
            hears(one)
            taken[mine].append(1000 * (time.perf_counter() - began))
            still(on=False)
            others(one)
    return Cost(*map(median, taken))


def sweep(bench: Bench, home: Home, daemon: Daemon, unseen: Unseen) -> Cost:
    """Milliseconds of the processor for one sweep: of some in a row."""
    sweeps(home, OFTEN)
    before = swept(home)
    unseen.grow()
    daemon.signal(signal.SIGHUP)
    wait(lambda: swept(home) > before + 1, "two sweeps", 0.05)
    unseen.check(bench, daemon)
    first, spent = swept(home), daemon.cpu()
    wait(lambda: swept(home) > first + 1, "two sweeps more", 0.05)
    spent, count = daemon.cpu() - spent, swept(home) - first
    bare = median(cpu(lambda: stats(str(home.sessions))) for _ in range(3))
    return Cost(1000 * spent / count, 1000 * bare)


if __name__ == "__main__":
    sys.exit(main())

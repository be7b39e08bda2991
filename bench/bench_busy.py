"""Lookups of a real daemon, at rest and while it takes in sessions that are new to it.

A daemon knows 30,000 sessions. One client asks it on one connection, a question after the other,
all of them in each round: `resolve` by id and by name, `get`, `list`, `complete`, `search`. Then so
many sessions more are put beside them, and the same is asked until their texts are searchable. The
limit is a bare asyncio echo, asked before each of the questions. The promises: a p99 of 1 ms for
`resolve` and `get`, 5 ms while it is indexing; 5 ms for a page; 15 ms for a search. The rounds are
three runs, and what is told is the middle of their percentiles.

    python bench/bench_busy.py [--smoke] [--sessions 30000] [--more 2500] [--rounds 150]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench_socket import ask, connect, server
from home import Home, Small
from measure import Bench, Target, percentile, ratio

from indexerd.client import Client

RUNS = 3  # parts of the rounds: a percentile is the middle one of theirs
PROMISES = {  # milliseconds: at rest, and while indexing
    "resolve, by id": (1, 5),
    "resolve, by name": (1, 5),
    "get": (1, 5),
    "list, 50 rows": (5, None),
    "complete": (5, None),
    "search, a rare word": (15, None),
    "search, a common word": (15, None),
}


def questions(client: Client, made: list[Small]) -> dict[str, Callable[[int], Any]]:
    """What is asked in the n-th round."""

    def one(n: int) -> Small:
        return made[n * 7919 % len(made)]

    return {
        "resolve, by id": lambda n: client.call("resolve", {"ref": one(n).id}),
        "resolve, by name": lambda n: client.call("resolve", {"ref": one(n).name, "scope": "all"}),
        "get": lambda n: client.call("get", {"ref": one(n).id}),
        "list, 50 rows": lambda _: client.call("list", {}),
        "complete": lambda n: client.call("complete", {"prefix": one(n).name[:4]}),
        "search, a rare word": lambda n: client.call("search", {"query": one(n).word}),
        "search, a common word": lambda _: client.call("search", {"query": "door"}),
    }


def asked(
    sock: Any, client: Client, made: list[Small], going_on: Callable[[int], bool]
) -> dict[str, list[float]]:
    """Milliseconds of each question, round by round, as long as it goes on.

    An echo is asked before each: right after a search it is slower than it need be.
    """
    found: dict[str, list[float]] = {"echo": []}
    what = questions(client, made)
    n = 0
    while going_on(n):
        for name, question in what.items():
            began = time.perf_counter()
            ask(sock, b"x" * 300 + b"\n")
            found["echo"].append(1000 * (time.perf_counter() - began))
            began = time.perf_counter()
            question(n)
            found.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        n += 1
    return found


def report(bench: Bench, when: str, found: dict[str, list[float]]) -> None:
    """Percentiles of each question beside the echo's."""
    echo = found.pop("echo")
    note = f"{len(echo) // len(found)} rounds, and an echo before each question"  # of all here
    for share, which in ((0.5, "p50"), (0.99, "p99")):
        floors = runs(echo, share)
        for name, took in found.items():
            promise = PROMISES[name][when != "at rest"] if which == "p99" else None
            ours = runs(took, share)
            bench.add(
                f"{when}: {name}, {which}",
                median(ours),
                "ms",
                limit="echo",
                floor=median(floors),
                ratio=ratio(ours, floors),
                target=Target(promise) if promise else None,
                note=note,
            )
            note = ""


def runs(took: list[float], share: float) -> list[float]:
    """A percentile of each of some runs, which follow upon each other."""
    each = max(1, len(took) // RUNS)
    parts = (took[n * each : (n + 1) * each] for n in range(RUNS))
    return [percentile(one, share) for one in parts if one]


def right(client: Client, made: list[Small]) -> bool:
    """Whether all questions have the answers that they should; `made` has the newest of all."""
    newest = [one.id for one in made[:-51:-1]]
    if [row["sessionId"] for row in client.call("list", {})["sessions"]] != newest:
        return False
    common = client.call("search", {"query": "door"})["hits"]
    if len({hit["sessionId"] for hit in common}) < min(20, len(made)):
        return False
    some = made[:: max(1, len(made) // 50)]
    what = questions(client, some)
    for n, _ in enumerate(some):
        wanted = some[n * 7919 % len(some)].id
        by_word = [hit["sessionId"] for hit in what["search, a rare word"](n)["hits"]]
        ids = [what[name](n)["sessionId"] for name in ("resolve, by id", "resolve, by name")]
        ids.append(what["get"](n)["session"]["sessionId"])
        offered = {one["sessionId"] for one in what["complete"](n)["items"]}
        if {*by_word, *ids} != {wanted} or wanted not in offered:
            return False
    return True


def main() -> int:
    bench = Bench("busy", "Lookups of the daemon, at rest and while it is indexing")
    bench.options.add_argument("--sessions", type=int, default=30_000)
    bench.options.add_argument("--more", type=int, default=2500)
    bench.options.add_argument("--rounds", type=int, default=150)
    asked_for = bench.asked
    sessions, more, rounds = asked_for.sessions, asked_for.more, asked_for.rounds
    if bench.smoke:
        sessions, more, rounds = 100, 100, 5
    with Home() as home, server("echo", str(home.root)) as floor:
        made = home.small(sessions)
        with home.daemon() as daemon, connect(floor) as sock:
            daemon.settled(sessions)
            with daemon.client() as client:
                asked(sock, client, made, lambda n: n < max(2, rounds // 20))  # warms up
                report(bench, "at rest", asked(sock, client, made, lambda n: n < RUNS * rounds))
                bench.check("sessions are found at rest", ok=right(client, made))
                new = home.small(more, first=sessions)

                def going_on(n: int) -> bool:
                    told = client.call("status") if n % 10 == 0 else None
                    return told is None or told["sessions"] < sessions + more or told["textPending"]

                report(bench, "while indexing", asked(sock, client, made, going_on))
                bench.check("new sessions are found, too", ok=right(client, new))
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())

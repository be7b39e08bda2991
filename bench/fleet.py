"""Measure a fleet: two real daemons and a real PostgreSQL server.

    make bench-fleet

Prints figures for docs/FLEET.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from corpus import Draw, talks
from home import Daemon, Home, wait

from tests.fleet.postgres import Postgres, running

APPENDS, LOOKUPS, IDLE_SECONDS = 100, 300, 60


def say(what: str, text: str) -> None:
    sys.stdout.write(f"{what:38} {text}\n")
    sys.stdout.flush()


def milliseconds(values: list[float]) -> str:
    ordered = sorted(1000 * value for value in values)
    return (
        f"p50 {statistics.median(ordered):.1f} ms, p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms"
    )


def lookups(daemon: Daemon, words: list[str], names: list[str]) -> dict[str, float]:
    """Return the median seconds of each lookup."""
    calls: dict[str, list[dict[str, Any]]] = {
        "list": [{"limit": 50}] * len(words),
        "search": [{"query": word} for word in words],
        "resolve": [{"ref": name, "scope": "all"} for name in names],
    }
    medians = {}
    with daemon.connect() as connection:
        for method, asked in calls.items():
            took = []
            for params in asked:
                began = time.perf_counter()
                connection.ask(method, **params)
                took.append(time.perf_counter() - began)
            medians[method] = statistics.median(took)
    return medians


def idle(*daemons: Daemon) -> str:
    """Wait for a while, and return the share of one processor that each daemon used."""
    time.sleep(5)
    before = [daemon.cpu() for daemon in daemons]
    time.sleep(IDLE_SECONDS)
    used = [daemon.cpu() - earlier for daemon, earlier in zip(daemons, before, strict=True)]
    return " and ".join(f"{100 * seconds / IDLE_SECONDS:.3f} %" for seconds in used)


def two(server: Postgres, count: int) -> None:
    """Measure two machines."""
    with Home() as one, Home() as two:
        made = talks(one.root, count, 10 * count, Draw(1, 1 << 18))
        words = [session.word for session in made[:: max(1, count // LOOKUPS)]]
        names = [session.name for session in made[:: max(1, count // LOOKUPS)]]
        with Daemon(one) as first, Daemon(two) as second:
            first.listed(count)
            first.caught_up(made[:: max(1, count // 20)])
            second.listed(0)
            alone = lookups(first, words, names)
            say("CPU, idle, without a fleet", idle(first, second))
            began = time.perf_counter()
            code = first.ask("fleet", do="init", target=server.url)["code"]
            with first.connect() as connection:
                wait(lambda: not connection.ask("fleet")["unsent"], "all told", 0.05)
            say(f"{count:,} sessions told at first", f"{time.perf_counter() - began:.1f} s")
            began, spent = time.perf_counter(), second.cpu()
            second.ask("fleet", do="join", target=code)
            with second.connect() as connection:
                wait(lambda: sum_of(connection) >= count, "all read", 0.05)
            took = time.perf_counter() - began
            say(
                f"{count:,} sessions join a machine",
                f"{took:.1f} s, {second.cpu() - spent:.1f} s CPU",
            )
            with second.connect() as connection:
                wait(lambda: connection.found(words[-1]), "searchable", 0.05)
            member = lookups(first, words, names)
            for method, seconds in alone.items():
                ratio = member[method] / seconds
                say(f"{method}, member / alone", f"{1000 * member[method]:.2f} ms, {ratio:.2f}")
            for method, seconds in lookups(second, words, names).items():
                say(f"{method}, of the other's sessions", f"{1000 * seconds:.2f} ms")
            appended(second, made)
            say("CPU, idle, of the two members", idle(first, second))
            size = server.query("SELECT pg_total_relation_size('indexerd.log')")[0][0]
            say(
                "server, tables and indexes",
                f"{size / 2**20:.1f} MiB, {size / count / 1024:.2f} KiB a session",
            )
            state = two.root / ".local/state/indexerd"
            store = sum(path.stat().st_size for path in state.glob("store*"))
            index = sum(
                path.stat().st_size for path in state.rglob("search/**/*") if path.is_file()
            )
            say(
                "local store and index of the reader",
                f"{store / 2**20:.1f} + {index / 2**20:.1f} MiB",
            )
            say("memory of the reader", f"{second.memory():.0f} MB")


def sum_of(connection: Any) -> int:
    machines = connection.ask("fleet")["machines"]
    return sum(machine["sessions"] or 0 for machine in machines if not machine["behind"])


def appended(second: Daemon, made: list[Any]) -> None:
    took = []
    with second.connect() as connection:
        for number, session in enumerate(islice(made, APPENDS)):
            entry = f"f1ee7{number:03x}"
            line = (
                f'{{"type":"message","id":"{entry}","parentId":"{session.leaf}","timestamp":'
                f'"2027-01-01T00:00:00.000Z","message":{{"role":"user","content":"more"}}}}\n'
            )
            began = time.perf_counter()
            with Path(session.path).open("a") as file:
                file.write(line)
            wait(
                lambda: connection.ask("get", ref=session.id)["session"]["leafId"] == entry,  # noqa: B023 - called at once
                "an append",
                0.001,
            )
            took.append(time.perf_counter() - began)
    say("append on A, listed on B", milliseconds(took))


def main() -> None:
    options = argparse.ArgumentParser(description="Measure a fleet.")
    options.add_argument("--sessions", type=int, default=10_000)
    args = options.parse_args()
    with running() as server:
        two(server, args.sessions)


if __name__ == "__main__":
    main()

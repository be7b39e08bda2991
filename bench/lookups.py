"""Measure requests on the socket next to an echo: 30,000 sessions with 218,000 messages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from corpus import Draw, Session, talks
from home import Connection, Daemon, Home, check, wait
from measure import Bench, Beside, wall

ECHO = """
import asyncio, os, sys
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1] + "~")
    os.rename(sys.argv[1] + "~", sys.argv[1])  # now it listens
    await server.serve_forever()
asyncio.run(main())
"""
PAGE = 50  # rows
Right = Callable[[dict[str, Any]], bool]
Ask = tuple[str, dict[str, Any], Right]  # method, params, whether the answer is right
Kinds = Iterator[tuple[str, dict[str, float], list[Ask]]]  # name, targets, requests


def run(bench: Bench) -> None:
    sessions, messages = bench.size(30_000, 300), bench.size(218_000, 2_000)
    draw = Draw(1, bench.size(8 << 20, 1 << 18))
    with Home() as home:
        made = talks(home.root, sessions, messages, draw)
        with Daemon(home) as daemon, echoing(home.root / "e") as echo:
            daemon.listed(sessions)
            daemon.caught_up(made[:: sessions // 100])
            with daemon.connect() as ours:
                bench.heading(f"Lookups, {sessions:,} sessions")
                asked(bench, ours, echo, lookups(made, draw, bench.size(600, 5)))
                bench.heading(f"Search, {messages:,} messages")
                asked(bench, ours, echo, searches(made, draw, bench.size(400, 5)))


def asked(bench: Bench, ours: Connection, echo: Connection, kinds: Kinds) -> None:
    """Send all requests, each in turns with the echo; every answer must be right."""
    for what, targets, asks in kinds:
        took, floor = [], []
        for method, params, right in asks:
            floor.append(1000 * wall(partial(echo.exchange, method, params)))
            took.append(1000 * wall(partial(ours.exchange, method, params)))
            check(f"{method} {params}: {ours.last[:300]!r}", ok=right(json.loads(ours.last)))
        bench.latency(what, took, Beside("echo", floor), **targets)


def lookups(made: list[Session], draw: Draw, rounds: int) -> Kinds:
    names = Counter(one.name for one in made)
    own = [one for one in made if names[one.name] == 1 and len(one.name) > 12]
    some = [draw.rng.choice(own) for _ in range(rounds)]

    def is_of(one: Session) -> Right:
        return lambda reply: one.id == reply["result"].get("session", reply["result"])["sessionId"]

    def resolve(ref: str, right: Right = bool) -> Ask:
        return "resolve", {"ref": ref, "scope": "all"}, right

    yield "resolve, id", {"p99": 1}, [resolve(one.id, is_of(one)) for one in some]
    yield "resolve, name", {"p99": 1}, [resolve(one.name, is_of(one)) for one in some]
    typed = [one.name[:4] + one.name[5:] for one in some]  # may match several, or none
    yield "resolve, mistyped name", {}, [resolve(one) for one in typed]
    yield "get", {"p99": 1}, [("get", {"ref": one.id}, is_of(one)) for one in some]
    page: Ask = "list", {"limit": PAGE}, lambda reply: len(reply["result"]["sessions"]) == PAGE
    yield f"list, {PAGE} rows", {"p99": 5}, [page] * rounds


def searches(made: list[Session], draw: Draw, rounds: int) -> Kinds:
    def search(words: str, right: Callable[[set[str]], bool] = lambda _: True) -> Ask:
        def hits(reply: dict[str, Any]) -> bool:
            return right({hit["sessionId"] for hit in reply["result"]["hits"]})

        return "search", {"query": words}, hits

    some = draw.rng.choices(made, k=rounds // 2)
    rare = [search(one.word, lambda ids, own=one.id: ids == {own}) for one in some]
    rare += [search(word) for word in draw.rng.sample(draw.words[9000:], rounds // 2)]
    yield "rare word", {"p99": 3}, rare
    pairs = [" ".join(draw.rng.sample(draw.common, 2)) for _ in range(rounds)]
    common = [search(pair, lambda ids: len(ids) > 9) for pair in pairs]
    yield "two common words", {"p99": 3}, common
    none = [search(word + "qqq") for word in draw.words[500 : 500 + rounds]]
    yield "absent word", {"p99": 10}, none


@contextmanager
def echoing(path: Path) -> Iterator[Connection]:
    """Connect to a server that only echoes what it gets."""
    with subprocess.Popen([sys.executable, "-c", ECHO, str(path)]) as process:
        try:
            wait(path.exists, "the echo")
            with Connection(path) as connection:
                yield connection
        finally:
            process.kill()

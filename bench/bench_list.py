"""The first page of a list over the Unix socket, against the same bytes from a bare server.

    python bench/bench_list.py [--smoke] [--rounds N] [--sessions 10000] [--seed 1]

A catalog of sessions of four agents is written as the daemon writes it, with 20 to 200 file paths
a row, and served by `Answers` on the daemon's own socket server, in a process of its own. The
client is a plain stdlib one: a line out, a line in. The limit is the kernel's share: a server that
has nothing to do but send as many bytes as the answer to that question has. The other comparison
has every row parsed and written anew, as a service without `Answers.page` would. Rounds go through
all questions in turn, each beside its limit, so that noise hits both alike; a ratio is the middle
of the rounds' own. The target is a p99 of at most 5 ms for a page of 50 (20 ms is the promise).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from measure import Bench, Target, percentile, ratio

from indexerd.daemon.answers import Answers
from indexerd.daemon.unix_server import UnixServer
from indexerd.protocol import params, wire
from indexerd.protocol.params import decode
from indexerd.store.catalog import Catalog, SearchText
from indexerd.times import iso

ANEW = "rows read, written anew"
PROMISED = ("all projects", "one agent", "one project", "no such project", "archived too")
START = 1_790_000_000  # seconds since 1970 of the oldest session
PROJECTS = 400
LONG = 100  # rows of a page that is asked for less often: it takes its time
WORDS = ["parser", "cache", "login", "token", "index", "search", "export", "queue", "metrics"]
Rounds = dict[str, tuple[list[list[float]], list[list[float]]]]  # of each question: ours, limit
AGENTS = ("pi", "claude", "codex", "opencode")
RESUME = {
    "pi": "pi --session {file}",
    "claude": "claude --resume {id}",
    "codex": "codex resume {id}",
    "opencode": "opencode --session {id}",
}


def row(made: random.Random, n: int) -> dict[str, Any]:
    """A row as `protocol/rows.py` makes it, of a session in which a lot was done."""
    agent, session_id = made.choice(AGENTS), str(uuid.UUID(int=made.getrandbits(128)))
    cwd = f"/home/someone/src/{WORDS[n % PROJECTS % len(WORDS)]}-{n % PROJECTS}"
    file = f"/home/someone/.{agent}/sessions/{n % PROJECTS}/{session_id}.jsonl"
    paths = [
        f"{cwd}/{made.choice(WORDS)}/{made.choice(WORDS)}/{made.choice(WORDS)}_{k}.py"
        for k in range(made.randint(20, 200))
    ]
    some = len(paths) * 3 // 4
    gone = made.random() < 0.03
    name = " ".join(made.choices(WORDS, k=5)).capitalize()
    return {
        "name": name,
        "nameSource": "meta",
        "description": " ".join(made.choices(WORDS, k=35)),
        "tags": made.sample(WORDS, 5),
        "indexed": True,
        "model": "google/gemini-3.5-flash-lite",
        "updatedAt": iso(START + n * 900 + 600),
        "sessionId": session_id,
        "agent": agent,
        "sessionFile": file,
        "cwd": cwd,
        "createdAt": iso(START + n * 900),
        "modifiedAt": iso(START + n * 900 + 500),
        "messageCount": 120,
        "userMessageCount": 12,
        "newUserMessages": 0,
        "firstUserMessage": " ".join(made.choices(WORDS, k=25)),
        "archived": gone or made.random() < 0.1,
        "gone": gone,
        "state": "idle",
        "resume": f"cd {cwd} && {RESUME[agent].format(id=session_id, file=file)}",
        "leafId": f"{n:08x}",
        "version": 3,
        "compactions": n % 3,
        "subagent": made.random() < 0.1,
        "filesRead": paths[:some],
        "filesModified": paths[some:],
        "toolsUsed": {"read": some, "edit": len(paths) - some, "bash": 31},
        "toolUses": {"bash": ["make test", "git diff --stat", "make lint"]},
        "models": ["sonnet-5", "gpt-6"],
        "tokens": {"input": 81_204, "output": 20_117, "cacheRead": 1_204_330, "cacheWrite": 66_002},
        "costUsd": 1.2345,
        "durationMs": 1_830_000,
        "gitBranch": "main",
    }


def build(
    path: Path, sessions: int, seed: int
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Write the catalog; the rows that are in it, and the questions to ask of it."""
    made = random.Random(seed)
    rows = [row(made, n) for n in range(sessions)]
    catalog = Catalog.open(path)
    began = time.perf_counter()
    for first in range(0, sessions, 500):
        catalog.put([(one, SearchText()) for one in rows[first : first + 500]])
    took = time.perf_counter() - began
    catalog.close()
    size = sum(len(json.dumps(one)) for one in rows) / sessions
    print(f"{sessions} sessions, {size:,.0f} bytes a row, written at {sessions / took:,.0f} rows/s")
    return rows, {
        "all projects": {},
        "one agent": {"agent": "codex"},
        "one project": {"cwd": rows[sessions // 2]["cwd"]},
        "no such project": {"cwd": "/nowhere"},
        "archived too": {"archived": True, "subagents": True},
        "500 rows": {"limit": 500},
    }


def wanted(rows: list[dict[str, Any]], asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The page by a look at every row."""

    def fits(one: dict[str, Any]) -> bool:
        if "agent" in asked and one["agent"] != asked["agent"]:
            return False
        if "cwd" in asked and not f"{one['cwd']}/".startswith(f"{asked['cwd']}/"):
            return False
        if "subagents" not in asked and one["subagent"]:
            return False
        return "archived" in asked or not (one["archived"] or one["gone"])

    newest = sorted(filter(fits, rows), key=lambda one: one["modifiedAt"], reverse=True)
    return newest[: asked.get("limit", 50)]


def rows_of(sock: socket.socket, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an answer."""
    found: list[dict[str, Any]] = json.loads(ask(sock, request(params)))["result"]["sessions"]
    return found


class Floor(asyncio.Protocol):
    """Answers a number with as many bytes, the line's end included, and does nothing else."""

    filled: dict[bytes, bytes]  # by what was asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, asked: bytes) -> None:
        self.transport.write(self.filled[asked])


async def serve_floor(path: str, sizes: str) -> None:
    """Answer with so many bytes, until SIGTERM; `sizes` are the numbers that are asked for."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    Floor.filled = {
        b"%s\n" % one.encode(): b"x" * (int(one) - 1) + b"\n" for one in sizes.split(",")
    }
    floor = await loop.create_unix_server(Floor, path)
    print("ready", flush=True)
    await ended.wait()
    floor.close()


async def serve(path: str, catalog: Catalog) -> None:
    """Answer from the catalog, until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    answers = Answers(catalog, time.time)

    def handle(request: wire.Request, _peer: object) -> Any:
        return (
            answers.page(decode(params.List, request.params))
            if request.method == "list"
            else answers.list(decode(params.List, {}))
        )

    server = UnixServer(Path(path), handle, lambda why: print(why, file=sys.stderr))
    await server.start()
    print("ready", flush=True)
    await ended.wait()
    await server.close()
    catalog.close()


@contextmanager
def server(directory: str, name: str, *what: str) -> Iterator[socket.socket]:
    """A server in a process of its own, and a connection to it."""
    path = os.path.join(directory, f"{name}.sock")
    command = [sys.executable, __file__, "--serve", path, *what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(30)
                sock.connect(path)
                yield sock
        finally:
            process.terminate()


def ask(sock: socket.socket, line: bytes) -> bytes:
    """One line out, one line in."""
    sock.sendall(line)
    pieces = [sock.recv(1 << 18)]
    while not pieces[-1].endswith(b"\n"):
        pieces.append(sock.recv(1 << 18))
    return b"".join(pieces)


def request(params: dict[str, Any], method: str = "list") -> bytes:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(asked).encode() + b"\n"


def timed(sock: socket.socket, line: bytes, times: int) -> list[float]:
    """Milliseconds of each round trip."""
    took = []
    for _ in range(times):
        began = time.perf_counter_ns()
        ask(sock, line)
        took.append((time.perf_counter_ns() - began) / 1e6)
    return took


def checked(
    bench: Bench, ours: socket.socket, rows: list[dict[str, Any]], questions: dict[str, Any]
) -> dict[str, tuple[int, int]]:
    """See that all answers are right; how many rows and bytes each has."""
    sizes = {}
    for name, given in questions.items():
        answer = ask(ours, request(given))
        found = json.loads(answer)["result"]["sessions"]
        ok = found == wanted(rows, given)
        bench.check(f"{name}: the page is that of a look at every row", ok=ok)
        sizes[name] = (len(found), len(answer))
    first = json.loads(ask(ours, request({})))["result"]
    anew = ask(ours, request({}, "anew"))
    bench.check("a page is what parsing its rows gives", ok=json.loads(anew)["result"] == first)
    return {ANEW: (len(first["sessions"]), len(anew)), **sizes}


def measure(bench: Bench, often: tuple[int, int], sessions: int, seed: int) -> None:
    """Ask in rounds, so many times each, and tell how long it took."""
    rounds, times = often
    with tempfile.TemporaryDirectory(prefix="ixd") as directory:
        os.chmod(directory, 0o700)
        path = Path(directory) / "catalog.sqlite"
        rows, questions = build(path, sessions, seed)
        lines = {ANEW: request({}, "anew")}
        lines |= {name: request(params) for name, params in questions.items()}
        with server(directory, "ours", "catalog", str(path)) as ours:
            sizes = checked(bench, ours, rows, questions)
            every = ",".join(str(size) for _, size in sizes.values())
            found: Rounds = {name: ([], []) for name in lines}
            with server(directory, "floor", "floor", every) as floor:
                for _ in range(rounds):
                    for name, line in lines.items():
                        rows_told, size = sizes[name]
                        few = times // 4 if rows_told > LONG else times
                        found[name][0].append(timed(ours, line, few))
                        found[name][1].append(timed(floor, b"%d\n" % size, few))
                        ok = len(ask(floor, b"%d\n" % size)) == size
                        bench.check(f"{name}: the limit sends as many bytes", ok=ok)
            catalog = Catalog.open(path)
            rows[7] |= {"name": "Another", "modifiedAt": iso(START + sessions * 900)}
            rows[7] |= {"archived": False, "gone": False, "subagent": False}
            catalog.put([(rows[7], SearchText())])
            catalog.close()
            same = rows_of(ours, {}) == wanted(rows, {})
            bench.check("a page has what was changed a moment ago", ok=same)
    report(bench, found, sizes)


def report(bench: Bench, found: Rounds, sizes: dict[str, tuple[int, int]]) -> None:
    """The percentiles of each, beside those of a server that sends as many bytes."""
    for share, which in ((0.5, "p50"), (0.99, "p99")):
        for name, (ours, floor) in found.items():
            promised = which == "p99" and name in PROMISED
            each = [[percentile(one, share) for one in rounds] for rounds in (ours, floor)]
            bench.add(
                f"list: {name}, {which}",
                percentile(chain(*ours), share),
                "ms",
                limit="as many bytes",
                floor=percentile(chain(*floor), share),
                ratio=ratio(*each),
                target=Target(5) if promised else None,
                note=f"{sizes[name][0]} rows, {sizes[name][1] / 1024:.0f} KiB",
            )


def main() -> int:
    bench = Bench("list", "The first page of a list, 10,000 sessions")
    bench.options.add_argument("--rounds", type=int, default=3)
    bench.options.add_argument("--sessions", type=int, default=10_000)
    bench.options.add_argument("--seed", type=int, default=1)
    bench.options.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    chosen = bench.asked
    if chosen.serve:
        path, kind, of = chosen.serve
        serving = (
            serve(path, Catalog.open(Path(of))) if kind == "catalog" else serve_floor(path, of)
        )
        asyncio.run(serving)
        return 0
    sessions = min(chosen.sessions, 500) if bench.smoke else chosen.sessions
    rounds, times = (1, 20) if bench.smoke else (chosen.rounds, 100)
    measure(bench, (rounds, times), sessions, chosen.seed)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())

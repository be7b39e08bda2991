"""Round trips over the Unix socket, against a bare asyncio echo in the same run.

    python bench/bench_socket.py [--smoke] [--rounds N]

Each server runs in a process of its own; both are asked in turn, round by round, so that noise
hits both. The target (docs: `resolve` and `get`, p99) is at most 1 ms; the floor is the echo.
Answers come from a dictionary of 10,000 sessions: what is measured is the server, not a search.

Every answer that was timed is compared with what was asked for, and the server that was timed has
to refuse what the protocol refuses. Instructions of an answer stand in bench_instructions.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from measure import Bench, Target, percentile, ratio

from indexerd.daemon.unix_server import UnixServer
from indexerd.errors import NotFoundError
from indexerd.protocol import wire

SESSIONS = 10_000
ECHO, FIRST = "echo", ", connect first"
GOOD = b'{"jsonrpc":"2.0","id":%d,"method":"resolve","params":{"ref":"%b"}}\n'
REFUSED = (  # what is no request, its id as far as it can be read, and the fault
    (b"{", None, -32700),
    (b'\xff{"jsonrpc":"2.0","id":1,"method":"get"}', None, -32700),
    (b'{"jsonrpc":"2.0","id":NaN,"method":"get"}', None, -32700),
    (b"[]", None, -32600),
    (b'"get"', None, -32600),
    (b'{"id":1,"method":"get"}', 1, -32600),
    (b'{"jsonrpc":"2.0","id":2,"params":{}}', 2, -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"get"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":3,"method":"get","params":[1]}', 3, -32602),
    (b'{"jsonrpc":"2.0","id":4,"method":"get","params":{"ref":"nobody"}}', 4, 1001),
)

Answers = list[tuple[str, int, bytes]]  # method, number, what came


def session_id(n: int) -> str:
    return f"{n * 2654435761 & 0xFFFFFFFF:08x}-session-{n}"


def row(n: int) -> dict[str, Any]:
    """What is known of a session, about 800 bytes, as `get` has it."""
    return {
        "sessionId": session_id(n),
        "name": f"Mend the parser, take {n}",
        "description": "Reads the log, finds the torn line, and mends the parser. " * 4,
        "tags": ["parser", "log", "python", f"ticket:{n}"],
        "cwd": f"/home/someone/projects/p{n % 100}",
        "messageCount": n % 500,
        "filesRead": [f"src/module_{k}.py" for k in range(10)],
    }


def answer(method: str, held: dict[str, Any]) -> dict[str, Any]:
    """What a method says of a session."""
    if method == "get":
        return {"session": held, "meta": None}
    return {"sessionId": held["sessionId"], "name": held["name"], "how": "id"}


class Echo(asyncio.Protocol):
    """The floor: bytes back as they came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def handler(numbers: Iterable[int] = range(SESSIONS)) -> Callable[[wire.Request, Any], Any]:
    """Answers out of a dictionary of these sessions."""
    held = {session_id(n): row(n) for n in numbers}

    def handle(request: wire.Request, _peer: Any) -> Any:
        found = held.get(request.params["ref"])
        if found is None:
            raise NotFoundError("no such session")
        return answer(request.method, found)

    return handle


async def serve(kind: str, path: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    if kind == "echo":
        server = await asyncio.get_running_loop().create_unix_server(Echo, path)
        print("ready", flush=True)
        await ended.wait()
        server.close()
        return
    ours = UnixServer(Path(path), handler(), lambda _why: None)
    await ours.start()
    print("ready", flush=True)
    await ended.wait()
    await ours.close()


@contextmanager
def server(kind: str, directory: str) -> Iterator[str]:
    path = os.path.join(directory, f"{kind}.sock")
    command = [sys.executable, __file__, "--serve", kind, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield path
        finally:
            process.terminate()


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    sock.connect(path)
    return sock


def ask(sock: socket.socket, line: bytes) -> bytes:
    sock.sendall(line)
    got = sock.recv(1 << 16)
    while not got.endswith(b"\n"):
        got += sock.recv(1 << 16)
    return got


def number(n: int) -> int:
    """The session that the n-th question is about."""
    return n * 7919 % SESSIONS


def request(method: str, n: int) -> bytes:
    params = {"ref": session_id(number(n))}
    asked = {"jsonrpc": "2.0", "id": n, "method": method, "params": params}
    return json.dumps(asked, separators=(",", ":")).encode() + b"\n"


def right(method: str, n: int, came: bytes) -> bool:
    """Whether an answer is what was asked for; the echo's is the question."""
    if method == ECHO:
        return came == request("get", n)
    wanted = {"jsonrpc": "2.0", "id": n, "result": answer(method, row(number(n)))}
    return bool(json.loads(came) == wanted)


def refusals(path: str) -> list[bytes]:
    """What of a connection is not as the protocol has it: questions that are none, and framing."""
    odd, good = [], GOOD % (7, session_id(7).encode())
    with connect(path) as sock:
        for line, own, fault in REFUSED:
            told = json.loads(ask(sock, line + b"\n"))
            if told.get("id") != own or told.get("error", {}).get("code") != fault:
                odd.append(line)
            if "result" not in json.loads(ask(sock, good)):
                odd.append(b"what comes behind " + line)
        silent = good.replace(b'"id":7,', b"")
        sock.sendall(silent + good[:20])
        if json.loads(ask(sock, good[20:])).get("id") != 7:
            odd.append(b"two halves behind a notification")
    with connect(path) as sock:
        long = GOOD % (8, b"x" * wire.LINE_MAX)
        if json.loads(ask(sock, long))["error"]["code"] != REFUSED[3][2] or sock.recv(1):
            odd.append(b"a line that is too long")
    return odd


def timed(do: Callable[[bytes], bytes], method: str, size: int, into: Answers) -> list[float]:
    """Microseconds of each question; what came goes into `into`."""
    took, sent = [], "get" if method == ECHO else method
    for n in range(size):
        line = request(sent, n)
        began = time.perf_counter_ns()
        came = do(line)
        took.append((time.perf_counter_ns() - began) / 1000)
        into.append((method, n, came))
    return took


def once(path: str, line: bytes) -> bytes:
    with connect(path) as sock:
        return ask(sock, line)


def pipelined(path: str, method: str, size: int, into: Answers) -> float:
    """Questions a second on one connection that does not wait for answers."""
    lines = b"".join(request("get" if method == ECHO else method, n) for n in range(size))
    with connect(path) as sock:
        sender = threading.Thread(target=sock.sendall, args=(lines,))
        pieces, answered = [], 0
        began = time.perf_counter()
        sender.start()
        while answered < size:
            pieces.append(sock.recv(1 << 18))
            answered += pieces[-1].count(b"\n")
        took = time.perf_counter() - began
        sender.join()
    came = b"".join(pieces).splitlines(keepends=True)
    into += [(method, n, line) for n, line in enumerate(came)]
    return size / took


Rounds = dict[str, list[list[float]]]  # of each kind, of each round: microseconds


def measure(bench: Bench, rounds: int, size: int) -> tuple[Rounds, dict[str, list[float]]]:
    """Ask both by turns; the times of round trips, and how many a second were pipelined."""
    found: Rounds = {}
    rates: dict[str, list[float]] = {ECHO: [], "resolve": []}
    with tempfile.TemporaryDirectory(prefix="ixd") as directory:
        os.chmod(directory, 0o700)
        with server(ECHO, directory) as floor, server("ours", directory) as path:
            with connect(floor) as echo, connect(path) as sock:
                for turn in range(-1, rounds):
                    many = size if turn >= 0 else size // 10
                    answers: Answers = []
                    for method, here in ((ECHO, echo), ("resolve", sock), ("get", sock)):
                        took = timed(lambda line, s=here: ask(s, line), method, many, answers)  # type: ignore[misc]
                        if turn >= 0:
                            found.setdefault(method, []).append(took)
                    for method, place in ((ECHO, floor), ("resolve", path)):
                        took = timed(
                            lambda line, p=place: once(p, line), method, many // 8, answers
                        )  # type: ignore[misc]
                        rate = pipelined(place, method, 2 * many, answers)
                        if turn >= 0:
                            found.setdefault(method + FIRST, []).append(took)
                            rates[method].append(rate)
                    wrong = [one for one in answers if not right(*one)]
                    bench.check(f"{len(wrong)} answers are not of what was asked", ok=not wrong)
            odd = refusals(path)
            bench.check(f"the server does not refuse, or stand: {odd}", ok=not odd)
    return found, rates


def report(bench: Bench, found: Rounds, rates: dict[str, list[float]]) -> None:
    """The percentiles of each, beside the echo's."""
    bench.add(
        "resolve, pipelined on one connection",
        median(rates["resolve"]),
        "/s",
        limit="echo, pipelined",
        floor=median(rates[ECHO]),
        ratio=ratio(rates["resolve"], rates[ECHO]),
    )
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        for what in ("resolve", "get", f"resolve{FIRST}"):
            beside = ECHO + (FIRST if what.endswith(FIRST) else "")
            ours, floor = (_each(found[one], share) for one in (what, beside))
            bench.add(
                f"{what}, {name}",
                median(ours),
                "us",
                limit=beside,
                floor=median(floor),
                ratio=ratio(ours, floor),
                target=Target(1000) if name == "p99" and what != f"resolve{FIRST}" else None,
            )


def _each(rounds: Sequence[Sequence[float]], share: float) -> list[float]:
    return [percentile(one, share) for one in rounds]


def main() -> int:
    bench = Bench("socket", "A round trip on the socket: the server alone")
    bench.options.add_argument("--rounds", type=int, default=5)
    bench.options.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    if bench.asked.serve:
        asyncio.run(serve(*bench.asked.serve))
        return 0
    rounds, size = (1, 200) if bench.smoke else (bench.asked.rounds, 4000)
    report(bench, *measure(bench, rounds, size))
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())

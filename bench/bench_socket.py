"""Round trips over the Unix socket, against a bare asyncio echo in the same run.

    python bench/bench_socket.py [--smoke] [--rounds N]

Each server runs in a process of its own; both are asked in turn, round by round, so that noise
hits both. The target (docs: `resolve` and `get`, p99) is at most 1 ms; the floor is the echo.
Answers come from a dictionary of 10,000 sessions: what is measured is the server, not a search.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from instructions import callgrind
from measure import Bench, Target, percentile

from indexerd.core import wire
from indexerd.errors import NotFoundError
from indexerd.surfaces.unix import UnixServer

SESSIONS = 10_000


def session_id(n: int) -> str:
    return f"{n * 2654435761 & 0xFFFFFFFF:08x}-session-{n}"


def rows() -> dict[str, dict[str, Any]]:
    """One answer of about 800 bytes a session, as `get` has them."""
    return {
        session_id(n): {
            "sessionId": session_id(n),
            "name": f"Mend the parser, take {n}",
            "description": "Reads the log, finds the torn line, and mends the parser. " * 4,
            "tags": ["parser", "log", "python", f"ticket:{n}"],
            "cwd": f"/home/someone/projects/p{n % 100}",
            "messageCount": n % 500,
            "filesRead": [f"src/module_{k}.py" for k in range(10)],
        }
        for n in range(SESSIONS)
    }


class Echo(asyncio.Protocol):
    """The floor: bytes back as they came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def serve(kind: str, path: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    if kind == "echo":
        server = await asyncio.get_running_loop().create_unix_server(Echo, path)
        print("ready", flush=True)
        await ended.wait()
        server.close()
        return
    held = rows()

    def handle(request: wire.Request, _peer: object) -> Any:
        row = held.get(request.params["ref"])
        if row is None:
            raise NotFoundError("no such session")
        if request.method == "get":
            return {"session": row, "meta": None}
        return {"sessionId": row["sessionId"], "name": row["name"], "how": "id"}

    ours = UnixServer(Path(path), handle, lambda why: print(why, file=sys.stderr))
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


def request(method: str, n: int) -> bytes:
    params = {"ref": session_id(n * 7919 % SESSIONS)}
    asked = {"jsonrpc": "2.0", "id": n, "method": method, "params": params}
    return json.dumps(asked, separators=(",", ":")).encode() + b"\n"


def timed(do: Callable[[bytes], object], lines: list[bytes]) -> list[float]:
    """Microseconds of each."""
    took = []
    for line in lines:
        began = time.perf_counter_ns()
        do(line)
        took.append((time.perf_counter_ns() - began) / 1000)
    return took


def once(path: str, line: bytes) -> None:
    with connect(path) as sock:
        ask(sock, line)


def pipelined(path: str, count: int) -> float:
    """Requests a second on one connection that does not wait for answers."""
    lines = b"".join(request("resolve", n) for n in range(count))
    with connect(path) as sock:
        sender = threading.Thread(target=sock.sendall, args=(lines,))
        began = time.perf_counter()
        sender.start()
        answered = 0
        while answered < count:
            answered += sock.recv(1 << 18).count(b"\n")
        took = time.perf_counter() - began
        sender.join()
    return count / took


def measure(bench: Bench, rounds: int, size: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ixd") as directory:
        os.chmod(directory, 0o700)
        with server("echo", directory) as floor, server("ours", directory) as path:
            with connect(floor) as echo, connect(path) as sock:
                for _ in range(rounds):
                    for name, here, method in (
                        ("echo", echo, "get"),
                        ("resolve", sock, "resolve"),
                        ("get", sock, "get"),
                    ):
                        lines = [request(method, n) for n in range(size)]
                        timed(lambda line, s=here: ask(s, line), lines[: size // 10])  # type: ignore[misc]
                        took = timed(lambda line, s=here: ask(s, line), lines)  # type: ignore[misc]
                        found.setdefault(name, []).extend(took)
            for name, where in (("echo, connect first", floor), ("resolve, connect first", path)):
                lines = [request("resolve", n) for n in range(max(size // 4, 10))]
                found[name] = timed(lambda line, p=where: once(p, line), lines)  # type: ignore[misc]
            bench.add("resolve, pipelined on one connection", pipelined(path, size * 4), "/s")
            with connect(path) as sock:
                told = [json.loads(ask(sock, request("resolve", n)))["result"] for n in range(50)]
            wanted = [session_id(n * 7919 % SESSIONS) for n in range(50)]
            bench.check(
                "answers are of who was asked", ok=[one["sessionId"] for one in told] == wanted
            )
    return found


def counted(bench: Bench, size: int) -> None:
    """Instructions of an answer, beside the echo's: what is paid for a request to be understood."""
    told: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ixd") as directory:
        os.chmod(directory, 0o700)
        for kind, method in (("echo", "get"), ("ours", "resolve")):
            path = os.path.join(directory, f"{kind}.sock")
            lines = [request(method, n) for n in range(size)]

            def ask_all(_run: object, path: str = path, lines: list[bytes] = lines) -> None:
                with connect(path) as sock:
                    for line in lines:
                        ask(sock, line)

            argv = [sys.executable, __file__, "--serve", kind, path]
            told[kind] = callgrind(argv, Path(directory) / f"{kind}.out", ask_all) / size
    if all(told.values()):
        bench.add(
            "resolve: instructions of the server",
            told["ours"],
            "instr/answer",
            limit="echo",
            floor=told["echo"],
            ratio=told["ours"] / told["echo"],
        )


def report(bench: Bench, found: dict[str, list[float]]) -> None:
    """The percentiles of each, beside the echo's."""
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        floors = {"": percentile(found["echo"], share)}
        floors[", connect first"] = percentile(found["echo, connect first"], share)
        for what, took in found.items():
            if what.startswith("echo"):
                continue
            value, floor = (
                percentile(took, share),
                floors[", connect first" if "connect" in what else ""],
            )
            bench.add(
                f"{what}, {name}",
                value,
                "us",
                limit="echo",
                floor=floor,
                ratio=value / floor,
                target=Target(1000) if name == "p99" and "connect" not in what else None,
            )


def main() -> int:
    bench = Bench("socket", "A round trip on the socket: the server alone")
    bench.options.add_argument("--rounds", type=int, default=5)
    bench.options.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    if bench.asked.serve:
        asyncio.run(serve(*bench.asked.serve))
        return 0
    rounds, size = (1, 200) if bench.smoke else (bench.asked.rounds, 4000)
    report(bench, measure(bench, rounds, size))
    if not bench.smoke:
        counted(bench, size // 4)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())

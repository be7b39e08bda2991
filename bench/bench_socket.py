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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from indexerd.core import wire  # noqa: E402 - the path comes first
from indexerd.errors import NotFoundError  # noqa: E402 - the path comes first
from indexerd.surfaces.unix import UnixServer  # noqa: E402 - the path comes first

SESSIONS = 10_000
TARGET_US = 1000.0


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


def percentile(took: list[float], part: float) -> float:
    return sorted(took)[min(len(took) - 1, int(len(took) * part))]


def measure(rounds: int, size: int) -> dict[str, list[float]]:
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
            print(f"pipelined resolve: {pipelined(path, size * 4):,.0f} requests/s")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a second's worth: does it run?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "PATH"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        asyncio.run(serve(*chosen.serve))
        return
    found = measure(1 if chosen.smoke else chosen.rounds, 200 if chosen.smoke else 4000)
    print(f"{'round trip, microseconds':<26}{'n':>8}{'p50':>9}{'p99':>9}")
    for name, took in found.items():
        print(
            f"{name:<26}{len(took):>8}{percentile(took, 0.5):>9.0f}{percentile(took, 0.99):>9.0f}"
        )
    worst = max(percentile(found[name], 0.99) for name in ("resolve", "get"))
    ratio = worst / percentile(found["echo"], 0.99)
    verdict = "held" if worst <= TARGET_US else "MISSED"
    print(f"p99 {worst:.0f} us, {ratio:.2f} x echo; target {TARGET_US:.0f} us: {verdict}")


if __name__ == "__main__":
    main()

"""A Unix-socket server on a loop in a thread of the test's own process, and a client."""

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from indexerd.daemon.unix_server import Peer, UnixServer
from indexerd.protocol import wire

SECONDS = 20.0  # after which a test gives up; nothing here takes a tenth of it


def eventually(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    waiting = threading.Event()
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        waiting.wait(0.005)


class Served:
    """A server on a loop in a thread of its own, with a handler that asks much of it."""

    def __init__(self, path: Path, **limits: Any) -> None:
        self.path = path
        self.refused: list[str] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.loop_errors: list[dict[str, Any]] = []
        self.peers: list[Peer] = []
        self.closed: list[str] = []
        self.begun = 0
        self.cancelled = 0
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _loop, context: self.loop_errors.append(context))
        self.gate = asyncio.Event()
        self.server = UnixServer(
            path,
            self.handle,
            self.refused.append,
            on_error=lambda method, error: self.errors.append((method, error)),
            limits=wire.Limits(**limits),
        )
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def handle(self, request: wire.Request, peer: Peer) -> Any:
        """Answer as a service might, at its worst included."""
        self.begun += 1
        found: dict[str, Callable[[], Any]] = {
            "echo": lambda: request.params,
            "big": lambda: "x" * request.params["size"],
            "gated": lambda: self.gated(request.params.get("then")),
            "boom": lambda: 1 // 0,
            "no json": object,
            "subscribe": lambda: self.subscribe(peer),
        }
        if request.method not in found:
            return wire.unknown_method(request)
        return found[request.method]()

    def subscribe(self, peer: Peer) -> dict[str, Any]:
        self.peers.append(peer)
        peer.on_close = lambda: self.closed.append("subscriber")
        return {}

    async def gated(self, then: str | None) -> Any:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if then == "boom":
            return 1 // 0
        return {"then": then}

    def run(self, made: Any) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(made, self.loop).result(SECONDS)

    def do(self, call: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return call()

        return self.run(called())

    def tell(self, event: dict[str, Any]) -> None:
        self.do(lambda: [peer.notify(event) for peer in self.peers])

    def open_gate(self) -> None:
        self.do(self.gate.set)

    def stop(self) -> None:
        """End the loop; nothing may have gone wrong on it unseen."""
        self.run(self.server.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(SECONDS)
        self.loop.close()
        assert [repr(e) for e in self.loop_errors] == []


def servers(directory: Path) -> Iterator[Callable[..., Served]]:
    """Make servers, and stop them all: what a fixture yields."""
    made: list[Served] = []

    def start(path: Path | None = None, **limits: Any) -> Served:
        one = Served(path or directory / "d" / "s.sock", **limits)
        made.append(one)
        one.run(one.server.start())
        return one

    yield start
    for one in made:
        one.gate.set()
        one.stop()


class Asking:
    """A client that sends bytes as it likes, and reads lines."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(os.fspath(path))
        self.held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *asked: tuple[Any, str, Any]) -> None:
        self.sock.sendall(b"".join(line(*one) for one in asked))

    def receive(self) -> Any:
        """Read one line; None at the end of the connection."""
        while b"\n" not in self.held:
            try:
                chunk = self.sock.recv(1 << 16)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                assert self.held == b""
                return None
            self.held += chunk
        text, _, self.held = self.held.partition(b"\n")
        return json.loads(text)

    def ask(self, method: str, params: Any = None) -> Any:
        self.send(("q", method, params or {}))
        return self.receive()


def line(asked: Any, method: str, params: Any) -> bytes:
    held = {"jsonrpc": "2.0", "id": asked, "method": method, "params": params}
    return json.dumps(held).encode() + b"\n"

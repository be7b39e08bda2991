"""A Unix-socket server on a loop in a thread of the test process, and a raw client."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from indexerd.daemon.unix_server import Peer, UnixServer
from indexerd.protocol import wire

SECONDS = 20.0  # before a test gives up; each step takes less than a tenth


class Served:
    """A server on a loop in its own thread, with a handler that also misbehaves."""

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
        """Answer as a service might, including errors and endless requests."""
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

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def do(self, call: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return call()

        return self.run(called())

    def tell(self, event: dict[str, Any]) -> None:
        self.do(lambda: [peer.notify(event) for peer in self.peers])

    def open_gate(self) -> None:
        self.do(self.gate.set)

    def stop(self) -> None:
        """End the loop and check that it caught no exception."""
        self.run(self.server.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(SECONDS)
        self.loop.close()
        assert [repr(e) for e in self.loop_errors] == []


def servers(directory: Path) -> Iterator[Callable[..., Served]]:
    """Start servers on request and stop them all; a generator for fixtures."""
    started: list[Served] = []

    def start(path: Path | None = None, **limits: Any) -> Served:
        served = Served(path or directory / "d" / "s.sock", **limits)
        started.append(served)
        served.run(served.server.start())
        return served

    yield start
    for served in started:
        served.gate.set()
        served.stop()


class RawClient:
    """A client that sends any bytes and reads lines."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(os.fspath(path))
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *asked: tuple[Any, str, Any]) -> None:
        self.sock.sendall(b"".join(line(*request) for request in asked))

    def receive(self) -> Any:
        """Read one line; None at the end of the connection."""
        while b"\n" not in self._buffer:
            try:
                chunk = self.sock.recv(1 << 16)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                assert self._buffer == b""
                return None
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(text)

    def ask(self, method: str, params: Any = None) -> Any:
        self.send(("q", method, params or {}))
        return self.receive()


def line(asked: Any, method: str, params: Any) -> bytes:
    request = {"jsonrpc": "2.0", "id": asked, "method": method, "params": params}
    return json.dumps(request).encode() + b"\n"

"""The Unix-socket server, over real sockets: limits, permissions and the socket file."""

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from indexerd.client import Client
from indexerd.daemon.unix_server import Peer, UnixServer
from indexerd.errors import AccessError, UsageError
from indexerd.protocol import wire
from tests.e2e.world import until

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


@pytest.fixture
def serve(directory: Path) -> Iterator[Callable[..., Served]]:
    """Start servers on request and stop them all."""
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


def code(answer: Any) -> int:
    found: int = answer["error"]["code"]
    return found


@pytest.mark.parametrize("method", ["boom", "no json"])
def test_an_unexpected_error_reveals_nothing(serve: Callable[..., Served], method: str) -> None:
    """A bug answers "internal error" without its text, is reported, and ends nothing."""
    served = serve()
    with RawClient(served.path) as client:
        answer = client.ask(method)["error"]
        assert (answer["code"], answer["message"]) == (-32603, "internal error")
        assert "division" not in json.dumps(answer)
        assert "result" in client.ask("echo")
    assert [name for name, _ in served.errors] == [method]


@pytest.mark.parametrize("junk", [b"\n", b"\x16\x03\x01\x02\x00\x01\n", b"[" * 100_000 + b"\n"])
def test_a_line_of_junk_gets_one_error(serve: Callable[..., Served], junk: bytes) -> None:
    """The connection can still be used afterwards."""
    served = serve()
    with RawClient(served.path) as client:
        client.sock.sendall(junk)
        assert code(client.receive()) == -32700
        assert "result" in client.ask("echo")


def test_a_complete_line_that_is_too_long_is_refused(serve: Callable[..., Served]) -> None:
    """The limit also holds for a complete line; earlier requests are answered."""
    served = serve(line_bytes=100)
    with RawClient(served.path) as client:
        client.send((1, "echo", {}), (2, "echo", {"text": "x" * 100}), (3, "echo", {}))
        assert [client.receive()["id"] for _ in range(2)] == [1, None]
        assert client.receive() is None
    assert (served.refused, served.begun) == (["too_long"], 1)
    with Client(served.path) as client, pytest.raises(UsageError):
        client.call("echo", {"text": "x" * 2_000_000})


def test_a_half_sent_request_times_out(serve: Callable[..., Served]) -> None:
    """The connection of a half-sent request is closed; an idle one stays open."""
    served = serve(half_line_seconds=0.1)
    with RawClient(served.path) as idle, RawClient(served.path) as half:
        assert "result" in half.ask("echo")
        half.sock.sendall(b'{"jsonrpc"')
        assert half.receive() is None
        assert served.refused == ["half_sent"]
        assert "result" in idle.ask("echo")


def test_a_half_closed_connection_gets_its_answers(serve: Callable[..., Served]) -> None:
    """As with `printf … | nc -N`; the last line needs no newline."""
    served = serve()
    with RawClient(served.path) as client:
        client.send(*((n, "echo", {}) for n in range(50)), (50, "gated", {}))
        client.sock.sendall(line(51, "echo", {}).rstrip(b"\n"))
        client.sock.shutdown(socket.SHUT_WR)
        until(lambda: served.begun == 51)
        served.open_gate()
        assert [client.receive()["id"] for _ in range(52)] == list(range(52))
        assert client.receive() is None
    until(lambda: len(served.server.peers) == 0)


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(
    serve: Callable[..., Served], directory: Path, mode: int
) -> None:
    """No socket is created where other users can create one, for example in /tmp."""
    directory.chmod(mode)
    with pytest.raises(AccessError, match="other users can write"):
        serve(directory / "s.sock")
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "link to a socket"])
def test_a_file_in_place_of_the_socket_is_kept(
    serve: Callable[..., Served], directory: Path, kind: str
) -> None:
    """A file or link in the socket's place is an error and stays unchanged."""
    path = directory / "s.sock"
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(os.fspath(directory / "t.sock"))
        make: dict[str, Callable[[], object]] = {
            "file": lambda: path.write_text("mine"),
            "link to a socket": lambda: path.symlink_to(directory / "t.sock"),
        }
        make[kind]()
        before = path.lstat()
        with pytest.raises(AccessError, match="not a socket"):
            serve(path)
        after = path.lstat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert (directory / "t.sock").exists()


def test_unfinished_requests_are_cancelled_on_close(serve: Callable[..., Served]) -> None:
    """After the grace period they are cancelled and answered with a typed error."""
    served = serve(grace_seconds=0.05)
    with RawClient(served.path) as client, RawClient(served.path) as deaf:
        client.send((1, "gated", {}))
        deaf.send((1, "big", {"size": 5_000_000}))
        until(lambda: served.begun == 2)
        served.run(served.server.close())
        answer = client.receive()["error"]
        assert answer["data"]["kind"] == "daemon_down"
        assert answer["data"]["retryable"] is True
        assert client.receive() is None
        assert served.cancelled == 1
        assert len(served.server.peers) == 0


def test_a_peer_that_never_reads_is_disconnected(serve: Callable[..., Served]) -> None:
    """Its other requests are not run, and few bytes are buffered for it."""
    served = serve(stall_seconds=0.2)
    with RawClient(served.path) as deaf, RawClient(served.path) as other:
        deaf.send(*((n, "big", {"size": 65536}) for n in range(300)))
        assert "result" in other.ask("echo")
        until(lambda: served.refused == ["not_reading"])
        until(lambda: len(served.server.peers) == 1)
        assert served.begun < 100
        assert "result" in other.ask("echo")


def test_a_lagging_subscriber_is_disconnected(serve: Callable[..., Served]) -> None:
    """Events do not wait for a slow reader: only that reader is disconnected."""
    served = serve(unsent_bytes=100_000)
    with RawClient(served.path) as deaf, RawClient(served.path) as other:
        for each in (deaf, other):
            each.ask("subscribe")
        sent = 0
        while not served.refused:
            served.tell({"event": "status.changed", "n": sent, "text": "x" * 5000})
            assert other.receive()["params"]["n"] == sent
            sent += 1
            assert sent < 1000
        assert served.refused == ["lagging"]
        until(lambda: served.closed == ["subscriber"])
        served.tell({"event": "status.changed"})
        assert other.receive()["params"] == {"event": "status.changed"}
        assert "result" in other.ask("echo")


def test_connections_above_the_limit_are_closed(serve: Callable[..., Served]) -> None:
    """The limit is counted, and a connection that closes makes room for another."""
    served = serve(connections=3)
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(RawClient(served.path)) for _ in range(3)]
        assert all("result" in client.ask("echo") for client in inside)
        with RawClient(served.path) as outside:
            assert outside.receive() is None
        assert served.refused == ["connections"]
        inside[0].sock.close()
        until(lambda: len(served.server.peers) == 2)
        with RawClient(served.path) as next_client:
            assert "result" in next_client.ask("echo")

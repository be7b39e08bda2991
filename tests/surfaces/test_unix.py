"""The Unix-socket server, by real sockets: order, bounds, privacy, and a file that is ours.

The servers run on a loop in a thread of the test's own process, so that handlers and counters
can be looked at. Those whose umask, descriptors or memory matter are in test_client.py.
"""

import asyncio
import contextlib
import json
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from indexerd.core import wire
from indexerd.errors import (
    AccessError,
    AlreadyRunningError,
    AmbiguousError,
    NotFoundError,
    UsageError,
)
from indexerd.io.peers import peer_uid
from indexerd.surfaces.unix import Peer, UnixServer

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SECONDS = 20.0  # after which a test gives up; nothing here takes a tenth of it
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


def eventually(true: Callable[[], object]) -> None:
    """Poll until something holds."""
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
            "missing": lambda: self.fail(NotFoundError("no session fits", hint="look again")),
            "ambiguous": lambda: self.fail(AmbiguousError("two fit", [{"sessionId": "a"}])),
            "odd candidates": lambda: self.fail(AmbiguousError("two fit", [{"a": object()}])),
            "usage": lambda: self.fail(UsageError("ref is missing")),
            "no json": object,
            "subscribe": lambda: self.subscribe(peer),
            "failure": lambda: wire.invalid_params(request, "no"),
        }
        if request.method not in found:
            return wire.unknown_method(request)
        return found[request.method]()

    def fail(self, error: Exception) -> None:
        """Raise."""
        raise error

    def subscribe(self, peer: Peer) -> dict[str, Any]:
        """Keep a peer."""
        self.peers.append(peer)
        peer.on_close(lambda: self.closed.append("subscriber"))
        return {}

    async def gated(self, then: str | None) -> Any:
        """Wait for the gate."""
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
        """Call on the server's loop."""

        async def called() -> Any:
            return call()

        return self.run(called())

    def tell(self, event: dict[str, Any]) -> list[bool]:
        """Notify every subscriber."""
        told: list[bool] = self.do(lambda: [peer.notify(event) for peer in self.peers])
        return told

    def open_gate(self) -> None:
        """Let gated requests end."""
        self.do(self.gate.set)

    def stop(self) -> None:
        """End the loop; nothing may have gone wrong on it unseen."""
        self.run(self.server.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(SECONDS)
        self.loop.close()
        assert [repr(e) for e in self.loop_errors] == []


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a short name."""
    made = Path(tempfile.mkdtemp(prefix="ixd", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def serve(directory: Path) -> Iterator[Callable[..., Served]]:
    """Make servers, and stop them all."""
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
        """Send requests in one write."""
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
        """One question, one answer."""
        self.send(("q", method, params or {}))
        return self.receive()


def line(asked: Any, method: str, params: Any) -> bytes:
    """One request."""
    held = {"jsonrpc": "2.0", "id": asked, "method": method, "params": params}
    return json.dumps(held).encode() + b"\n"


def code(told: Any) -> int:
    """The error code of an answer."""
    found: int = told["error"]["code"]
    return found


# Order and errors.


def test_pipelined_requests_are_answered_in_order(serve: Callable[..., Served]) -> None:
    """S12: hundreds of requests in one write, more than one turn takes, come back in order."""
    served = serve()
    with Asking(served.path) as one:
        one.send(*((n, "echo", {"n": n}) for n in range(500)))
        told = [one.receive() for _ in range(500)]
    assert [(each["id"], each["result"]["n"]) for each in told] == [(n, n) for n in range(500)]


def test_a_slow_request_delays_its_own_connection_only(serve: Callable[..., Served]) -> None:
    """S11: quick answers behind a slow one wait for it; those of others do not."""
    served = serve()
    with Asking(served.path) as slow, Asking(served.path) as other:
        slow.send(
            (1, "gated", {}), (2, "echo", {}), (3, "gated", {"then": "boom"}), (4, "echo", {})
        )
        eventually(lambda: served.begun == 4)
        assert other.ask("echo", {"a": 1})["result"] == {"a": 1}
        slow.sock.settimeout(0)
        with pytest.raises(BlockingIOError):
            slow.sock.recv(1)
        slow.sock.settimeout(SECONDS)
        served.open_gate()
        told = [slow.receive() for _ in range(4)]
    assert [each["id"] for each in told] == [1, 2, 3, 4]
    assert [code(each) for each in told if "error" in each] == [-32603]


def test_requests_in_flight_are_bounded(serve: Callable[..., Served]) -> None:
    """A connection has at most so many requests under way; the others are done in their turn."""
    served = serve(in_flight=4)
    with Asking(served.path) as one, Asking(served.path) as other:
        one.send(*((n, "gated", {}) for n in range(40)))
        eventually(lambda: served.begun == 4)
        assert "result" in other.ask("echo")
        assert served.begun == 5
        served.open_gate()
        assert [one.receive()["id"] for _ in range(40)] == list(range(40))


def test_errors_are_typed_and_the_connection_stays_usable(serve: Callable[..., Served]) -> None:
    """S10, S12: errors of the tree with kind and candidates, unknown methods, wrong versions."""
    served = serve()
    with Asking(served.path) as one:
        told = one.ask("missing")["error"]
        assert told["code"] == 1001
        assert told["data"] == {"kind": "not_found", "hint": "look again", "retryable": False}
        assert one.ask("ambiguous")["error"]["data"]["candidates"] == [{"sessionId": "a"}]
        assert code(one.ask("usage")) == -32602
        assert code(one.ask("failure")) == -32602
        assert code(one.ask("../../etc/passwd")) == -32601
        one.sock.sendall(b'{"jsonrpc":"1.0","id":1,"method":"echo"}\n')
        assert code(one.receive()) == -32600
        assert one.ask("echo", {"still": "here"})["result"] == {"still": "here"}
    assert served.refused == []


@pytest.mark.parametrize("method", ["boom", "no json", "odd candidates"])
def test_an_unforeseen_error_is_reported_and_says_nothing(
    serve: Callable[..., Served], method: str
) -> None:
    """A bug answers "internal error" without its text, is told to the daemon, and kills nothing."""
    served = serve()
    with Asking(served.path) as one:
        told = one.ask(method)["error"]
        assert (told["code"], told["message"]) == (-32603, "internal error")
        assert "division" not in json.dumps(told)
        assert "result" in one.ask("echo")
    assert served.refused == ["internal"]
    assert [name for name, _ in served.errors] == [method]


def test_notifications_are_carried_out_and_not_answered(serve: Callable[..., Served]) -> None:
    """JSON-RPC 2.0 section 4.1, for quick, slow and failing ones; bugs are still reported."""
    served = serve()
    served.open_gate()
    with Asking(served.path) as one:
        for method in ("echo", "gated", "boom", "missing", "nonsense"):
            one.sock.sendall(b'{"jsonrpc":"2.0","method":"%b"}\n' % method.encode())
        assert one.ask("echo")["id"] == "q"
    assert served.begun == 6
    assert served.refused == ["internal"]


# What peers may send.


@pytest.mark.parametrize(
    "junk",
    [
        b"\n",
        b"nonsense\n",
        bytes(range(256)).replace(b"\n", b"") + b"\n",
        b"[" * 100_000 + b"\n",
        b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":NaN}}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n',
        b"\x16\x03\x01\x02\x00\x01\n",
    ],
)
def test_a_line_of_junk_gets_one_error(serve: Callable[..., Served], junk: bytes) -> None:
    """S7: and the connection can still be used."""
    served = serve()
    with Asking(served.path) as one:
        one.sock.sendall(junk)
        assert code(one.receive()) == -32700
        assert "result" in one.ask("echo")


def test_a_stream_of_junk_is_ended(serve: Callable[..., Served]) -> None:
    """S7: after some lines in a row nobody listens; lines between which are good start it anew."""
    served = serve(junk_lines=4)
    with Asking(served.path) as one:
        for _ in range(3):
            one.sock.sendall(b"junk\n" * 3 + line("q", "echo", {}))
            told = [one.receive() for _ in range(4)]
            assert "result" in told[-1]
        one.sock.sendall(b"junk\n" * 1000)
        told = [one.receive() for _ in range(5)]
        assert told[-1] is None
        assert [code(each) for each in told[:4]] == [-32700] * 4
    assert served.refused == ["junk"]


def test_a_complete_line_that_is_too_long_is_refused(serve: Callable[..., Served]) -> None:
    """The bound holds with the newline in sight, and requests before it are answered (S7)."""
    served = serve(line_bytes=100)
    with Asking(served.path) as one:
        one.send(
            (1, "gated", {}), (2, "echo", {}), (3, "echo", {"text": "x" * 100}), (4, "echo", {})
        )
        eventually(lambda: served.refused == ["too_long"])
        served.open_gate()
        assert [one.receive()["id"] for _ in range(3)] == [1, 2, None]
        assert one.receive() is None
    assert served.begun == 2


def test_half_a_request_is_not_waited_for_for_ever(serve: Callable[..., Served]) -> None:
    """S7, S8: a begun request ends in time or its connection does; an idle connection stays."""
    served = serve(half_line_seconds=0.1)
    with Asking(served.path) as idle, Asking(served.path) as half:
        assert "result" in half.ask("echo")
        half.sock.sendall(b'{"jsonrpc"')
        assert half.receive() is None
        assert served.refused == ["half_sent"]
        assert "result" in idle.ask("echo")


def test_lookups_go_on_among_slow_clients(serve: Callable[..., Served]) -> None:
    """S8: a hundred clients that drip are closed one and all, and nobody else notices."""
    served = serve(half_line_seconds=0.2)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Asking(served.path)) for _ in range(100)]
        for each in slow:
            each.sock.sendall(b"{")
        with Asking(served.path) as one:
            for n in range(100):
                assert one.ask("echo", {"n": n})["result"] == {"n": n}
        assert [each.receive() for each in slow] == [None] * 100
    assert served.server.rejected["half_sent"] == 100


def test_each_line_has_its_own_time(serve: Callable[..., Served]) -> None:
    """A line that ends in time does not leave its timer to the next, begun in the same bytes."""
    served = serve(half_line_seconds=SECONDS)
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")
        first = patience(served, one, b'{"jsonrpc":"2.0","id":1,')
        second = patience(served, one, b'"method":"echo"}\n{"jsonrpc"')
        assert first.cancelled()
        assert not second.cancelled()
        one.sock.sendall(b':"2.0","id":2,"method":"echo"}\n')
        assert [one.receive()["id"] for _ in range(2)] == [1, 2]
        eventually(second.cancelled)


def patience(served: Served, one: Asking, sent: bytes) -> asyncio.TimerHandle:
    """Send bytes, and return the timer that then runs."""
    (connection,) = served.server._open
    before = connection._patience
    one.sock.sendall(sent)
    eventually(lambda: connection._patience not in {None, before})
    assert connection._patience is not None
    return connection._patience


def test_the_end_of_the_sending_side_lets_answers_through(serve: Callable[..., Served]) -> None:
    """`printf … | nc -N`: all is answered, the last line needs no newline, then comes the end."""
    served = serve()
    with Asking(served.path) as one:
        one.send(*((n, "echo", {}) for n in range(50)), (50, "gated", {}))
        one.sock.sendall(line(51, "echo", {}).rstrip(b"\n"))
        one.sock.shutdown(socket.SHUT_WR)
        eventually(lambda: served.begun == 52)
        served.open_gate()
        assert [one.receive()["id"] for _ in range(52)] == list(range(52))
        assert one.receive() is None
    eventually(lambda: served.server.connections == 0)


def test_what_is_not_taken_up_is_not_read_either(serve: Callable[..., Served]) -> None:
    """S9: a peer that sends and sends is held back by its own socket, not by our memory."""
    served = serve(in_flight=1)
    with Asking(served.path) as one:
        one.send((0, "gated", {}))
        eventually(lambda: served.begun == 1)
        one.sock.settimeout(0)
        sent, room = 0, select.poll()  # unlike `select`, for descriptors of any number
        room.register(one.sock, select.POLLOUT)
        while room.poll(300):
            sent += one.sock.send(b"x" * 999 + b"\n")
            assert sent < 8 * 1024 * 1024


# What peers may leave unread.


def test_a_peer_that_never_reads_is_given_up(serve: Callable[..., Served]) -> None:
    """S9: its requests are left undone, unsent bytes stay few, and it is closed in time."""
    served = serve(unsent_bytes=65536, stall_seconds=0.2)
    with Asking(served.path) as deaf, Asking(served.path) as other:
        deaf.send(*((n, "big", {"size": 65536}) for n in range(300)))
        assert "result" in other.ask("echo")
        eventually(lambda: served.refused == ["not_reading"])
        eventually(lambda: served.server.connections == 1)
        assert served.begun < 100
        assert "result" in other.ask("echo")


def test_a_peer_that_reads_slowly_gets_everything(serve: Callable[..., Served]) -> None:
    """Flow control loses and reorders nothing (S9)."""
    served = serve(unsent_bytes=10_000)
    with Asking(served.path) as one:
        sender = threading.Thread(
            target=one.send, args=[(n, "big", {"size": 30_000}) for n in range(200)]
        )
        sender.start()
        for n in range(200):
            told = one.receive()
            assert (told["id"], len(told["result"])) == (n, 30_000)
        sender.join(SECONDS)
    assert served.refused == []


def test_an_answer_larger_than_every_buffer_arrives(serve: Callable[..., Served]) -> None:
    """Answers have no bound of their own; the end of the sending side does not cut them."""
    served = serve()
    with Asking(served.path) as one:
        one.send((1, "big", {"size": 5_000_000}))
        one.sock.shutdown(socket.SHUT_WR)
        assert len(one.receive()["result"]) == 5_000_000
        assert one.receive() is None


def test_a_peer_that_vanishes_leaves_nothing_behind(serve: Callable[..., Served]) -> None:
    """S9: mid-reply or with answers unread; what it waited for is cancelled, callbacks are run."""
    served = serve()
    with Asking(served.path) as one:
        one.send((1, "big", {"size": 5_000_000}))
        assert one.sock.recv(1000)
    with Asking(served.path) as one:
        one.send((1, "subscribe", {}), (2, "echo", {}), (3, "gated", {}))
        eventually(lambda: served.begun == 4)
    eventually(lambda: served.server.connections == 0)
    eventually(lambda: served.cancelled == 1)
    assert served.closed == ["subscriber"]
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


# Subscribers.


def test_events_reach_every_subscriber(serve: Callable[..., Served]) -> None:
    """Events are notifications, in order, between answers."""
    served = serve()
    with Asking(served.path) as one, Asking(served.path) as two:
        for each in (one, two):
            assert each.ask("subscribe")["result"] == {}
        for n in range(100):
            event = {"event": "session.updated", "sessionId": str(n), "odd": "\ud800"}
            assert served.tell(event) == [True, True]
        for each in (one, two):
            told = [each.receive() for _ in range(100)]
            assert [held["params"]["sessionId"] for held in told] == [str(n) for n in range(100)]
            assert {held["method"] for held in told} == {"event"}
            assert "result" in each.ask("echo")


def test_a_subscriber_that_lags_is_hung_up_on(serve: Callable[..., Served]) -> None:
    """Events never wait for a reader: who is too far behind is hung up on, and nobody else (S9)."""
    served = serve(lag_events=50, unsent_bytes=10_000)
    with Asking(served.path) as deaf, Asking(served.path) as other:
        for each in (deaf, other):
            each.ask("subscribe")
        sent = 0
        alive = True
        while alive:
            event = {"event": "status.changed", "n": sent, "text": "x" * 5000}
            alive, kept = served.tell(event)
            assert kept
            assert other.receive()["params"]["n"] == sent
            sent += 1
            assert sent < 1000
        assert served.refused == ["lagging"]
        eventually(lambda: served.closed == ["subscriber"])
        assert served.tell({"event": "status.changed"}) == [False, True]
        assert other.receive()["params"] == {"event": "status.changed"}
        assert "result" in other.ask("echo")


def test_a_callback_that_fails_does_not_stop_the_others(serve: Callable[..., Served]) -> None:
    """`on_close` callbacks are all called, once; later ones are called soon."""
    served = serve()
    with Asking(served.path) as one:
        one.ask("subscribe")
        served.do(lambda: served.peers[0].on_close(lambda: served.fail(KeyError("x"))))
        served.do(lambda: served.peers[0].on_close(lambda: served.closed.append("second")))
    eventually(lambda: served.closed == ["subscriber", "second"])
    assert [name for name, _ in served.errors] == ["on_close"]
    served.do(lambda: served.peers[0].on_close(lambda: served.closed.append("late")))
    eventually(lambda: served.closed == ["subscriber", "second", "late"])


# How many, and who.


def test_connections_above_the_cap_are_closed_unanswered(serve: Callable[..., Served]) -> None:
    """S8: the cap holds, is counted, and a place that is left can be taken."""
    served = serve(connections=3)
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(Asking(served.path)) for _ in range(3)]
        assert all("result" in one.ask("echo") for one in inside)
        with Asking(served.path) as outside:
            assert outside.receive() is None
        assert served.refused == ["connections"]
        inside[0].sock.close()
        eventually(lambda: served.server.connections == 2)
        with Asking(served.path) as next_one:
            assert "result" in next_one.ask("echo")


def test_who_is_at_the_other_end() -> None:
    """SO_PEERCRED names this user on a socket pair (S3)."""
    one, two = socket.socketpair()
    with one, two:
        assert peer_uid(one) == os.geteuid()
    with socket.socket(socket.AF_INET) as other_kind:
        assert peer_uid(other_kind) != os.geteuid()


CONNECT_AS_NOBODY = """
import os, socket, sys
one = socket.socket(socket.AF_UNIX)
one.settimeout(10)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try:
    one.connect(sys.argv[1])
    one.sendall(b'{"jsonrpc":"2.0","id":1,"method":"echo"}\\n')
    print("read", one.recv(100))
except (PermissionError, BrokenPipeError, ConnectionResetError) as refused:
    print(type(refused).__name__)
"""


@root_only
def test_another_user_is_turned_away(serve: Callable[..., Served], directory: Path) -> None:
    """S3: EACCES by the modes; with these opened up, closed unanswered by the peer's uid."""
    served = serve()
    command = [sys.executable, "-c", CONNECT_AS_NOBODY, os.fspath(served.path)]
    directory.chmod(0o755)
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert run.stdout == "PermissionError\n"
    served.path.parent.chmod(0o755)
    served.path.chmod(0o666)
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert run.stdout in {"read b''\n", "BrokenPipeError\n", "ConnectionResetError\n"}
    eventually(lambda: served.refused == ["peer"])
    assert served.begun == 0
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


# The file.


def test_our_own_directory_is_closed_others_are_left_alone(
    serve: Callable[..., Served], directory: Path
) -> None:
    """S1: one named indexerd becomes 0700; INDEXERD_SOCKET may point into a home, which stays."""
    for name, mode in (("indexerd", 0o700), ("home", 0o755)):
        (directory / name).mkdir(mode=0o755)
        serve(directory / name / "s.sock")
        assert stat.S_IMODE((directory / name).stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(
    serve: Callable[..., Served], directory: Path, mode: int
) -> None:
    """S1, V10: no socket where others can put theirs, /tmp included."""
    directory.chmod(mode)
    with pytest.raises(AccessError, match="written to by others"):
        serve(directory / "s.sock")
    assert list(directory.iterdir()) == []


@root_only
def test_a_directory_of_somebody_else_is_refused(
    serve: Callable[..., Served], directory: Path
) -> None:
    """S1: not even root puts its socket there."""
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(AccessError, match="another user"):
        serve(directory / "s.sock")


def test_what_cannot_be_made_is_said(serve: Callable[..., Served], directory: Path) -> None:
    """V10: a file where a directory should be is a clear error, not a traceback."""
    (directory / "file").write_text("x")
    with pytest.raises(AccessError, match="cannot make the socket"):
        serve(directory / "file" / "below" / "s.sock")


def test_a_path_that_is_too_long_is_refused(serve: Callable[..., Served], directory: Path) -> None:
    """S5: with the way out as a hint, and nothing made."""
    with pytest.raises(UsageError) as refused:
        serve(directory / "new" / ("x" * 120))
    assert "INDEXERD_SOCKET" in refused.value.hint
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "directory", "fifo", "dangling link", "link to a socket"])
def test_what_is_no_socket_is_never_removed(
    serve: Callable[..., Served], directory: Path, kind: str
) -> None:
    """S4: a symlink, file or directory in the socket's place is refused and left alone."""
    path = directory / "s.sock"
    other = directory / "other"
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(os.fspath(directory / "t.sock"))
        make: dict[str, Callable[[], object]] = {
            "file": lambda: path.write_text("mine"),
            "directory": path.mkdir,
            "fifo": lambda: os.mkfifo(path),
            "dangling link": lambda: path.symlink_to(other),
            "link to a socket": lambda: path.symlink_to(directory / "t.sock"),
        }
        make[kind]()
        before = path.lstat()
        with pytest.raises(AccessError, match="not a socket"):
            serve(path)
        after = path.lstat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert (directory / "t.sock").exists()
    assert not other.exists()


def test_a_removed_socket_is_made_anew(serve: Callable[..., Served]) -> None:
    """S6: the file, or its whole directory, is gone: noticed, made again; connections stay."""
    served = serve()
    with Asking(served.path) as old:
        assert served.run(served.server.check()) is True
        for whole in (False, True):
            served.path.unlink()
            if whole:
                served.path.parent.rmdir()
            assert served.run(served.server.check()) is False
            assert served.run(served.server.check()) is True
            with Asking(served.path) as new:
                assert "result" in new.ask("echo")
            assert "result" in old.ask("echo")
        assert stat.S_IMODE(served.path.lstat().st_mode) == 0o600


def test_a_restart_loses_nobody_at_the_door(serve: Callable[..., Served]) -> None:
    """S6: who has connected and not been let in when the file is made anew is answered."""
    served = serve()

    async def knock_and_restart() -> Asking:
        one = Asking(served.path)
        await served.server.restart()
        return one

    with served.run(knock_and_restart()) as one:
        assert "result" in one.ask("echo")
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


def test_a_replaced_socket_is_noticed_and_not_stolen(serve: Callable[..., Served]) -> None:
    """S6, S4: somebody else's file or live socket stays; once it is gone we are back."""
    served = serve()
    served.path.unlink()
    served.path.write_text("mine")
    for _ in range(2):
        with pytest.raises(AccessError):
            served.run(served.server.check())
    assert served.path.read_text() == "mine"
    served.path.unlink()
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(os.fspath(served.path))
        thief.listen()
        with pytest.raises(AlreadyRunningError):
            served.run(served.server.check())
    assert served.run(served.server.check()) is False
    with Asking(served.path) as one:
        assert "result" in one.ask("echo")


# The end.


def test_closing_removes_our_own_file_only(serve: Callable[..., Served], directory: Path) -> None:
    """What stands in our place by then is not ours to remove."""
    ours = serve()
    ours.run(ours.server.close())
    assert not ours.path.exists()
    replaced = serve(directory / "r.sock")
    replaced.path.unlink()
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(os.fspath(replaced.path))
        replaced.run(replaced.server.close())
        assert stat.S_ISSOCK(replaced.path.lstat().st_mode)


def test_requests_under_way_may_end(serve: Callable[..., Served]) -> None:
    """V1: closing waits for answers for a short time, and sends them in order."""
    served = serve(grace_seconds=SECONDS)
    with Asking(served.path) as one:
        one.send((1, "gated", {}), (2, "echo", {}))
        eventually(lambda: served.begun == 2)
        closing = asyncio.run_coroutine_threadsafe(served.server.close(), served.loop)
        eventually(lambda: not served.path.exists())
        served.open_gate()
        assert one.receive()["result"] == {"then": None}
        assert one.receive()["id"] == 2
        assert one.receive() is None
        closing.result(SECONDS)


def test_requests_that_do_not_end_are_cut_short(serve: Callable[..., Served]) -> None:
    """V1: after that time they are cancelled, and answered with a typed error."""
    served = serve(grace_seconds=0.05)
    with Asking(served.path) as one, Asking(served.path) as deaf:
        one.send((1, "gated", {}))
        deaf.send((1, "big", {"size": 5_000_000}))
        eventually(lambda: served.begun == 2)
        served.run(served.server.close())
        told = one.receive()["error"]
        assert told["data"]["kind"] == "daemon_down"
        assert told["data"]["retryable"] is True
        assert one.receive() is None
        assert served.cancelled == 1
        assert served.server.connections == 0

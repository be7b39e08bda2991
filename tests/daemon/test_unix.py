"""The Unix-socket server, by real sockets: order, bounds, privacy, and a file that is ours.

The servers run on a loop in a thread of the test's own process, so that handlers and counters
can be looked at. Those whose umask, descriptors or memory matter are in test_client.py.
"""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.unix_served import Asking, Served, eventually, line, servers
from tests.short import short_directory


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a short name."""
    with short_directory() as made:
        yield made


@pytest.fixture
def serve(directory: Path) -> Iterator[Callable[..., Served]]:
    """Make servers, and stop them all."""
    yield from servers(directory)


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

"""Peers of the Unix-socket server that are slow, gone, or many; and who hears its events."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.unix_served import Asking, Served, eventually, servers
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

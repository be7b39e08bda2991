"""Connections to the web view: who says nothing, or takes nothing, keeps nobody out."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from indexerd.web.connections import Complaints
from indexerd.web.serve import find_running
from tests.web.web_server import (
    Server,
    ask,
    connect,
    entered,
    read,
    request,
    started,
    status,
)

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for those tests that leave it as it is."""
    with started(tmp_path_factory.mktemp("state")) as one:
        yield one


def test_who_does_not_ask_is_hung_up_on(tmp_path: Path) -> None:
    """Who sends nothing, half a head, or byte after byte; before a request and after one."""
    with started(tmp_path, "short") as server:
        for said in (b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"G"):
            with connect(server.url) as sock:
                sock.sendall(said)
                assert sock.recv(1) == b""
        with connect(server.url) as sock, suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(10**6):  # it is the sending that fails, once it was hung up
                sock.sendall(b"X")
                if select.select([sock], [], [], 0.01)[0]:
                    assert sock.recv(1) == b""
                    break
            else:
                pytest.fail("it listens for ever")
        with connect(server.url) as sock:
            sock.sendall(request(f"{server.url}/hello").replace(b"Connection: close\r\n", b""))
            assert status(read(sock, b"\r\n\r\n")) == 400
            sock.sendall(b"GET /hello HTTP/1.1\r\n")
            assert read(sock).count("HTTP/1.1") == 0
        assert find_running(server.where) is not None


def taken(sock: socket.socket) -> int:
    """How many bytes come, until it is hung up on."""
    count = 0
    with suppress(ConnectionResetError):
        while found := len(sock.recv(2**20)):
            count += found
    return count


def test_who_does_not_take_an_answer_is_cut_off(tmp_path: Path) -> None:
    """However much of it is left; who takes it slowly gets all of it."""
    with started(tmp_path, "short") as server:
        cookie = entered(server)
        with connect(server.url) as deaf, connect(server.url) as other:
            deaf.sendall(request(f"{server.url}/large", cookie) * 3)
            other.sendall(request(f"{server.url}/large", cookie))
            assert taken(other) > 2**24
            for _ in range(5):  # as a clock: each is hung up on after a while
                with connect(server.url) as silent:
                    assert taken(silent) == 0
            assert taken(deaf) < 2**24


def test_an_answer_may_take_longer_than_a_question(tmp_path: Path) -> None:
    """Who waits for events is not hung up on."""
    with started(tmp_path, "short") as server, connect(server.url) as events:
        events.sendall(request(f"{server.url}/events", entered(server)))
        assert '"daemon"' in read(events, b'"daemon"')
        with connect(server.url) as silent:
            assert silent.recv(1) == b""
        assert not select.select([events], [], [], 0)[0]
        assert server.end()[0] == 0
        assert "event" not in read(events)


def test_who_idles_makes_room(tmp_path: Path) -> None:
    """Strangers that hold every place turn nobody away; open pages are not their price."""
    with started(tmp_path, "few") as server, ExitStack() as stack:
        cookie = entered(server)
        pages = [stack.enter_context(connect(server.url)) for _ in range(2)]
        for page in pages:
            page.sendall(request(f"{server.url}/events", cookie))
            assert '"daemon"' in read(page, b'"daemon"')
        idle = [stack.enter_context(connect(server.url)) for _ in range(20)]
        assert ask(server.url, cookie).endswith("page")
        assert all(_hung_up(one) for one in idle[:14])
        assert not any(select.select(pages, [], [], 0)[0])
        more = [stack.enter_context(connect(server.url)) for _ in range(6)]
        for page in more:
            page.sendall(request(f"{server.url}/events", cookie))
            assert '"daemon"' in read(page, b'"daemon"')
        assert _hung_up(stack.enter_context(connect(server.url)))  # every place is in use


def _hung_up(sock: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        return sock.recv(1) == b""
    return True


def test_hundreds_who_say_nothing_turn_nobody_away(server: Server) -> None:
    """Real connections, more than there are places."""
    cookie = entered(server)
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(server.url))
        assert ask(server.url, cookie).endswith("page")
        assert find_running(server.where) is not None


def test_a_loop_out_of_files_complains_once_a_minute() -> None:
    """One line, which says what it is; others of its kind are left out."""
    told, now = list[str](), [0.0]
    complain = Complaints(lambda bad: told.append(str(bad)), lambda: now[0])
    loop = asyncio.new_event_loop()
    try:
        for _ in range(2000):
            complain(loop, {"message": "accept", "exception": OSError(errno.EMFILE, "too many")})
        assert told == ["too many files are open"]
        now[0] = 61.0
        complain(loop, {"message": "something"})
        assert len(told) == 2
    finally:
        loop.close()

"""The web view's server, as a process: where it listens, who finds it, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from indexerd.errors import UsageError
from indexerd.web.serve import bound, find_running, link
from indexerd.web.web_place import Running, announce, announced, put_page
from tests.web.web_server import (
    SECONDS,
    Server,
    ask,
    connect,
    entered,
    places_of,
    read,
    request,
    server_of,
    started,
    status,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for those tests that leave it as it is."""
    with started(tmp_path_factory.mktemp("state")) as one:
        yield one


# -- a server that runs --------------------------------------------------------------------------


def test_a_server_is_found_and_lets_a_browser_in_once(server: Server) -> None:
    """The address that `indexerd web` gives leads to a cookie, and to the page asked for."""
    running = server_of(server)
    assert running.url == server.url
    assert running.pid == server.process.pid
    address = link(running, "/?q=a%20b")
    told = ask(address)
    assert status(told) == 303
    assert f"location: {server.url}/?q=a%20b\r\n" in told
    assert status(ask(address)) == 403
    assert status(ask(server.url)) == 403
    assert ask(server.url, entered(server)).endswith("page")


def test_without_a_daemon_it_reads_what_is_stored(server: Server) -> None:
    """A page that only looks works all the same."""
    told = ask(f"{server.url}/read", entered(server))
    assert told.endswith("['list', {'limit': 1}]")


def test_events_begin_with_the_state_of_the_daemon(server: Server) -> None:
    """As server-sent events that nobody keeps."""
    end = b"\r\n\r\n"
    cookie = entered(server)
    told = ask(f"{server.url}/events", cookie, until=b'{"event": "daemon", "up": false}' + end)
    assert status(told) == 200
    assert "content-type: text/event-stream" in told
    assert "cache-control: no-store" in told
    head = ask(f"{server.url}/events", cookie, method="HEAD")
    assert status(head) == 200


@pytest.mark.parametrize(
    "asked",
    [
        b"rubbish\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    ],
    ids=["rubbish", "no host", "proxy", "long header", "long path", "length"],
)
def test_what_is_no_request_of_a_browser_is_refused(server: Server, asked: bytes) -> None:
    """With a status of 4xx, and the server goes on."""
    with connect(server.url) as sock:
        with suppress(OSError):  # it hangs up before it has read everything
            sock.sendall(asked)
        with suppress(ConnectionResetError):
            assert 400 <= status(read(sock, b"\r\n\r\n")) < 500
    assert find_running(server.where) is not None


def test_an_address_that_was_bound_is_refused(server: Server) -> None:
    """With a word on what to do."""
    with pytest.raises(UsageError, match="in use") as caught, bound(urlsplit(server.url).netloc):
        pass
    assert "port 0" in caught.value.hint


# -- where it listens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:0",
        "[::]:0",
        "8.8.8.8:80",
        "example.com:80",
        "127.0.0.1",
        ":0",
        "",
        "127.0.0.1:99999",
    ],
)
def test_it_listens_on_this_machine_alone(listen: str) -> None:
    """Nothing that another machine could reach, and nothing half said."""
    with pytest.raises(UsageError), bound(listen):
        pass


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "127.0.0.9:0", "[::1]:0"])
def test_every_loopback_address_will_do(listen: str) -> None:
    """Port 0 is a free one."""
    if listen.startswith("[") and not _has_ipv6():
        pytest.skip("no IPv6 here")
    with bound(listen) as sock:
        assert sock.getsockname()[1] > 0
        with socket.create_connection(sock.getsockname()[:2], SECONDS):
            pass


def _has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::1", 0))
        return True
    return False


# -- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_whole(tmp_path: Path, number: signal.Signals) -> None:
    """Exit code 0, open streams ended, sessions closed, its place taken back, and not a word.

    Neither of a token that was used, nor of a defect: that one is told to `on_error`.
    """
    with started(tmp_path) as server:
        assert len(announced(tmp_path)) == 1
        cookie = entered(server)
        put_page(tmp_path, f"{server.url}/?token=unused")
        assert status(ask(f"{server.url}/bad?token=abcdef", cookie)) == 303
        assert status(ask(f"{server.url}/bad", cookie)) == 500
        with connect(server.url) as events:
            events.sendall(request(f"{server.url}/events", cookie))
            assert status(read(events, b'"daemon"')) == 200
            code, out, err = server.end(number)
            assert not read(events).strip("\r\n0")
        assert (code, out, err) == (0, "RuntimeError\nended\n", "")
        assert list(tmp_path.iterdir()) == []


def test_an_answer_that_takes_too_long_does_not_keep_it(tmp_path: Path) -> None:
    """It is cut short, and that is not an error to be told to anybody."""
    with started(tmp_path) as server, connect(server.url) as slow:
        slow.sendall(request(f"{server.url}/slow", entered(server)))
        assert find_running(server.where) is not None  # which was asked later
        assert server.end(signal.SIGHUP) == (0, "ended\n", "")


def test_a_child_ends_with_its_daemon(tmp_path: Path) -> None:
    """When its standard input does: that is how it learns that its parent died."""
    with started(tmp_path, "child") as server:
        assert find_running(server.where) is not None
        out, err = server.process.communicate(timeout=SECONDS)  # which closes its input
        assert (server.process.returncode, out, err) == (0, "ended\n", "")
        assert announced(tmp_path) == []


def test_a_server_that_was_killed_is_not_found(tmp_path: Path) -> None:
    """Kill -9 leaves its place behind, which leads nowhere; the next start clears it away."""
    with started(tmp_path) as first:
        stale = f"web-{first.process.pid}.json"
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert (tmp_path / stale).exists()
    assert find_running(first.where) is None
    with started(tmp_path) as second:
        assert server_of(second).pid == second.process.pid
        assert not (tmp_path / stale).exists()


def test_a_cookie_ends_with_its_server(tmp_path: Path) -> None:
    """Who listened on the port meanwhile, and was shown it, has nothing that is good later."""
    with started(tmp_path) as first:
        cookie, port = entered(first), urlsplit(first.url).port
        assert status(ask(first.url, cookie)) == 200
        first.end()
    with started(tmp_path, "alone", f"127.0.0.1:{port}") as second:
        assert second.url == first.url
        assert status(ask(second.url, cookie)) == 403
        told = ask(link(server_of(second)))
        assert "Max-Age=" in told  # whose port is the same at each start


def test_of_two_servers_the_one_that_still_runs_is_found(tmp_path: Path) -> None:
    """Whichever of them ends: the other one has said where it is, too."""
    with started(tmp_path) as first:
        with started(tmp_path) as second:
            assert server_of(second).url == second.url
            assert second.end()[0] == 0
        assert server_of(first).url == first.url
        with started(tmp_path) as third:
            assert first.end()[0] == 0
            assert server_of(third).url == third.url


def test_the_page_that_leads_there_is_removed_when_it_has_done_so(tmp_path: Path) -> None:
    """By the server that it leads to: what is left would be a used token, but why leave it."""
    with started(tmp_path) as server:
        address = link(server_of(server), "/?q=a&b")
        path = put_page(tmp_path, address)
        assert status(ask(f"{server.url}/?token=another")) == 403
        assert path.exists()
        assert status(ask(address)) == 303
        assert not path.exists()


# -- strangers -----------------------------------------------------------------------------------


@contextmanager
def stranger(answer: Callable[[str], bytes]) -> Iterator[tuple[str, list[str]]]:
    """Somebody else's server on a port, and all that it was ever asked."""
    asked: list[str] = []

    def run() -> None:
        with suppress(OSError):
            peer = listener.accept()[0]
            with closing(peer):
                peer.settimeout(SECONDS)
                asked.append(peer.recv(65536).decode())
                peer.sendall(answer(asked[-1]))

    with socket.socket() as listener:
        listener.settimeout(SECONDS)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=run)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(SECONDS)


def told(held: Any) -> bytes:
    """An answer with a JSON document."""
    return b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(held).encode()


def test_a_stranger_on_the_port_gets_no_token(tmp_path: Path, server: Server) -> None:
    """It cannot prove that it is ours: not by a guess, and not by asking the real one."""

    def relayed(asked: str) -> bytes:
        challenge = re.search(r"challenge=([^ ]+)", asked)
        assert challenge
        return ask(f"{server.url}/hello?challenge={challenge[1]}").encode()

    (real,) = announced(server.state)
    answers: list[Callable[[str], bytes]] = [
        relayed,
        lambda _: told({"program": "indexerd", "version": "1", "proof": "0" * 64}),
        lambda _: told({"proof": None}),
        lambda _: told([1]),
        lambda _: b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 10_000,
        lambda _: b"x" * 100_000,
        lambda _: b"",
    ]
    for answer in answers:
        with stranger(answer) as (url, asked):
            announce(tmp_path, Running(url, os.getpid(), real.boot))
            assert find_running(places_of(tmp_path)) is None
        assert len(asked) == 1
        assert "token" not in asked[0]


def test_a_place_that_others_could_have_written_is_not_asked(
    tmp_path: Path, server: Server
) -> None:
    """It counts as none, though a server of ours is there."""
    (real,) = announced(server.state)
    announce(tmp_path, real)
    assert find_running(places_of(tmp_path)) == real
    (tmp_path / f"web-{real.pid}.json").chmod(0o666)
    assert find_running(places_of(tmp_path)) is None

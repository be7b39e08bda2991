"""The web view's server, as a process: where it listens, who finds it, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from indexerd.errors import UsageError
from indexerd.io.web_place import Running, announce, announced, lasting_key
from indexerd.paths import Places, places
from indexerd.surfaces.web.serve import bound, find_running, link

ROOT = Path(__file__).parents[2]
SECONDS = 30.0  # after which a test gives up

SERVER = """
import asyncio, os, sys
from pathlib import Path
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from indexerd.paths import places
from indexerd.surfaces.web.desk import Desk
from indexerd.surfaces.web.serve import serve

home, mode = Path(sys.argv[1]), sys.argv[2]
where = places(os.environ, home=home)
desk = Desk(where, os.environ, home=home, stored=lambda method, params: [method, params])

def site(desk, pages, hub):
    async def page(request):
        return PlainTextResponse("page")
    async def read(request):
        return PlainTextResponse(str(await desk.read("list", {"limit": 1})))
    async def slow(request):
        await asyncio.sleep(600)
    async def defect(request):
        raise RuntimeError("of ours")
    routes = [Route("/", page), Route("/read", read), Route("/slow", slow), Route("/bad", defect)]
    return routes, [lambda: print("ended", flush=True)]

def failed(error):
    print(type(error).__name__, flush=True)

ready = lambda running: print(running.url, flush=True)
sys.exit(serve(desk, site, child=mode == "child", on_ready=ready, on_error=failed))
"""


def environment(state: Path) -> dict[str, str]:
    """Hardly any, and a place for the socket where nobody listens."""
    nowhere = str(state / "no.sock")
    return {"HOME": str(state), "INDEXERD_STATE_DIR": str(state), "INDEXERD_SOCKET": nowhere}


def places_of(state: Path) -> Places:
    """The places of that state directory."""
    return places(environment(state), home=state)


@dataclass
class Server:
    """A server that runs."""

    state: Path
    process: subprocess.Popen[str]
    url: str

    @property
    def where(self) -> Places:
        """Its places."""
        return places_of(self.state)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """End it, by a signal; its exit code, and what it said."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@contextmanager
def started(state: Path, mode: str = "alone") -> Iterator[Server]:
    """A server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SERVER, state, mode],
        cwd=ROOT,
        env=environment(state),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.stderr.read() if process.stderr else ""
        yield Server(state, process, url)
    finally:
        late.cancel()
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for those tests that leave it as it is."""
    with started(tmp_path_factory.mktemp("state")) as one:
        yield one


def connect(url: str) -> socket.socket:
    """A connection to a server."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), SECONDS)


def ask(url: str, *headers: str, method: str = "GET", until: bytes = b"") -> str:
    """Ask for an address, and read the answer to its end, or as far as `until`."""
    with connect(url) as sock:
        sock.sendall(request(url, *headers, method=method))
        return read(sock, until)


def request(url: str, *headers: str, method: str = "GET") -> bytes:
    """A request, as it is sent."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}"
    lines = (f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", *headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read(sock: socket.socket, until: bytes = b"") -> str:
    """What comes, to its end or as far as `until`."""
    held = b""
    while not (until and until in held) and (chunk := sock.recv(65536)):
        held += chunk
    return held.decode()


def entered(server: Server) -> str:
    """A header with a cookie, got by a link."""
    told = ask(link(server_of(server)))
    found = re.search(r"(?mi)^set-cookie: ([^;]+);", told)
    assert found, told
    return f"Cookie: {found[1]}"


def server_of(server: Server) -> Running:
    """What `indexerd web` finds."""
    found = find_running(server.where)
    assert found is not None
    return found


def status(told: str) -> int:
    """An answer's status."""
    return int(told.split(" ", 2)[1])


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
        assert announced(tmp_path) is not None
        cookie = entered(server)
        assert status(ask(f"{server.url}/bad?token=abcdef", cookie)) == 303
        assert status(ask(f"{server.url}/bad", cookie)) == 500
        with connect(server.url) as events:
            events.sendall(request(f"{server.url}/events", cookie))
            assert status(read(events, b'"daemon"')) == 200
            code, out, err = server.end(number)
            assert not read(events).strip("\r\n0")
        assert (code, out, err) == (0, "RuntimeError\nended\n", "")
        assert [one.name for one in tmp_path.iterdir()] == ["web.key"]


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
        assert announced(tmp_path) is None


def test_cookies_outlive_a_start_and_a_server_that_was_killed_is_not_found(tmp_path: Path) -> None:
    """Kill -9 leaves its place behind, which then leads nowhere; the key of cookies stays."""
    with started(tmp_path) as first:
        key = lasting_key(tmp_path)
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert announced(tmp_path) is not None
    assert find_running(first.where) is None
    assert lasting_key(tmp_path) == key


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

    real = announced(server.state)
    assert real is not None
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
            announce(tmp_path, Running(url, 1, real.boot))
            assert find_running(places_of(tmp_path)) is None
        assert len(asked) == 1
        assert "token" not in asked[0]


def test_a_place_that_others_could_have_written_is_not_asked(
    tmp_path: Path, server: Server
) -> None:
    """It counts as none, though a server of ours is there."""
    real = announced(server.state)
    assert real is not None
    announce(tmp_path, real)
    assert find_running(places_of(tmp_path)) == real
    (tmp_path / "web.json").chmod(0o666)
    assert find_running(places_of(tmp_path)) is None

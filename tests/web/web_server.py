"""A web view's server as a process, and how it is asked."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from indexerd.paths import Places, places
from indexerd.web.serve import find_running, link
from indexerd.web.web_place import Running

ROOT = Path(__file__).parents[2]
SECONDS = 30.0  # after which a test gives up

SERVER = """
import asyncio, os, sys
from pathlib import Path
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from indexerd.paths import places
from indexerd.web import connections
from indexerd.web.desk import Desk
from indexerd.web.connections import Complaints
from indexerd.web.serve import serve

home, mode = Path(sys.argv[1]), sys.argv[2]
if mode == "short":
    connections.HEAD_SECONDS = connections.STALL_SECONDS = 0.3
if mode == "few":
    connections.CONNECTIONS_MAX = 8
where = places(os.environ, home=home)
desk = Desk(where, os.environ, home=home, stored=lambda method, params: [method, params])

def site(desk, pages, hub):
    async def page(request):
        return PlainTextResponse("page")
    async def read(request):
        return PlainTextResponse(str(await desk.read("list", {"limit": 1})))
    async def slow(request):
        await asyncio.sleep(600)
    async def large(request):
        return PlainTextResponse(b"x" * 2**24)
    async def defect(request):
        raise RuntimeError("of ours")
    routes = [Route("/", page), Route("/read", read), Route("/slow", slow), Route("/bad", defect)]
    routes += [Route("/large", large)]
    return routes, [lambda: print("ended", flush=True)]

def failed(error):
    print(type(error).__name__, flush=True)

ready = lambda running: print(running.url, flush=True)
child, listen = mode == "child", sys.argv[3]
sys.exit(serve(desk, site, listen=listen, child=child, on_ready=ready, on_error=failed))
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
def started(state: Path, mode: str = "alone", listen: str = "127.0.0.1:0") -> Iterator[Server]:
    """A server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SERVER, state, mode, listen],
        cwd=ROOT,
        env=environment(state),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(4 * SECONDS, process.kill)  # it may serve a whole file of tests
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

"""The web view's server: listens on this machine alone, says where, and ends when it is told to.

In: where to listen, and what makes the pages. Out: the exit code, once a signal came, or, for the
daemon's child, once the daemon is gone. `find_running` and `link` are the other side: they find
the server that runs, have it prove that it is ours before it gets to see a token, and make an
address that lets a browser in once.

What surprised us: uvicorn waits for open streams, and passes on the signal that ended it. So the
hub ends the streams first, and the signals are ours. sse-starlette waits for uvicorn's signals in
vain here, and need not: its streams end with the hub.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import uvicorn
from starlette.routing import BaseRoute

from indexerd.daemon.process import raise_file_limit
from indexerd.errors import AccessError, IndexerdError, UsageError
from indexerd.paths import Places, socket_places
from indexerd.settings import listen_address
from indexerd.web.app import make_app
from indexerd.web.connections import Complaints, Connection
from indexerd.web.desk import Desk
from indexerd.web.guard import HEADERS_MAX, TARGET_MAX, Guard
from indexerd.web.hub import Hub
from indexerd.web.pages import Pages
from indexerd.web.token import KEY_BYTES, NONCE_BYTES, good_proof, make_token
from indexerd.web.web_place import Running, announce, announced, drop_page, withdraw

_BACKLOG = 128  # connections that wait to be accepted
SWITCH_SECONDS = 0.0005  # a session that is read lets the loop, and other pages' styles, go first
GRACE_SECONDS = 2  # for answers under way, at the end
PROOF_SECONDS = 2.0  # for each running server to prove that it is ours
_PROOF_MAX = 16 * 1024  # bytes of an answer
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HTTP_PORT = 80

# The pages' routes, and what is to be called at the end.
Site: TypeAlias = Callable[
    [Desk, Pages, Hub], tuple[Sequence[BaseRoute], Sequence[Callable[[], None]]]
]


def serve(
    desk: Desk,
    site: Site,
    *,
    listen: str = "127.0.0.1:0",
    child: bool = False,
    on_ready: Callable[[Running], None] = lambda _: None,
    on_error: Callable[[BaseException], None] = lambda _: None,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; the exit code is 0 then.

    `listen` is `HOST:PORT` on loopback; port 0 is a free one. A `child` ends, too, when its
    standard input does. `on_ready` is told once it listens; `on_error` of what no page foresaw.
    UsageError for an address that cannot be used, AccessError or WriteError where the state
    directory cannot.
    """
    raise_file_limit()
    state_dir = desk.where.state_dir
    with bound(listen) as sock:
        running = Running(_url(sock), os.getpid(), secrets.token_bytes(KEY_BYTES))
        guard = make_guard(running, on_error, kept=listen_address(listen)[1] != 0)
        guard.on_admitted = partial(drop_page, state_dir)

        def ready() -> None:
            announce(state_dir, running)
            on_ready(running)

        try:
            asyncio.run(_run(desk, site, guard, sock, ready, child=child))
        finally:
            withdraw(state_dir, running)
            drop_page(state_dir, f"{running.url}/")
    return 0


def make_guard(
    running: Running, on_error: Callable[[BaseException], None], *, kept: bool = False
) -> Guard:
    """The guard of a server at that address; `kept` where it is the same at each start."""
    parts = urlsplit(running.url)
    port = parts.port or _HTTP_PORT
    names = {parts.netloc}
    if parts.hostname in {"127.0.0.1", "::1"}:  # what `localhost` may lead to
        names.add(f"localhost:{port}")
    if port == _HTTP_PORT:  # browsers leave it away
        names |= {one.removesuffix(f":{port}") for one in names}
    return Guard(
        running.url, frozenset(names), port, boot=running.boot, kept=kept, on_error=on_error
    )


def find_running(where: Places) -> Running | None:
    """A server of this state directory that runs now, and has proved it; the latest of several."""
    for running in announced(where.state_dir):
        challenge = secrets.token_urlsafe(NONCE_BYTES)
        proof = _asked(running.url, challenge)
        if good_proof(proof, running.boot, challenge, running.url):
            return running
    return None


def link(running: Running, path: str = "/") -> str:
    """An address that lets a browser in, once and soon; `path` may have a query."""
    token = make_token(running.boot, secrets.token_bytes(NONCE_BYTES), running.url, time.time())
    return f"{running.url}{path}{'&' if '?' in path else '?'}token={token}"


@contextmanager
def bound(listen: str) -> Iterator[socket.socket]:
    """A socket that listens there; it is closed at the end."""
    try:
        host, port = listen_address(listen)
    except ValueError as bad:
        raise UsageError(f"cannot listen on {listen}: {bad}") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1" if host == "localhost" else host, port))
            sock.listen(_BACKLOG)
        except OSError as bad:
            raise _unusable(listen, bad) from None
        yield sock


def _unusable(listen: str, bad: OSError) -> IndexerdError:
    told = f"cannot listen on {listen}: {bad.strerror}"
    if bad.errno == errno.EACCES:
        return AccessError(told, hint="use a port above 1023")
    return UsageError(told, hint="use another port; port 0 is a free one")


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if sock.family == socket.AF_INET6 else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Says when it listens, and leaves signals to us."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # no generator
        """Nothing: see `_run`."""
        return nullcontext()


async def _run(
    desk: Desk,
    site: Site,
    guard: Guard,
    sock: socket.socket,
    ready: Callable[[], None],
    *,
    child: bool,
) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    hub, pages = Hub(socket_places(desk.where, desk.env)), Pages()
    routes, at_end = site(desk, pages, hub)
    app = make_app(desk, hub, pages, guard, more=routes, at_end=at_end)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="none",
        lifespan="on",
        workers=1,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=HEADERS_MAX + TARGET_MAX,
    )
    server = _Server(config, ready)

    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        hub.close()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(Complaints(guard.on_error))
    for one in _SIGNALS:
        loop.add_signal_handler(one, stop)
    if child:
        _at_end_of_input(lambda: loop.call_soon_threadsafe(stop))
    await server.serve([sock])
    if not server.started and not stopped:
        raise IndexerdError("the web view could not be started")


def _at_end_of_input(stop: Callable[[], object]) -> None:
    """Call once standard input ends, from a thread that nobody waits for."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        with suppress(RuntimeError):  # the loop has ended by itself
            stop()

    threading.Thread(target=wait, name="indexerd-web-parent", daemon=True).start()


def _asked(url: str, challenge: str) -> str:
    """Ask whoever listens there for a proof, as an own request: no proxy, no patience."""
    parts = urlsplit(url)
    line = f"GET /hello?challenge={challenge} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
    deadline = time.monotonic() + PROOF_SECONDS
    held = bytearray()
    with suppress(OSError, ValueError):
        place = (parts.hostname or "", parts.port or _HTTP_PORT)
        with socket.create_connection(place, PROOF_SECONDS) as sock:
            sock.sendall(f"{line}Connection: close\r\n\r\n".encode())
            while (left := deadline - time.monotonic()) > 0 and len(held) < _PROOF_MAX:
                sock.settimeout(left)
                chunk = sock.recv(4096)
                if not chunk:
                    break
                held += chunk
    with suppress(ValueError, RecursionError):
        told: Any = json.loads(held.partition(b"\r\n\r\n")[2])
        if isinstance(told, dict) and isinstance(proof := told.get("proof"), str):
            return proof
    return ""

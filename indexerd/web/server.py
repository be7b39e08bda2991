"""The web view's server: listens on loopback, says where in the state directory, ends on a signal.

`web-PID.json` (0600) says where the server of that process listens; the process holds a lock on it,
so a file that a killed server left is known by being free. `web-open.html` (0600) leads a browser
to an address with its token, which so is in no process's arguments, where every user of the machine
could read it; it goes once it has let somebody in.

uvicorn waits for open streams and passes on the signal that ended it. So the streams are ended
first, and the signals are handled here.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path

import uvicorn

from indexerd.daemon.process import make_private, raise_file_limit
from indexerd.errors import AccessError, IndexerdError, UsageError, WriteError
from indexerd.settings import listen_address
from indexerd.web.app import make_app
from indexerd.web.auth import Auth, issue_token
from indexerd.web.daemon import Daemon

OPEN_PAGE = "web-open.html"
GRACE_SECONDS = 2  # for answers under way, at the end
CONNECTIONS_MAX = 256
SWITCH_SECONDS = 0.0005  # a session that is read lets the event loop go first
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>indexerd</title>
</head>
<body><p><a href="{0}">Open the web view</a></p></body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs."""

    url: str
    pid: int


def serve(
    daemon: Daemon,
    *,
    listen: str = "127.0.0.1:0",
    child: bool = False,
    on_ready: Callable[[Running], None] = lambda _: None,
    on_error: Callable[[BaseException], None] = lambda _: None,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; the exit code is 0 then.

    `listen` is `HOST:PORT` on loopback; port 0 is a free one. A `child` ends with its standard
    input, too. UsageError for an address that cannot be used.
    """
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    state_dir = daemon.where.state_dir
    make_private(state_dir)
    with _bound(listen) as sock:
        host, port = sock.getsockname()[:2]
        named = f"[{host}]" if sock.family == socket.AF_INET6 else host
        running = Running(f"http://{named}:{port}", os.getpid())
        auth = Auth(
            running.url,
            state_dir,
            keep=listen_address(listen)[1] != 0,
            on_admitted=lambda token: _drop_page(state_dir, token),
            on_error=on_error,
        )
        new, path = (state_dir / f"{dot}web-{running.pid}.json" for dot in (".", ""))
        with _private(new) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, json.dumps({"url": running.url, "pid": running.pid}).encode())

            def ready() -> None:
                new.replace(path)
                on_ready(running)

            try:
                asyncio.run(_run(daemon, auth, sock, ready, child=child))
            finally:
                for one in (new, path):
                    one.unlink(missing_ok=True)
                _drop_page(state_dir, f"{running.url}/")
    return 0


def find_running(state_dir: Path) -> Running | None:
    """A server of this state directory that runs now, the latest of several."""
    found: list[tuple[int, Running]] = []
    for path in state_dir.glob("web-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                known = json.loads(file.read(4096))
                running = Running(str(known["url"]), int(known["pid"]))
                found.append((os.fstat(file.fileno()).st_mtime_ns, running))
            else:  # its process was killed
                path.unlink()
    return max(found, key=lambda one: one[0])[1] if found else None


def login_link(state_dir: Path, running: Running, path: str = "/") -> str:
    """An address that lets a browser in, once and soon; `path` may have a query."""
    token = issue_token(state_dir, running.url)
    return f"{running.url}{path}{'&' if '?' in path else '?'}token={token}"


def open_page(state_dir: Path, address: str) -> Path:
    """Write the page that leads a browser to an address."""
    path = state_dir / OPEN_PAGE
    new = path.with_name(f".{OPEN_PAGE}.{os.getpid()}")
    with _private(new) as file:
        os.write(file, _PAGE.format(escape(address)).encode("utf-8", "replace"))
    new.replace(path)
    return path


def _drop_page(state_dir: Path, words: str) -> None:
    """Remove the page, if these words are in its address: another server's stays."""
    path = state_dir / OPEN_PAGE
    with suppress(OSError, ValueError):
        if escape(words) in path.read_text():
            path.unlink()


@contextmanager
def _private(path: Path) -> Iterator[int]:
    """A new file of ours, open for writing."""
    try:
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as bad:
        kind = AccessError if isinstance(bad, PermissionError) else WriteError
        raise kind(f"cannot write {path}: {bad.strerror}") from None
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _bound(listen: str) -> Iterator[socket.socket]:
    try:
        host, port = listen_address(listen)
    except ValueError as bad:
        raise UsageError(f"cannot listen on {listen}: {bad}") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1" if host == "localhost" else host, port))
            sock.listen(128)
        except OSError as bad:
            message = f"cannot listen on {listen}: {bad.strerror}"
            if bad.errno == errno.EACCES:
                raise AccessError(message, hint="use a port above 1023") from None
            raise UsageError(message, hint="use another port; port 0 is a free one") from None
        yield sock


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
    daemon: Daemon, auth: Auth, sock: socket.socket, ready: Callable[[], None], *, child: bool
) -> None:
    config = uvicorn.Config(
        make_app(daemon, auth),
        http="h11",
        ws="none",
        loop="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server, loop = _Server(config, ready), asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        daemon.close()
        server.should_exit = True

    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(one, stop)
    if child:  # at the end of standard input, by a thread that nobody waits for

        def wait() -> None:
            with suppress(OSError, RuntimeError):  # the loop may have ended by itself
                while os.read(0, 4096):
                    pass
                loop.call_soon_threadsafe(stop)

        threading.Thread(target=wait, name="indexerd-web-parent", daemon=True).start()
    await server.serve([sock])
    if not server.started and not stopped.is_set():
        raise IndexerdError("the web view could not be started")

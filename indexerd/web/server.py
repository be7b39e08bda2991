"""The web view's server: listens on loopback, says where in the state directory, ends on a signal.

`web-PID.json` (0600) says where the server of that process listens; the process holds a lock on it,
so a file that a killed server left is known by being free.

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
from dataclasses import asdict, dataclass
from pathlib import Path

import uvicorn

from indexerd.daemon.process import make_private, raise_file_limit
from indexerd.errors import AccessError, IndexerdError, UsageError, WriteError
from indexerd.settings import listen_address
from indexerd.web.app import make_app
from indexerd.web.auth import Auth, drop_page
from indexerd.web.daemon_client import Daemon

GRACE_SECONDS = 2  # for answers under way, at the end
CONNECTIONS_MAX = 256
SWITCH_SECONDS = 0.0005  # a session that is read lets the event loop go first


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
        keep = listen_address(listen)[1] != 0
        auth = Auth(running.url, state_dir, keep=keep, on_error=on_error)
        with _announced(state_dir, running) as announce:

            def ready() -> None:
                announce()
                on_ready(running)

            asyncio.run(_run(daemon, auth, sock, ready, child=child))
        drop_page(state_dir, f"{running.url}/")
    return 0


def find_running(state_dir: Path) -> Running | None:
    """A server of this state directory that runs now, the latest of several."""
    found: list[tuple[int, Running]] = []
    for path in state_dir.glob("web-*.json"):
        with suppress(OSError, ValueError, TypeError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                running = Running(**json.loads(file.read(4096)))
                found.append((os.fstat(file.fileno()).st_mtime_ns, running))
            else:  # its process was killed
                path.unlink()
    return max(found, key=lambda one: one[0])[1] if found else None


@contextmanager
def _announced(state_dir: Path, running: Running) -> Iterator[Callable[[], Path]]:
    """Gives what makes the server known, by a file that is locked before it has its name."""
    new, path = (state_dir / f"{dot}web-{running.pid}.json" for dot in (".", ""))
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as bad:
        kind = AccessError if isinstance(bad, PermissionError) else WriteError
        raise kind(f"cannot write {new}: {bad.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(asdict(running)).encode())
        yield lambda: new.rename(path)
    finally:
        os.close(file)
        for one in (new, path):
            one.unlink(missing_ok=True)


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
    """Says when it listens, and leaves signals to `_run`."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # no generator
        """Nothing."""
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

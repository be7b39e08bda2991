"""The web view's server: listens on loopback, says where in the state directory, ends on a signal.

`web-PID.json` (0600) says where the server of that process listens; the process holds a lock on it,
so a file that a killed server left is known by being free.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import uvicorn

from indexerd.daemon.process import make_private, raise_file_limit
from indexerd.errors import AccessError, UsageError, WriteError
from indexerd.settings import listen_address
from indexerd.web.app import make_app
from indexerd.web.auth import Auth
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
    listen: str,
    child: bool,
    on_ready: Callable[[Running], None],
    on_error: Callable[[Exception], None],
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; the exit code is 0 then.

    `listen` is `HOST:PORT` on loopback; port 0 is a free one. A `child` ends with its standard
    input, too. `on_error` gets what no page foresaw. UsageError for an address that cannot be used.
    """
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    state_dir = daemon.where.state_dir
    make_private(state_dir)
    with _bound(listen) as sock:
        host, port = sock.getsockname()[:2]
        named = f"[{host}]" if sock.family == socket.AF_INET6 else host
        running = Running(f"http://{named}:{port}", os.getpid())
        auth = Auth(running.url, state_dir, keep=listen_address(listen)[1] != 0)
        config = uvicorn.Config(
            auth.protect(make_app(daemon, on_error)),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        # uvicorn ends on a signal, and raises it once more for the handler that was there before.
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        if child:
            threading.Thread(target=_end_with_stdin, daemon=True).start()
        with _announced(state_dir, running):
            on_ready(running)
            uvicorn.Server(config).run(sockets=[sock])
    return 0


def _end_with_stdin() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


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
def _announced(state_dir: Path, running: Running) -> Iterator[None]:
    """Make the server known while it runs."""
    path = state_dir / f"web-{running.pid}.json"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(asdict(running)).encode())
    except OSError as bad:
        kind = AccessError if isinstance(bad, PermissionError) else WriteError
        raise kind(f"cannot write {path}: {bad.strerror}") from None
    try:
        yield
    finally:
        os.close(file)
        path.unlink(missing_ok=True)


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

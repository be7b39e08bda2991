"""The web view's server: listens on loopback, announces its address, stops on a signal.

`web-PID.json` in the state directory (0600) has the address of that process's server. The process
keeps the file locked, so an unlocked file belongs to a server that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import uvicorn

from indexerd.daemon.process import make_private
from indexerd.errors import UsageError, WriteError
from indexerd.settings import listen_address
from indexerd.web.app import make_app
from indexerd.web.auth import Auth
from indexerd.web.daemon_client import Daemon


class Running(NamedTuple):
    """A running server."""

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
    """Serve until SIGTERM, SIGINT or SIGHUP, and return exit code 0.

    `listen` is `HOST:PORT` on loopback; UsageError if it cannot be used. Port 0: any free port.
    A `child` also stops when its standard input closes. `on_error` gets unexpected exceptions.
    """
    state_dir = daemon.where.state_dir
    make_private(state_dir)
    with _bound(listen) as sock:
        host, port = sock.getsockname()[:2]
        named = f"[{host}]" if sock.family == socket.AF_INET6 else host
        running = Running(f"http://{named}:{port}", os.getpid())
        app, keep = make_app(daemon, on_error), listen_address(listen)[1] != 0
        config = uvicorn.Config(
            Auth(app, running.url, state_dir, keep=keep),
            ws="none",
            log_config=None,
            log_level="critical",
            proxy_headers=False,
            limit_concurrency=256,
            timeout_graceful_shutdown=2,
        )
        # uvicorn stops on a signal, and then raises it again for the handler before its own.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
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
    """Find the newest running server of a state directory."""
    running_servers: list[tuple[int, Running]] = []
    for path in state_dir.glob("web-*.json"):
        with suppress(OSError, ValueError, TypeError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                running = Running(**json.loads(file.read(4096)))
                running_servers.append((os.fstat(file.fileno()).st_mtime_ns, running))
            else:  # its process was killed
                path.unlink()
    return max(running_servers, key=lambda server: server[0])[1] if running_servers else None


@contextmanager
def _announced(state_dir: Path, running: Running) -> Iterator[None]:
    path = state_dir / f"web-{running.pid}.json"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(running._asdict()).encode())
    except OSError as bad:
        raise WriteError(f"cannot write {path}: {bad.strerror}") from None
    try:
        yield
    finally:
        os.close(file)
        path.unlink(missing_ok=True)


def _bound(listen: str) -> socket.socket:
    try:
        host, port = listen_address(listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (ValueError, OSError) as bad:
        hint = "use a loopback address and a free port; port 0 means any"
        cause = getattr(bad, "strerror", bad)
        raise UsageError(f"cannot listen on {listen}: {cause}", hint=hint) from None

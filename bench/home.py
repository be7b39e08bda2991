"""A home directory with sessions, and the real daemon in it, called as any program calls it.

Nothing outside the directory is read or written, and it is removed at the end. The package is run
as its users run it (its program, its socket) and never imported. By default no session is indexed
and no digest is made, and the built-in model is the only one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from corpus import PLACES, Session

PATIENCE = 600.0  # seconds that a single step may take
PROGRAM = str(Path(sys.executable).with_name("indexerd"))
SETTINGS = {
    "INDEXERD_MODEL_KEYS": '["local/extractive"]',
    "INDEXERD_MIN_NEW_USER_MESSAGES": "10000",
    "INDEXERD_DIGEST__ENABLED": "false",
}


class WrongError(Exception):
    """An answer was wrong, or something failed, so there is no figure."""


def check(what: str, *, ok: bool) -> None:
    if not ok:
        raise WrongError(what)


def wait(found: Callable[[], Any], what: str, pause: float = 0.001) -> None:
    """Poll until a condition is true, with growing pauses."""
    began = time.perf_counter()
    while not found():
        took = time.perf_counter() - began
        check(f"not within {PATIENCE:g} s: {what}", ok=took < PATIENCE)
        time.sleep(max(pause, took / 30))


class Home:
    """A temporary home directory."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ixd-"))  # short, since a socket's path must be
        self.socket = self.root / "s"
        for place in PLACES.values():  # the agents were used before: these are watched
            (self.root / place).mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def env(self) -> dict[str, str]:
        """The user's environment."""
        own = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        return own | {"INDEXERD_SOCKET": str(self.socket)} | SETTINGS

    def forget(self) -> None:
        """Remove all but the agents' own files: the next start is a first one."""
        kept = [self.root / place for place in PLACES.values()]
        for path in sorted(self.root.rglob("*"), reverse=True):  # what is below comes first
            if any(path.is_relative_to(one) or one.is_relative_to(path) for one in kept):
                continue
            (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()


class Daemon:
    """A daemon that runs until the block ends; times are seconds since its exec."""

    def __init__(self, home: Home, **settings: str) -> None:
        self.home, self.notify = home, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place, self.log = home.root / "notify", (home.root / "stderr").open("w+")
        place.unlink(missing_ok=True)
        self.notify.bind(str(place))
        env = home.env() | settings | {"NOTIFY_SOCKET": str(place)}
        self.began = time.perf_counter()
        self.process = subprocess.Popen([PROGRAM, "run"], env=env, cwd=home.root, stderr=self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()  # if it is still running
        self.process.wait()
        self.notify.close()
        self.log.close()

    def since(self) -> float:
        return time.perf_counter() - self.began

    def ready(self) -> float:
        """Wait until it tells the service manager that it is ready; return the time."""
        self.notify.settimeout(PATIENCE)
        while not self.notify.recv(4096).startswith(b"READY=1"):
            pass
        return self.since()

    def connect(self) -> Connection:
        """Connect as soon as it listens."""
        found: list[Connection] = []

        def tried() -> bool:
            ended = self.process.poll() is not None
            self.log.seek(0)
            check(f"the daemon ended: {self.log.read()[-2000:]}" if ended else "", ok=not ended)
            with suppress(OSError):
                found.append(Connection(self.home.socket))
            return bool(found)

        wait(tried, "a socket")
        return found[0]

    def ask(self, method: str, **params: Any) -> Any:
        """Send one request on its own connection."""
        with self.connect() as connection:
            return connection.ask(method, **params)

    def until(self, what: str, done: Callable[[Connection], bool]) -> float:
        """Poll until a condition is true, seldom, as requests cost time; return the time."""
        with self.connect() as connection:
            wait(lambda: done(connection), what, 0.01)
        return self.since()

    def listed(self, count: int) -> float:
        """Wait until `list` has shown so many sessions, page by page; return the time."""

        def done(connection: Connection) -> bool:
            status = connection.ask("status")
            if not status["lastScanAt"] or status["sessions"] < count:
                return False
            found, cursor = 0, {}
            while cursor is not None:
                page = connection.ask("list", limit=500, **cursor)
                found += len(page["sessions"])
                cursor = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None
            return found >= count

        return self.until(f"{count} sessions", done)

    def caught_up(self, made: Sequence[Session]) -> float:
        """Wait until all texts are read and some sessions' words find them; return the time."""
        left = list(made)

        def done(connection: Connection) -> bool:
            if connection.ask("status").get("textPending"):
                return False
            while left and connection.found(left[-1].word) == {left[-1].id}:
                left.pop()
            return not left

        return self.until("words that sessions are found by", done)

    def counted(self, one: Session) -> None:
        """Wait until a session of pi has as many messages as its file."""
        count = Path(one.path).read_bytes().count(b'{"type":"message"')

        def done(connection: Connection) -> bool:
            return connection.ask("get", ref=one.id)["session"]["messageCount"] == count

        self.until(f"{count} messages of {one.path}", done)

    def memory(self, field: str = "VmRSS") -> float:
        """Return its memory in megabytes; `VmHWM` is the peak."""
        rows = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) / 1024 for row in rows if row.startswith(field + ":"))

    def cpu(self) -> float:
        """Return its processor time so far, in seconds."""
        return time.clock_gettime(~self.process.pid << 3 | 2)  # as clock_getcpuclockid(3) makes it


class Connection:
    """A connection to the socket: JSON-RPC, one document per line."""

    def __init__(self, path: Path) -> None:
        self.last = b""  # the newest document received
        self._sock = socket.socket(socket.AF_UNIX)
        self._file = self._sock.makefile("rb")
        self._sock.settimeout(PATIENCE)
        self._sock.connect(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._sock.close()

    def receive(self) -> bytes:
        """Return the next document."""
        self.last = self._file.readline()
        check("the daemon hung up", ok=bool(self.last))
        return self.last

    def exchange(self, method: str, params: dict[str, Any]) -> bytes:
        """Send a request; return the raw answer."""
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._sock.sendall(json.dumps(asked).encode() + b"\n")
        return self.receive()

    def ask(self, method: str, **params: Any) -> Any:
        """Return a result; WrongError has the message of an error."""
        reply = json.loads(self.exchange(method, params))
        check(f"{method} {params}: {reply.get('error')}", ok="result" in reply)
        return reply["result"]

    def found(self, words: str) -> set[str]:
        """Return the sessions in which a search finds words."""
        return {hit["sessionId"] for hit in self.ask("search", query=words)["hits"]}

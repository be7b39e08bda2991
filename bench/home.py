"""A home with sessions of its own, and the real daemon running in it.

    with Home() as home:
        made = home.small(10_000)
        with home.daemon() as daemon:
            daemon.settled()
            daemon.client().call("resolve", {"ref": made[0].id})

In: how many sessions, and settings as `INDEXERD_...` variables or as a config file's text. Out: a
scratch directory that is gone at the end, files in it as the agents write them, and processes that
are ended. Nothing outside of it is read or written, and the built-in model is the only one.

Sessions of four lines (`small`) are made for counts, not for bytes: a request, an answer, a name.
Their texts are of the same words, and each holds one word that no other has. What surprised us:
lookups wait up to five seconds for the first scan: READY and the first answer are two moments.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from measure import ROOT, cpu_of, memory_mb

from indexerd.client import Client
from indexerd.errors import DaemonDownError, IndexerdError

PATIENCE = 1100.0  # seconds any one thing may take, on a slow machine, too
PER_FOLDER = 30  # sessions of one project
PI = ".pi/agent/sessions"
BEGAN = 1_767_225_600  # 2026-01-01, in seconds since the epoch
QUIET = {  # nothing is described, and no digest made: what is measured is the following of files
    "INDEXERD_MIN_NEW_USER_MESSAGES": "10000",
    "INDEXERD_DIGEST__ENABLED": "false",
}


@dataclass(frozen=True)
class Small:
    """A session of four lines; `word` is in its text and in no other's."""

    id: str
    path: Path
    name: str
    word: str
    leaf: str  # id of its last entry


class Home:
    """A scratch directory that is somebody's home for a while."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ixd-"))  # short: a socket's path is

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def sessions(self) -> Path:
        """Where pi keeps its sessions."""
        return self.root / PI

    @property
    def state(self) -> Path:
        """Where the daemon keeps what it knows."""
        return self.root / ".local/state/indexerd"

    @property
    def socket(self) -> Path:
        """Where the daemon listens."""
        return self.root / "s"

    def stored(self, name: str) -> int:
        """Bytes of one of the daemon's own files; 0 where there is none."""
        path = self.state / name
        return path.stat().st_size if path.exists() else 0

    def small(self, count: int, first: int = 0) -> list[Small]:
        """Write so many small sessions of pi, numbered from `first`."""
        self.sessions.mkdir(parents=True, exist_ok=True)
        return [_small(self.sessions, number) for number in range(first, first + count)]

    def configure(self, text: str) -> None:
        """Write the configuration file; a running daemon reads it again at a SIGHUP."""
        path = self.root / ".config/indexerd/indexerd.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def forget(self) -> None:
        """Remove all that the daemon has stored: the next start is a cold one."""
        for name in (".local", ".config", ".pi/agent/sessions-meta"):
            shutil.rmtree(self.root / name, ignore_errors=True)

    def env(self, **more: str) -> dict[str, str]:
        """The environment of the user."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "PYTHONPATH": str(ROOT),
            "INDEXERD_SOCKET": str(self.socket),
            "INDEXERD_MODEL_KEYS": '["local/extractive"]',
            **more,
        }

    @contextmanager
    def daemon(self, **more: str) -> Iterator[Daemon]:
        """The daemon, from its exec on, until the block ends; `more` are variables."""
        self.sessions.mkdir(parents=True, exist_ok=True)  # pi was used before: it is watched
        one = Daemon(self, more)
        try:
            yield one
        finally:
            one.stop()


class Daemon:
    """A daemon that was just started. Moments are seconds since it was."""

    def __init__(self, home: Home, more: dict[str, str]) -> None:
        self._home = home
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place = str(home.root / "notify")
        Path(place).unlink(missing_ok=True)
        self._told.bind(place)
        self._log = (home.root / "stderr").open("wb")
        command = [sys.executable, "-m", "indexerd", "run"]
        env = home.env(NOTIFY_SOCKET=place, **more)
        self.began, self.clock = time.perf_counter(), time.time()
        self.process = subprocess.Popen(command, env=env, cwd=home.root, stderr=self._log)
        self.pid = self.process.pid

    def since(self) -> float:
        """Seconds since the exec."""
        return time.perf_counter() - self.began

    def ready(self) -> float:
        """Wait until it tells the service manager that it is; the moment."""
        self._told.settimeout(PATIENCE)
        try:
            while not self._told.recv(4096).startswith(b"READY=1"):
                pass
        except TimeoutError:
            self._fail("it did not get ready")
        return self.since()

    def client(self, timeout: float = PATIENCE) -> Client:
        """A connection, as soon as it listens."""
        found: list[Client] = []

        def met() -> bool:
            with suppress(DaemonDownError):  # the file is there before anybody listens
                found.append(Client(self._home.socket, timeout))
            return bool(found)

        wait(lambda: self._alive() and self._home.socket.exists() and met(), "a socket")
        return found[0]

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """One question on a connection of its own."""
        with self.client() as client:
            return client.call(method, params)

    def settled(self, sessions: int | None = None, *, text: bool = True) -> float:
        """Wait until all was scanned and (with `text`) is searchable; the moment, within 5 %.

        Asked seldom, since the answer costs the daemon some work, more with more sessions.
        """

        def done() -> bool:
            told = self.ask("status")
            ready = told["lastScanAt"] and not (text and told["textPending"])
            return bool(ready) and (sessions is None or told["sessions"] >= sessions)

        self._until(done)
        return self.since()

    def scanned(self) -> float:
        """When the first scan ended, as the daemon itself noted it, in seconds since the exec."""
        self._until(lambda: self._scan_at() > 0)
        return self._scan_at() - self.clock

    def _until(self, done: Callable[[], bool]) -> None:
        while not (self._alive() and _trying(done)):
            if self.since() > PATIENCE:
                self._fail(f"it did not catch up within {PATIENCE:g} s")
            time.sleep(max(0.02, self.since() / 20))

    def _scan_at(self) -> float:
        at = self.ask("status")["lastScanAt"]
        return datetime.fromisoformat(at).timestamp() if at else 0.0

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return cpu_of(self.pid)

    def memory(self, field: str = "VmRSS") -> float:
        """Megabytes; `VmHWM` is the most it ever was."""
        return memory_mb(self.pid, field)

    def switches(self) -> int:
        """How often its threads were put on a processor."""
        return switches_of(self.pid)

    def pause(self, *, on: bool) -> None:
        """Have it stand still, or go on."""
        self.signal(signal.SIGSTOP if on else signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """End it as a service manager would, if it has not ended."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self._told.close()
        self._log.close()

    def _alive(self) -> bool:
        if self.process.poll() is not None:
            self._fail(f"it ended with {self.process.returncode}")
        return True

    def _fail(self, why: str) -> None:
        raise SystemExit(f"the daemon: {why}\n{(self._home.root / 'stderr').read_text()[-4000:]}")


def switches_of(pid: int) -> int:
    """How often the threads of a process were put on a processor."""
    count = 0
    for one in Path(f"/proc/{pid}/task").iterdir():
        rows = (one / "status").read_text().splitlines()
        count += sum(int(row.split()[1]) for row in rows if "ctxt_switches" in row)
    return count


class Writer:
    """Appends entries to a session as pi does: open, append, close, a line each."""

    def __init__(self, session: Small) -> None:
        self.id, self.path = session.id, str(session.path)
        self.entries = 0  # appended by us
        self._last = session.leaf

    def append(self, text: str = "x" * 300) -> str:
        """Append an answer; its id."""
        entry_id = f"{uuid.uuid4().int >> 96:08x}"
        append(self.path, message(entry_id, self._last, "assistant", text, time.time()))
        self._last = entry_id
        self.entries += 1
        return entry_id


def append(path: str, data: bytes) -> None:
    """Open, append, close."""
    place = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(place, data)
    finally:
        os.close(place)


def message(entry_id: str, parent: str | None, role: str, text: str, at: float) -> bytes:
    """A message as pi writes it; `at` in seconds since the epoch."""
    said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
    if role == "assistant":
        said["stopReason"] = "stop"
    said["timestamp"] = int(1000 * at)
    entry = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": iso(at)}
    return line(entry | {"message": said})


def iso(at: float) -> str:
    """A moment as pi writes it."""
    told = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def line(held: dict[str, Any]) -> bytes:
    """A line of JSON as JavaScript writes it."""
    return json.dumps(held, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def wait(found: Callable[[], Any], what: str, pause: float = 0.001) -> None:
    """Look again and again; a thing that does not come ends the script."""
    end = time.perf_counter() + PATIENCE
    while not found():
        if time.perf_counter() > end:
            raise SystemExit(f"{what} did not come within {PATIENCE:g} s")
        time.sleep(pause)


def _trying(asked: Callable[[], bool]) -> bool:
    """Ask a daemon that may not be there yet."""
    try:
        return asked()
    except IndexerdError:
        return False


_SMALL = """\
{"type":"session","version":3,"id":"%(id)s","timestamp":"%(at)s","cwd":"/w/p%(project)d"}
{"type":"message","id":"%(n)06da","parentId":null,"timestamp":"%(at)s","message":{"role":"user",\
"content":[{"type":"text","text":"Please mend the lock of door %(n)d, called %(word)s, soon."}],\
"timestamp":%(ms)d}}
{"type":"message","id":"%(n)06db","parentId":"%(n)06da","timestamp":"%(at)s","message":{"role":\
"assistant","content":[{"type":"text","text":"Done: the spring was rusty, and the key bent."}],\
"stopReason":"stop","timestamp":%(ms)d}}
{"type":"session_info","id":"%(n)06dc","parentId":"%(n)06db","timestamp":"%(at)s",\
"name":"%(name)s"}
"""


def _small(top: Path, number: int) -> Small:
    project = number // PER_FOLDER
    folder = top / f"--w-p{project}--"
    if number % PER_FOLDER == 0:
        folder.mkdir(exist_ok=True)
    session_id = f"{number * 2654435761 % 2**32:08x}-0000-7000-8000-{number:012x}"
    word, name = _letters(f"word {number}"), f"{_letters(f'name {number}')} door"
    at = BEGAN + 60 * number
    told = {"id": session_id, "at": iso(at), "ms": 1000 * at, "project": project}
    path = folder / f"2026-01-01T00-00-00-000Z_{session_id}.jsonl"
    path.write_bytes((_SMALL % (told | {"n": number, "word": word, "name": name})).encode())
    return Small(session_id, path, name, word, f"{number:06d}c")


def project(of: Small) -> str:
    """The directory that a small session was begun in."""
    return of.path.parent.name.strip("-").replace("w-", "/w/", 1)


def _letters(of: str) -> str:
    """Ten letters that no two have in common but by chance."""
    return "".join(chr(97 + one % 26) for one in blake2b(of.encode(), digest_size=10).digest())

"""Who tells a client of an append, for `bench_live.py`: the daemon, or the prototype.

Counts are of messages that were appended to a session.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from home import Daemon, Home, Small, wait

from indexerd.errors import NotFoundError

HELD = 2  # messages of a small session before anything is appended
OTHER = 2  # lines of a small session that are no messages


class Ours:
    """The daemon, as a client sees it."""

    def __init__(self, daemon: Daemon) -> None:
        self.pid = daemon.pid
        self._asking, self._hearing = daemon.client(), daemon.client()
        self.told = self._hearing.events(["session.updated", "session.created"])

    def count(self, one: Small) -> int:
        """Messages that were appended to a session, as `get` tells it; -1 of one not known."""
        try:
            held = self._asking.call("get", {"ref": one.id})["session"]
        except NotFoundError:
            return -1
        return int(held["messageCount"]) - HELD

    def next(self) -> tuple[str, int]:
        """The next event: a session's file, and how many messages were appended to it."""
        event = next(self.told)
        return event["sessionFile"], int(event.get("messages", HELD)) - HELD

    def close(self) -> None:
        """Hang up."""
        self._asking.close()
        self._hearing.close()


class Limit:
    """The prototype, as a client sees it."""

    def __init__(self, path: Path, pid: int) -> None:
        self.pid = pid
        self._asking, self._hearing = _connected(path), _connected(path)
        self._hearing.write(b"subscribe\n")
        self._hearing.flush()
        self._hearing.readline()

    def count(self, one: Small) -> int:
        """Lines that were appended to a file; less than none of one not known."""
        self._asking.write(os.fsencode(one.path) + b"\n")
        self._asking.flush()
        return int(self._asking.readline()) - HELD - OTHER

    def next(self) -> tuple[str, int]:
        """The next event."""
        path, lines = json.loads(self._hearing.readline())
        return path, lines - HELD - OTHER

    def close(self) -> None:
        """Hang up."""
        self._asking.close()
        self._hearing.close()


Teller = Ours | Limit


def caught_up(teller: Teller, wanted: dict[Small, int]) -> None:
    """Wait until it counts what was appended to some sessions."""
    left = dict(wanted)

    def done() -> bool:
        for one in list(left):
            if teller.count(one) != left[one]:
                return False
            del left[one]
        return True

    wait(done, "a catching up")


@contextmanager
def prototype(home: Home) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The prototype at work on a home, until the block ends: the process, and where it listens."""
    path = home.root / "p"
    script = str(Path(__file__).with_name("prototype.py"))
    process = subprocess.Popen([sys.executable, script, str(home.sessions), str(path)])
    try:
        wait(lambda: _listens(path), "the prototype")
        yield process, path
    finally:
        process.kill()
        process.wait()


def _listens(path: Path) -> bool:
    try:
        _connected(path).close()
    except OSError:
        return False
    return True


def _connected(path: Path) -> Any:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    return made.makefile("rwb")

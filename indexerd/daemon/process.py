"""What the daemon asks of the system for its own process: directories, open files, the time before.

Each does one thing to this process or its own directory, and nothing to anybody else's.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
from contextlib import suppress
from pathlib import Path

from indexerd.errors import AccessError

FILES_WANTED = 4096
MUCH = 8 * 1024 * 1024  # bytes that the process may have grown by before it gives any back
YOUNG = 10_000  # objects that come, and do not go, until the young ones are looked through


def last_at_work(store: Path) -> float:
    """When the last daemon was, in seconds since the epoch; infinite where there was none."""
    try:
        return store.stat().st_mtime
    except OSError:
        return math.inf


def make_private(directory: Path) -> None:
    """Make our own directory, for us alone."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
        if found.st_uid == os.getuid() and directory.name == "indexerd":  # else it may be shared
            directory.chmod(0o700)
    except OSError as bad:
        raise AccessError(f"{directory}: {bad.strerror}") from None


def settle_memory() -> None:
    """What there is now lasts as long as we do: nobody looks through it for what may go.

    Python looks through all objects now and then, and nothing else gets its turn meanwhile: with
    modules and some thousand sessions that takes 50 to 100 ms. To be called when the modules are
    there, and when the sessions are; more often it would keep what should go.

    What is free already goes back to the system, where the C library can be asked for that: glibc
    keeps it as long as anything above it is in use, with 10,000 sessions 3 MB.
    """
    gc.set_threshold(YOUNG)
    gc.freeze()
    _trim()


class Footprint:
    """What the process takes of memory, and what of it goes back to the system.

    Python leaves objects that hold each other until it has made very many more, and the C library
    keeps what is free: a large session that somebody looked at once would stay for good.
    """

    def __init__(self) -> None:
        """To be made when the modules are there."""
        settle_memory()
        self._least = 0  # bytes, since the last time; 0: the sessions were not there yet

    def tend(self) -> None:
        """Give back what is free, where there may be much; every few seconds, with all sessions."""
        now = resident()
        if not self._least:
            settle_memory()
        elif now - self._least < MUCH:
            self._least = min(self._least, now)
            return
        else:
            gc.collect()
            _trim()
        self._least = max(1, resident())


def resident() -> int:
    """Bytes that the process has in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - asked for every few seconds
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _trim() -> None:
    with suppress(OSError, AttributeError):  # others have no such function
        ctypes.CDLL(None).malloc_trim(0)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us: launchd's default is too low for us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

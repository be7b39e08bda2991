"""The daemon's own process: private directories, memory, open files, messages to systemd."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import resource
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from indexerd.disk import hold, make_directory
from indexerd.errors import AccessError, AlreadyRunningError

FILES_WANTED = 4096
GROWTH = 8 * 1024 * 1024  # bytes that the process may grow by before memory is given back
FREED_MIN = 1024 * 1024  # bytes
QUIET = 3  # calls in a row that free less than that, after which nothing more is free
M_ARENA_MAX, ARENAS = -8, 2  # mallopt: number of heaps of the C allocator, for all threads
M_MMAP_THRESHOLD, MAPPED = -3, 1 << 19  # bytes: larger blocks go back to the system when freed
YOUNG = 10_000  # new objects before the young generation is collected


def make_private(directory: Path) -> None:
    """Create a directory with mode 0700; an existing one gets that mode if it has our name."""
    try:
        make_directory(directory)
        if directory.name == "indexerd":
            directory.chmod(0o700)
    except OSError as bad:
        raise AccessError(f"{directory}: {bad.strerror}") from None


def raise_file_limit() -> None:
    """Raise the limit of open files: launchd's default is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES_WANTED, hard)), hard))


class Notifier:
    """Sends messages to systemd's notification socket; without systemd it does nothing.

    Ping the watchdog only after real progress, or a hung daemon would look healthy.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        path = env.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # an abstract name
        # The longest time between two pings; 0: systemd wants none.
        self.watchdog_seconds = int(env.get("WATCHDOG_USEC") or 0) / 1e6

    def send(self, message: str) -> None:
        """Send a message; never raises. Messages that are sent only once may wait a second."""
        if self._address:
            with (
                suppress(OSError, ValueError),  # gone, full, or the path is too long
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line,
            ):
                line.settimeout(message in ("READY=1", "STOPPING=1"))
                line.sendto(message.encode(), self._address)


def claim(directories: Iterable[str]) -> ExitStack:
    """Claim directories of meta files, or two daemons would pay for the same sessions twice.

    The claim is a socket with an abstract name (Linux), or a locked file in the directory.
    """
    claims = ExitStack()
    for real in dict.fromkeys(map(os.path.realpath, directories)):
        if sys.platform != "linux":
            claims.callback(os.close, hold(Path(real) / ".daemon.lock"))
            continue
        whose = f"{os.getuid()}:{real}".encode("utf-8", "surrogateescape")
        mark = claims.enter_context(socket.socket(socket.AF_UNIX))
        try:
            mark.bind(b"\0indexerd/" + hashlib.blake2b(whose, digest_size=16).hexdigest().encode())
        except OSError:
            claims.close()
            raise AlreadyRunningError(
                f"another daemon, with another state directory, writes to {real}",
                hint="run one daemon for each directory of sessions",
            ) from None
    return claims


class Footprint:
    """Gives memory back after a large session, as neither Python nor glibc does so itself.

    A full collection over modules and some thousand sessions takes 50 to 100 ms, in which nothing
    else runs, so objects that exist once the sessions are loaded are excluded from it.
    """

    def __init__(self) -> None:
        """Create this after the modules are loaded."""
        with suppress(OSError, AttributeError):  # else each of tantivy's threads has a heap
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED)
        gc.set_threshold(YOUNG)
        gc.freeze()
        self._least = 0  # bytes; 0: the sessions are not loaded yet
        self._quiet = QUIET  # calls in a row that freed little; if fewer, work may be going on

    def tend(self) -> None:
        """Give memory back if the process has grown; called every few seconds."""
        now = resident()
        grown = now - self._least >= GROWTH
        if not self._least:
            gc.freeze()
        elif self._quiet >= QUIET and not grown:
            self._least = min(self._least, now)
            return
        else:
            gc.collect()
        trim()
        self._least = max(1, resident())
        freed = now - self._least >= FREED_MIN
        self._quiet = 0 if grown or freed else self._quiet + 1


def trim() -> None:
    """Give free memory back to the system."""
    with suppress(OSError, AttributeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def resident() -> int:
    """Return the process's resident memory in bytes; 0 without /proc."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return 0

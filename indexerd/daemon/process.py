"""The daemon's own process: private directories, memory, and open files."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from indexerd.disk import hold, make_directory
from indexerd.errors import AccessError, AlreadyRunningError

FILES_WANTED = 4096
GROWTH = 8 * 1024 * 1024  # bytes that the process may have grown by before it gives any back
GIVEN = 1024 * 1024  # bytes given back, below which nothing is left to give
ARENAS = 2  # heaps of the C library's allocator, for all threads together
_M_ARENA_MAX = -8  # mallopt's name for that
YOUNG = 10_000  # new objects before the young generation is collected


def make_private(directory: Path) -> None:
    """Make a directory for us alone; one that is there is closed to others if it bears our name."""
    try:
        make_directory(directory)
        if directory.name == "indexerd":
            directory.chmod(0o700)
    except OSError as bad:
        raise AccessError(f"{directory}: {bad.strerror}") from None


def claim_directory(directory: Path) -> Callable[[], None]:
    """Claim a directory of meta files, and return what gives it back.

    Two daemons with state directories of their own would pay for the same twice. The claim is a
    socket whose name lives in the kernel alone (Linux), or a locked file in the directory.
    """
    real = os.path.realpath(directory)
    if sys.platform != "linux":
        return hold(Path(real) / ".daemon.lock").release
    whose = f"{os.getuid()}:{real}".encode("utf-8", "surrogateescape")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        name = hashlib.blake2b(whose, digest_size=16).hexdigest()
        sock.bind(b"\0indexerd/" + name.encode())
    except OSError:
        sock.close()
        raise AlreadyRunningError(
            f"another daemon, with another state directory, writes to {directory}",
            hint="run one daemon for each directory of sessions",
        ) from None
    return sock.close


class Footprint:
    """Gives memory back that a large session took: neither Python nor glibc does so by itself.

    A full collection over modules and some thousand sessions takes 50 to 100 ms, in which nothing
    else gets its turn; what is there once the sessions are known is left out of it from then on.
    """

    def __init__(self) -> None:
        """To be made when the modules are loaded."""
        with suppress(OSError, AttributeError):  # else each of tantivy's threads has a heap
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
        self._freeze()
        self._least = 0  # bytes, since the last time; 0: the sessions were not there yet
        self._settled = True  # False: the last time gave much back, so work was perhaps under way

    def tend(self) -> None:
        """Give back what is free, where there may be much; every few seconds, with all sessions."""
        now = resident()
        if not self._least:
            self._freeze()
        elif self._settled and now - self._least < GROWTH:
            self._least = min(self._least, now)
            return
        else:
            gc.collect()
            _trim()
        self._least = max(1, resident())
        self._settled = now - self._least < GIVEN

    def _freeze(self) -> None:
        gc.set_threshold(YOUNG)
        gc.freeze()
        _trim()


def resident() -> int:
    """Bytes that the process has in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - asked for every few seconds
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _trim() -> None:
    with suppress(OSError, AttributeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us: launchd's default is too low for us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

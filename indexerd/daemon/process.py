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
GROWTH = 8 * 1024 * 1024  # bytes that the process may grow by before it gives any back
FREED_MIN = 1024 * 1024  # bytes; if less was given back, nothing more is free
M_ARENA_MAX, ARENAS = -8, 2  # mallopt: heaps of the C library's allocator, for all threads
YOUNG = 10_000  # new objects before the young generation is collected


def make_private(directory: Path) -> None:
    """Make a directory with mode 0700; an existing one gets that mode if it has our name."""
    try:
        make_directory(directory)
        if directory.name == "indexerd":
            directory.chmod(0o700)
    except OSError as bad:
        raise AccessError(f"{directory}: {bad.strerror}") from None


def claim_directory(directory: Path) -> Callable[[], None]:
    """Claim a directory of meta files; return a function that releases it.

    Two daemons with different state directories would pay for the same sessions twice. The claim is
    a socket with an abstract name (Linux), or a locked file in the directory.
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
    """Gives memory back after a large session: neither Python nor glibc does so by itself.

    A full collection over modules and some thousand sessions takes 50 to 100 ms, in which nothing
    else runs, so what exists once the sessions are known is excluded from it.
    """

    def __init__(self) -> None:
        """To be made when the modules are loaded."""
        with suppress(OSError, AttributeError):  # else each of tantivy's threads has a heap
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
        self._freeze()
        self._least = 0  # bytes; 0: the sessions were not known yet
        self._settled = True  # False: the last call freed much, so work was perhaps not finished

    def tend(self) -> None:
        """Give memory back if the process has grown; called every few seconds."""
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
        self._settled = now - self._least < FREED_MIN

    def _freeze(self) -> None:
        gc.set_threshold(YOUNG)
        gc.freeze()
        _trim()


def resident() -> int:
    """Bytes of memory that the process uses; 0 where /proc does not exist."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _trim() -> None:
    with suppress(OSError, AttributeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def raise_file_limit() -> None:
    """Raise the limit of open files: launchd's default is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

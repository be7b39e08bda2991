"""The daemon's own process: directories, memory, open files, and a shutdown that cannot hang."""

from __future__ import annotations

import ctypes
import errno
import gc
import hashlib
import os
import resource
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.disk import Lock, hold
from indexerd.errors import AccessError, AlreadyRunningError, IndexerdError
from indexerd.times import iso

FILES_WANTED = 4096
GROWTH = 8 * 1024 * 1024  # bytes that the process may have grown by before it gives any back
GIVEN = 1024 * 1024  # bytes given back, below which nothing is left to give
ARENAS = 2  # heaps of the C library's allocator, for all threads together
_M_ARENA_MAX = -8  # mallopt's name for that
YOUNG = 10_000  # new objects before the young generation is collected
END_SECONDS = 10.0  # systemd kills after 15
LAST_SECONDS = 1.0  # for the line in the log


def peer_uid(sock: socket.socket) -> int | None:
    """The user id of the process that connected, as it was then; None where nobody can say."""
    with suppress(OSError):  # macOS has no answer for a peer that is gone already
        if sys.platform == "darwin":  # SOL_LOCAL, LOCAL_PEERCRED: struct xucred of <sys/ucred.h>
            version, uid = struct.unpack_from("=II", sock.getsockopt(0, 1, 76))
            return int(uid) if version == 0 else None
        if sys.platform == "linux":
            return int(struct.unpack("=iII", sock.getsockopt(*_PEER, 12))[1])
    return None


_PEER = (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", 0))

# -- directories ------------------------------------------------------------------------------


def make_private(directory: Path) -> None:
    """Make a directory for us alone; one that is there is closed to others if it bears our name."""
    try:
        if not directory.parent.exists():
            make_private(directory.parent)
        new = not directory.exists()
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.stat()
        if new or (found.st_uid == os.getuid() and directory.name == "indexerd"):
            directory.chmod(0o700)  # an odd umask may have taken even our own rights
    except OSError as bad:
        raise AccessError(f"{directory}: {bad.strerror}") from None


class StateDirCheck:
    """Whether the state directory is still there under a running daemon.

    Without it the databases are open files that nobody finds any more, no budget can be booked,
    and a second daemon can start. They are caches, so that beginning anew loses nothing; it is
    waited with while the directory cannot be made: systemd gives up after five failures in a row.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.problems: list[dict[str, Any]] = []  # for `status`

    def lost(self, now: float) -> str:
        """Why to begin anew, or "". It asks the disk: not for the event loop."""
        if self._lock.stands():
            self.problems = []
            return ""
        try:
            make_private(self._lock.path.parent)
        except IndexerdError as bad:
            self.problems = [
                {
                    "code": "state_unwritable",
                    "cause": f"the state directory is gone, and cannot be made: {bad}",
                    "since": self.problems[0]["since"] if self.problems else iso(now),
                    "cure": "let the directory be created; the daemon then restarts itself",
                }
            ]
            return ""
        return "the state directory was removed: ending, to begin anew"


def claim_directory(directory: Path) -> Callable[[], None] | None:
    """Claim a directory of meta files: a second daemon would pay for the same twice.

    The claim is a socket of a name that only lives in the kernel (Linux), or a locked file in the
    directory. Returns what gives it back; None where it cannot be made. AlreadyRunningError where
    another daemon of ours has it, whatever state directory that was given.
    """
    real = os.path.realpath(directory)
    try:
        if sys.platform != "linux":
            return hold(Path(real) / ".daemon.lock").release
        whose = f"{os.getuid()}:{real}".encode("utf-8", "surrogateescape")
        return _listen(b"\0indexerd/" + hashlib.blake2b(whose, digest_size=16).hexdigest().encode())
    except AlreadyRunningError:
        raise AlreadyRunningError(
            f"another daemon, with another state directory, writes to {directory}",
            hint="run one daemon for each directory of sessions",
        ) from None
    except (OSError, AccessError):
        return None


def _listen(name: bytes) -> Callable[[], None]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(name)
        sock.listen(1)
    except OSError as bad:
        with sock:
            if bad.errno == errno.EADDRINUSE:
                sock.connect(name)  # one that does not listen is no daemon
                if peer_uid(sock) == os.getuid():
                    raise AlreadyRunningError("claimed") from None
            raise  # another user took our name: that must not keep us from working
    return sock.close


# -- memory and files -------------------------------------------------------------------------


class Footprint:
    """Gives memory back that a large session took: neither Python nor glibc does so by itself.

    A full collection over modules and some thousand sessions takes 50 to 100 ms, in which nothing
    else gets its turn; what is there once the sessions are known is passed over from then on.
    """

    def __init__(self) -> None:
        """To be made when the modules are loaded."""
        with suppress(OSError, AttributeError):  # else each of tantivy's threads has a heap
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
        settle_memory()
        self._least = 0  # bytes, since the last time; 0: the sessions were not there yet
        self._settled = True  # False: work was perhaps under way the last time, and has ended since

    def tend(self) -> None:
        """Give back what is free, where there may be much; every few seconds, with all sessions."""
        now = resident()
        if not self._least:
            settle_memory()
        elif self._settled and now - self._least < GROWTH:
            self._least = min(self._least, now)
            return
        else:
            gc.collect()
            _trim()
        self._least = max(1, resident())
        self._settled = now - self._least < GIVEN


def settle_memory() -> None:
    """Have the collector pass over what there is now, and give free memory back to the system."""
    gc.set_threshold(YOUNG)
    gc.freeze()
    _trim()


def resident() -> int:
    """Bytes that the process has in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - asked for every few seconds
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
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


class EndDeadline:
    """Ends the process some time after `begin`, whatever hangs.

    A thread that waits for a file system which does not answer cannot be ended, and neither the
    event loop nor the interpreter ends before its threads do. What is lost then is read anew by
    the next daemon. `late()` is called, in a thread, before the process is ended so.
    """

    def __init__(self, late: Callable[[], None]) -> None:
        self._late = late
        self._begun = False
        self._code = 0

    def begin(self, code: int = 0) -> None:
        """The end has begun; begun again, it may be with another exit code."""
        self._code = max(code, self._code)
        if not self._begun:
            self._begun = True
            _after(END_SECONDS, self._overdue)

    def _overdue(self) -> None:
        _after(LAST_SECONDS, lambda: os._exit(self._code))  # the log may hang, too
        self._late()
        os._exit(self._code)


def _after(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()

"""The file system for every package: atomic writes, durable directories, locks, rotated files.

Locks are flocks: the kernel frees them with their holder, kill -9 included. Lock files are never
unlinked: two processes could then hold two files of one name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from indexerd.errors import AccessError, AlreadyRunningError, WriteError

POLL_SECONDS = 0.002
UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY)
_NO_FLOCK = (*UNSUPPORTED, errno.EBADF, errno.ENOLCK)  # EBADF: NFS wants a writable descriptor
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_HOLDER = re.compile(rb"pid ([1-9][0-9]{0,9}) since ([0-9T:Z-]{20})\n")


# -- writing ----------------------------------------------------------------------------------


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably, 0600. OSError leaves the old one as it was."""
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            file.flush()
            sync(fd)
        temp.replace(path)
    except BaseException:
        with suppress(OSError):
            temp.unlink()
        raise
    sync_names(path.parent)


def make_directory(directory: Path) -> None:
    """Create a directory and the missing ones above it, 0700 each, durably; OSError if it fails."""
    if directory.is_dir():
        return
    if not directory.parent.is_dir():
        make_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_names(directory.parent)


def sync(fd: int) -> None:
    """Bring a file to the disk; on macOS through the drive's own cache, where that is possible."""
    if sys.platform == "darwin":
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_directory(fd: int) -> None:
    """Bring an open directory's names to the disk; a file system that cannot is no error."""
    try:
        sync(fd)
    except OSError as bad:
        if bad.errno not in UNSUPPORTED:
            raise


def sync_names(directory: Path) -> None:
    """Bring a directory's names to the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_directory(fd)
    finally:
        os.close(fd)


# -- the lock of the state directory ----------------------------------------------------------


class Lock:
    """The held lock of a state directory; free after `release`, or with the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def stands(self) -> bool:
        """Whether the file of that name is still ours; if not, a second daemon can start."""
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.lstat())
        except OSError as bad:
            return not isinstance(bad, FileNotFoundError | NotADirectoryError)

    def release(self) -> None:
        """Free the lock; a second call does nothing. The file stays, without its note."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):  # the note serves the error message alone
                os.ftruncate(fd, 0)
            os.close(fd)


def hold(path: Path) -> Lock:
    """Take the lock at once, or raise AlreadyRunningError that names the holder.

    AccessError: the file cannot be opened, is no regular file, or its file system has no locks.
    """
    try:
        make_directory(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
    except OSError as bad:
        raise _denied(path, bad) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found, who = _HOLDER.fullmatch(os.pread(fd, 256, 0)), "another process"
        os.close(fd)
        if found and lives(int(found[1])):
            who = f"another indexerd (pid {int(found[1])}, since {found[2].decode()})"
        hint = "stop it first, or set INDEXERD_STATE_DIR to another place"
        raise AlreadyRunningError(f"{who} holds {path}", hint=hint) from None
    except OSError as bad:
        os.close(fd)
        raise _denied(path, bad) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise AccessError(f"{path} is not a regular file", hint="move it out of the way")
    with suppress(OSError):  # a full disk must not keep lookups from being served
        os.ftruncate(fd, 0)
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        os.pwrite(fd, f"pid {os.getpid()} since {now}\n".encode(), 0)
    return Lock(path, fd)


def _denied(path: Path, bad: OSError) -> AccessError:
    name = errno.errorcode.get(bad.errno or 0, "EIO")
    hint = "check the owner and mode of the directory, or set INDEXERD_STATE_DIR"
    if bad.errno in _NO_FLOCK:
        hint = "set INDEXERD_STATE_DIR to a directory on a local disk"
    message = f"{path} cannot be locked: {bad.strerror} ({name})"
    return AccessError(message, hint=hint, upstream=name)


def lives(pid: int) -> bool:
    """Whether a process of that number exists, whosever it is."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


# -- one writer at a time in a directory ------------------------------------------------------


class DirectoryLocks:
    """One holder of a directory at a time. `wait` is how long another one is waited for, seconds.

    The flock is on the directory itself: nothing is left in it. Where flock is not to be had (some
    network file systems), only threads exclude each other.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._threads: dict[Path, threading.Lock] = {}

    @contextmanager
    def hold(self, fd: int, directory: Path) -> Iterator[None]:
        """Hold the directory open as `fd`; WriteError when another one keeps it too long."""
        threads = self._threads.setdefault(directory, threading.Lock())
        deadline = time.monotonic() + self._wait
        locked = threads.acquire(timeout=self._wait)
        try:
            while not (locked and _flocked(fd)):
                if time.monotonic() >= deadline:
                    raise WriteError(
                        f"{directory} is locked by another process",
                        hint="lslocks or lsof shows which; it is tried again",
                        upstream="EAGAIN",
                    )
                time.sleep(POLL_SECONDS)
            yield
        finally:  # a forked child may have a copy of the descriptor, so closing is not enough
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            if locked:
                threads.release()


def _flocked(fd: int) -> bool:
    """Try to lock; also true where the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as bad:
        if bad.errno not in _NO_FLOCK:
            raise
    return True


# -- files that rotate ------------------------------------------------------------------------


class RotatingFile:
    """Lines in `path`, moved to `path.1`, … before they exceed `limit` bytes; `keep` old ones stay.

    Each line is one write() with O_APPEND, so lines of several processes never mix. The file is
    opened for each line: that survives a rotation by another process. A line cut by a crash or a
    full disk is closed off. Nothing is raised: a line that cannot be written is lost.
    """

    def __init__(self, path: Path, *, limit: int, keep: int = 2) -> None:
        self.path = path
        self.limit = limit
        self.keep = keep
        # Reentrant, as a signal handler may log while the main thread is writing a line.
        self._lock = threading.RLock()

    def append(self, line: bytes) -> bool:
        """Write one line, without its line end; says whether it was written whole."""
        with self._lock, suppress(OSError):
            for can_rotate in (True, False):
                fd = self._opened()
                try:
                    size = os.fstat(fd).st_size
                    if can_rotate and size > 0 and self.limit < size + len(line) + 1:
                        self._rotate(fd)
                        continue
                    torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                    data = (b"\n" if torn else b"") + line + b"\n"
                    return os.write(fd, data) == len(data)
                finally:
                    os.close(fd)
        return False

    def _opened(self) -> int:
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE, 0o600)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            raise OSError("not a regular file")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.fchmod(fd, 0o600)
        return fd

    def _rotate(self, fd: int) -> None:
        """Move the files on by one, unless another process is doing so, or has done so."""
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), self.path.lstat()):
                for number in range(self.keep, 0, -1):
                    newer = self._old(number - 1) if number > 1 else self.path
                    with suppress(FileNotFoundError):
                        newer.replace(self._old(number))

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

"""Claims on places: the one daemon of a state directory, one writer at a time in a directory.

`hold` takes the single-instance lock, a flock on a file that is never unlinked (unlinking would
let two processes hold two files of one name). The kernel frees it with its holder, kill -9
included, so there is nothing stale to judge; the pid and the time in the file are only for the
message, which stays readable when they are torn, missing or somebody else's. Whoever deletes the
lock file under a running daemon can start a second one; the socket is the second guard, and the
daemon looks whether its lock `stands`.

A flock belongs to the open file, not to the process. A program that is exec'ed does not inherit
it (O_CLOEXEC), and a child made by Python's own fork closes its copy at once. The hole that is
left: a child that native code forks without exec keeps the lock for as long as it lives (A11);
indexerd starts no such child. `release` unlocks aloud, so the hole opens only by a kill.

`DirectoryLocks` has one writer at a time work in a directory, across threads and processes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from indexerd.errors import AccessError, AlreadyRunningError, WriteError

TRIES = 10  # the lock file was deleted between open and flock: open it again
NOTE_BYTES_MAX = 256
POLL_SECONDS = 0.002
UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY)

_NO_FLOCK = (*UNSUPPORTED, errno.EBADF, errno.ENOLCK)  # EBADF: NFS wants a writable descriptor
_NOTE = re.compile(rb"pid ([1-9][0-9]{0,9}) since ([0-9]{4}(?:-[0-9]{2}){2}T[0-9:]{8}Z)\n")


class Lock:
    """A held lock. It is free again after `release`, at the end of a `with`, or with the process.

    Use `hold` to get one.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        _held.add(self)

    def stands(self) -> bool:
        """Whether the file of that name is still the one that is locked, as far as can be seen.

        If not, a second process can take a lock of this name. Asks the disk.
        """
        try:
            held, found = os.fstat(self._fd), self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)

    def release(self) -> None:
        """Free the lock; a second call does nothing. The file stays, without its note."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd < 0:
            return
        with contextlib.suppress(OSError):  # the note is a courtesy, and nobody's truth
            os.ftruncate(fd, 0)
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def abandon(self) -> None:
        """Close this process's copy without freeing the lock: what a forked child does."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_held: set[Lock] = set()


def _after_fork() -> None:
    for lock in tuple(_held):
        lock.abandon()


os.register_at_fork(after_in_child=_after_fork)


def hold(path: Path) -> Lock:
    """Take the lock at once, or raise AlreadyRunningError that names the holder.

    The file is created 0600, its directory and the missing ones above it 0700. AccessError: the
    file cannot be opened, is not a regular file, or its file system has no locks.
    """
    try:
        make_directory(path.parent)
        fd = next((fd for _ in range(TRIES) if (fd := _claim(path)) is not None), None)
    except OSError as bad:
        raise _denied(path, bad) from bad
    if fd is None:
        raise AlreadyRunningError(f"{path} is deleted again and again", hint="leave it in place")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    note = f"pid {os.getpid()} since {now}\n".encode()
    with contextlib.suppress(OSError):  # a full disk must not keep lookups from being served
        os.pwrite(fd, note, 0)
        os.ftruncate(fd, len(note))
    return Lock(path, fd)


def _claim(path: Path) -> int | None:
    """Open and lock the file; None when it was deleted meanwhile, and so locks nobody out."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    fd = os.open(path, flags, 0o600)
    kept = False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise AccessError(f"{path} is not a regular file", hint="move it out of the way")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _running(path, os.pread(fd, NOTE_BYTES_MAX, 0)) from None
        kept = os.fstat(fd).st_nlink > 0
    finally:
        if not kept:
            os.close(fd)
    return fd if kept else None


def _running(path: Path, note: bytes) -> AlreadyRunningError:
    who = "another process"
    if found := _NOTE.fullmatch(note):
        pid, since = int(found[1]), found[2].decode()
        if lives(pid):
            who = f"another indexerd (pid {pid}, since {since})"
        else:  # a child of it lives on, or a new holder has not written its note yet
            who = f"another process (pid {pid}, which last held it, has ended)"
    return AlreadyRunningError(
        f"{who} holds {path}", hint="stop it first, or set INDEXERD_STATE_DIR to another place"
    )


def _denied(path: Path, bad: OSError) -> AccessError:
    name = errno.errorcode.get(bad.errno or 0, "EIO")
    hint = "check the owner and mode of the directory, or set INDEXERD_STATE_DIR"
    if bad.errno in _NO_FLOCK:
        hint = "set INDEXERD_STATE_DIR to a directory on a local disk"
    elif bad.errno == errno.ELOOP:
        hint = "it is a symbolic link; move it out of the way"
    return AccessError(
        f"{path} cannot be locked: {bad.strerror} ({name})", hint=hint, upstream=name
    )


def lives(pid: int) -> bool:
    """Say whether a process of that number exists, whosever it is."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


class DirectoryLocks:
    """One holder of a directory at a time. `wait` is how long another one is waited for, seconds.

    The flock is on the directory itself: nothing is left in it, and the kernel frees it. Threads
    are ordered by a lock of their own, so that only one of a process polls. Where flock is not to
    be had (some network file systems), only the threads of one object exclude each other.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._guard = threading.Lock()
        self._threads: dict[Path, threading.Lock] = {}

    @contextlib.contextmanager
    def hold(self, fd: int, directory: Path) -> Iterator[None]:
        """Hold the directory open as `fd`; WriteError when another one keeps it too long."""
        threads = self._threads.get(directory)
        if threads is None:
            with self._guard:
                threads = self._threads.setdefault(directory, threading.Lock())
        deadline = time.monotonic() + self._wait
        if not threads.acquire(timeout=self._wait):
            raise _busy(directory)
        try:
            locked = _flock(fd, directory, deadline)
            try:
                yield
            finally:
                if locked:  # said aloud, as a forked child may have a copy of the descriptor
                    fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            threads.release()


def _flock(fd: int, directory: Path, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _busy(directory) from None
            time.sleep(POLL_SECONDS)
        except OSError as bad:
            if bad.errno in _NO_FLOCK:
                return False
            raise
        else:
            return True


def _busy(directory: Path) -> WriteError:
    return WriteError(
        f"{directory} is locked by another process",
        hint="lslocks or lsof shows which; it is tried again",
        upstream="EAGAIN",
    )


def make_directory(directory: Path) -> None:
    """Create a directory and the missing ones above it, 0700 each, durably; OSError if it fails."""
    try:
        directory.mkdir(mode=0o700)
    except FileNotFoundError:
        make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return
    above = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_directory(above)
    finally:
        os.close(above)


def sync(fd: int) -> None:
    """Bring a file to the disk; on macOS through the drive's own cache, where that is possible."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as bad:
            if bad.errno not in UNSUPPORTED:
                raise
        else:
            return
    os.fsync(fd)


def sync_directory(fd: int) -> None:
    """Bring a directory's names to the disk; a file system that cannot is not an error."""
    try:
        sync(fd)
    except OSError as bad:
        if bad.errno not in UNSUPPORTED:
            raise

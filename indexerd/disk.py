"""The file system for every package: atomic writes, durable directories, locks, rotated files.

On a full disk a write raises an OSError or a WriteError and leaves the old file as it was; a log
line is lost. Locks are flocks, which the kernel releases when the process ends. Lock files are
never removed, or two processes could each lock a different file of the same name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexerd.errors import AccessError, AlreadyRunningError, UsageError, WriteError
from indexerd.times import iso

POLL_SECONDS = 0.002
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_ROTATING = threading.RLock()  # reentrant, as a signal handler may log during a write


def write_atomically(
    path: Path, data: bytes, *, temp: str = "", ready: Callable[[Path], bool] = lambda _: True
) -> bool:
    """Replace a whole file, durably, with mode 0600. OSError leaves the old file as it was.

    `temp` is the start of the temporary file's name. Just before the rename, `ready(temporary
    file)` may change its mode and owner, or return False to keep the old file.
    """
    new = path.with_name(f".{temp or path.name}.{os.getpid()}.{time.time_ns()}.tmp")
    try:
        with open(os.open(new, _NEW, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if not ready(new):
            return False
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    sync_names(path.parent)
    return True


def create_file(path: Path, lines: Iterable[bytes]) -> int:
    """Write a new file for the user, durably, with mode 0600; return its number of lines.

    A failure leaves no file. UsageError: the file exists, or the path is invalid.
    """
    count = 0
    try:
        with open(os.open(path, _NEW, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
            try:
                for count, line in enumerate(lines, 1):  # noqa: B007 - returned
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                path.unlink()
                raise
    except OSError as bad:
        if bad.errno in (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            hint = "name a new file in an existing directory; files are never overwritten"
            raise UsageError(f"cannot write {path}: {bad.strerror}", hint=hint) from None
        raise WriteError(f"cannot write {path}: {bad.strerror}") from None
    sync_names(path.parent)
    return count


def set_time(path: Path, at_ms: int) -> None:
    """Set when a file counts as last changed, in milliseconds since the epoch."""
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def append_line(path: Path, line: bytes, *, durable: bool) -> None:
    """Append a line with one write(), after ending a torn last line. OSError if it fails."""
    fd = os.open(path, _APPEND, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size and os.pread(fd, 1, size - 1) != b"\n"  # by a crash or a full disk
        data = (b"\n" if torn else b"") + line + b"\n"
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, "short write")
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    if durable and not size:
        sync_names(path.parent)


def remove(path: Path) -> None:
    """Delete a file, a link, or a directory with all in it; a missing one is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents, 0700 each, durably."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_names(directory.parent)


def sync_names(directory: Path) -> None:
    """Flush a directory's entries to the disk, if the file system can."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as bad:
        if bad.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)


def hold(path: Path) -> int:
    """Lock a file until the process ends or closes the returned descriptor.

    AlreadyRunningError names the process that has it. AccessError: the file cannot be locked.
    """
    try:
        make_directory(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(fd, 100, 0).decode("ascii", "replace").strip() or "another process"
            pid = who.partition("(pid ")[2].partition(",")[0]
            hint = f"`indexerd status` shows it; `kill {pid or 'PID'}` stops it"
            os.close(fd)
            raise AlreadyRunningError(f"already running: {who}, on {path}", hint=hint) from None
    except OSError as bad:
        name = errno.errorcode.get(bad.errno or 0, "EIO")
        hint = "check the directory, or set INDEXERD_STATE_DIR to one on a local disk"
        message = f"{path} cannot be locked: {bad.strerror} ({name})"
        raise AccessError(message, hint=hint, upstream=name) from None
    with suppress(OSError):  # on a full disk lookups still work
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"indexerd (pid {os.getpid()}, since {iso(time.time())})\n".encode(), 0)
    return fd


def holds(path: Path, fd: int) -> bool:
    """Whether the path is still the locked file; if not, another process can lock it."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False


def lives(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


@contextmanager
def hold_directory(directory: Path, wait: float) -> Iterator[None]:
    """Lock a directory; WriteError if another holder keeps it for `wait` seconds.

    The flock is on the directory itself and belongs to the open file, so it excludes threads too.
    """
    fd, deadline = os.open(directory, os.O_RDONLY | os.O_CLOEXEC), time.monotonic() + wait
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WriteError(
                        f"{directory} is locked by another process",
                        hint="`lslocks` or `lsof` shows which; the write is retried",
                        upstream="EAGAIN",
                    ) from None
            time.sleep(POLL_SECONDS)
        yield
    finally:  # a forked child may have a copy of the descriptor: closing is not enough
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def append_rotating(path: Path, line: bytes, *, limit: int) -> bool:
    """Append a line. `path`, at most `limit` bytes, becomes `path.1`, and that `path.2`.

    Lines of several processes never mix. Returns whether the line was written; nothing is raised.
    """
    with _ROTATING, suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size + len(line) >= limit:
            older = path.with_name(f"{path.name}.1")
            with suppress(FileNotFoundError):
                older.replace(path.with_name(f"{path.name}.2"))
            path.replace(older)
        append_line(path, line, durable=False)
        return True
    return False

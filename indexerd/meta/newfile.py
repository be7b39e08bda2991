"""One new file that its user asked for, where nothing was before.

In: a path and lines. Out: that file, whole and durable, 0600. Unless that is asked for, never over
anything that has the name, a dangling symbolic link included; never where no directory is: a
session file is made beside others, or where the user said. A failure takes the unfinished file away
again; kill -9 can leave one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from indexerd.disk import sync, sync_directory
from indexerd.errors import AccessError, IndexerdError, UsageError, WriteError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISNAMED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})


def create(path: Path, lines: Iterable[bytes]) -> int:
    """Write a file that was not there; says how many lines it has.

    UsageError where something has the name, or none can have it: its directory is not there, it
    is too long. AccessError where the system denies it, WriteError when writing fails. What making
    the lines raises passes through, and no file is left.
    """
    try:
        fd = os.open(path, _CREATE, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists", hint="name another file; none is written over") from None
    except OSError as bad:
        raise _failed(path, bad) from None
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            count = _fill(file, lines)
    except BaseException as bad:
        with suppress(OSError):
            path.unlink()
        if isinstance(bad, OSError):
            raise _failed(path, bad) from None
        raise
    _settle(path.parent)
    return count


def put_over(path: Path, lines: Iterable[bytes]) -> int:
    """The same over a file that its user wants replaced: that one stays until all is written."""
    new = path.with_name(f".indexerd-{os.getpid()}.tmp")
    count = create(new, lines)
    try:
        new.rename(path)
    except OSError as bad:
        with suppress(OSError):
            new.unlink()
        raise _failed(path, bad) from None
    _settle(path.parent)
    return count


def _fill(file: BinaryIO, lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        file.write(line)
        count += 1
    file.flush()
    sync(file.fileno())
    return count


def _settle(directory: Path) -> None:
    """The name, too, is to survive a power cut; where a file system cannot, the file is whole."""
    with suppress(OSError):
        fd = os.open(directory, _DIRECTORY)
        try:
            sync_directory(fd)
        finally:
            os.close(fd)


def _failed(path: Path, bad: OSError) -> IndexerdError:
    number = bad.errno or 0
    told, upstream = f"cannot write {path}: {bad.strerror}", os.strerror(number)
    if number in _DENIED:
        hint = "check the owner and mode of the directory, or name another file"
        return AccessError(told, hint=hint, upstream=upstream)
    if number in _MISNAMED:
        hint = "name a file in a directory that is there"
        return UsageError(told, hint=hint, upstream=upstream)
    return WriteError(told, hint="check that there is space left", upstream=upstream)

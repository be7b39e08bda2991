"""A new file that its user asked for: a branch of a session, a page.

It is written whole and durably, 0600, where a directory is. Unless that is asked for, it is never
written over anything that has the name, a dangling symbolic link included. A failure takes the
unfinished file away again; kill -9 can leave one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexerd.disk import sync_names
from indexerd.errors import AccessError, UsageError, WriteError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(path: Path, lines: Iterable[bytes], *, over: bool = False) -> int:
    """Write a file that was not there; return how many lines it has.

    With `over` it may be there, and stays until all is written. UsageError where something has the
    name, or none can have it; AccessError where the system denies it, WriteError when writing
    fails. What making the lines raises passes through.
    """
    target = path.with_name(f".indexerd-{os.getpid()}.tmp") if over else path
    try:
        fd, count = os.open(target, _CREATE, 0o600), 0
        try:
            with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                for count, line in enumerate(lines, 1):  # noqa: B007 - returned
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if over:
                target.rename(path)
        except BaseException:
            with suppress(OSError):
                target.unlink()
            raise
    except FileExistsError:
        raise UsageError(
            f"{path} exists", hint="name another file; existing files are never overwritten"
        ) from None
    except OSError as bad:
        text, upstream = f"cannot write {path}: {bad.strerror}", os.strerror(bad.errno or 0)
        if bad.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "check the owner and mode of the directory, or name another file"
            raise AccessError(text, hint=hint, upstream=upstream) from None
        if bad.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP):
            hint = "name a file in a directory that is there"
            raise UsageError(text, hint=hint, upstream=upstream) from None
        raise WriteError(text, hint="check that there is space left", upstream=upstream) from None
    with suppress(OSError):  # where a file system cannot, the file is whole
        sync_names(path.parent)
    return count

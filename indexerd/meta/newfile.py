"""A new file that its user asked for: a branch of a session, a page."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexerd.disk import sync_names
from indexerd.errors import UsageError, WriteError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(path: Path, lines: Iterable[bytes]) -> int:
    """Write a file durably, 0600; return how many lines it has. A failure leaves nothing.

    UsageError where something has the name, or no file can have it; WriteError otherwise.
    """
    count = 0
    try:
        with open(os.open(path, _CREATE, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
            try:
                for count, line in enumerate(lines, 1):  # noqa: B007 - returned
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                with suppress(OSError):
                    path.unlink()
                raise
    except FileExistsError:
        hint = "name another file; existing files are never overwritten"
        raise UsageError(f"{path} exists", hint=hint) from None
    except OSError as bad:
        no_place = bad.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
        raise (UsageError if no_place else WriteError)(
            f"cannot write {path}: {bad.strerror}",
            hint="name a file in a directory that is there, is yours, and has space left",
        ) from None
    sync_names(path.parent)
    return count

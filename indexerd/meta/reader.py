"""Reads meta directories: meta files, the user's sidecars, digests.

Nothing is changed or moved: an invalid file counts as missing and stays where it is, until a
successful run writes it again. What cannot be read (EACCES, a directory, a FIFO, a symbolic link)
is an AccessError, not a missing file: a run that cannot see the old file must not pay for a new
one. A meta directory itself may be a symbolic link.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.errors import AccessError, InvalidMetaError
from indexerd.meta import model
from indexerd.meta.model import META_BYTES_MAX, MetaFile, UserFile
from indexerd.paths import META_SUFFIX, USER_SUFFIX, is_session_id, meta_name

DIGEST_SUFFIX = ".digest.jsonl"
_MISSING = (FileNotFoundError, NotADirectoryError)


class Stamp(NamedTuple):
    """The version of a file: a later one has another time, size or inode."""

    mtime_ns: int
    size: int  # bytes
    ino: int


Stamps = tuple[Stamp | None, Stamp | None]  # of a session's meta file and its sidecar


def digest_name(session_id: str) -> str:
    return meta_name(session_id).removesuffix(META_SUFFIX) + DIGEST_SUFFIX


def read_meta(path: Path) -> MetaFile | None:
    """Read a meta file; None if it is missing, InvalidMetaError with the upstream text."""
    data = read(path)
    return None if data is None else model.parse_meta(data, str(path))


def read_user(path: Path) -> UserFile | None:
    """Read a user's sidecar; None if it is missing.

    An InvalidMetaError must reach the user instead of being written over: unlike a meta file,
    the sidecar holds words that nobody can generate again.
    """
    data = read(path)
    return None if data is None else model.parse_user(data, str(path))


def read_digest(path: Path) -> list[dict[str, Any]]:
    return model.parse_digest(digest_bytes(path))


def digest_bytes(path: Path) -> bytes:
    """Read a digest unparsed, empty if it is missing; InvalidMetaError if it is too long."""
    data = read(path) or b""
    if len(data) > META_BYTES_MAX:
        hint = "move it away, or remove lines that you no longer need"
        raise InvalidMetaError(f"{path} is longer than {META_BYTES_MAX:,} bytes", hint=hint)
    return data


def stamp(path: Path) -> Stamp | None:
    """Give the version of a file, without following a link; None if it is missing.

    Taken *before* the file is read, it makes a later change visible to `MetaWriter`'s `expect`.
    """
    try:
        return _stamp(path.lstat())
    except _MISSING:
        return None
    except OSError as bad:
        raise _access_error(bad, path) from bad


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)


def scan(directory: Path) -> dict[str, Stamps]:
    """Find the meta files and sidecars of a directory by session; links are passed over."""
    sessions: dict[str, Stamps] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                session_id = session_of(entry.name)
                if session_id and entry.is_file(follow_symlinks=False):
                    meta, user = sessions.get(session_id, (None, None))
                    is_meta = entry.name.endswith(META_SUFFIX)
                    with suppress(FileNotFoundError):
                        found = _stamp(entry.stat(follow_symlinks=False))
                        sessions[session_id] = (found, user) if is_meta else (meta, found)
    except FileNotFoundError:
        return {}
    except OSError as bad:
        raise _access_error(bad, directory) from bad
    return sessions


def session_of(name: str) -> str | None:
    for suffix in (META_SUFFIX, USER_SUFFIX):
        if name.endswith(suffix) and is_session_id(found := name.removesuffix(suffix)):
            return found
    return None


def read(path: Path) -> bytes | None:
    """Read a regular file, at most one byte more than allowed, so that it can be refused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if not modes.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AccessError(f"{path} is not a regular file", hint="move it out of the way")
            return file.read(META_BYTES_MAX + 1)
    except _MISSING:
        return None
    except OSError as bad:
        raise _access_error(bad, path) from bad


def _access_error(bad: OSError, path: Path) -> AccessError:
    name = errno.errorcode.get(bad.errno or 0, "EIO")
    error = AccessError(f"{path} cannot be read: {bad.strerror} ({name})", upstream=name)
    error.retryable = bad.errno not in (errno.EACCES, errno.EPERM)
    return error

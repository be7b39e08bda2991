"""The only code that opens a meta file or its sidecar for writing.

A write is a new file beside the target (`.<id>.<pid>.<n>.tmp`, created O_EXCL, 0600), written
whole, fsynced, renamed over the target, and the directory fsynced. What this guarantees:

* When a call returns, the content is on the disk, as far as fsync says the truth. That holds for
  `changed=False` too: content found equal is fsynced before anyone is told that it is there.
* A reader sees the old file or the new one, whole. kill -9 or a power cut inside a call leaves one
  of them, and at most one temporary file, which readers ignore and `sweep` removes.
* A failure before the rename leaves the old file untouched; one after it (fsync of the directory)
  leaves the new file in place, durable or not. Both raise WriteError. No descriptor is fsynced
  again after a failed fsync: the kernel has marked its pages clean and would say yes.
* Writers in this and in other processes go one at a time per directory (`hold_directory`).
* `expect` guards against writers that know nothing of the lock, as pi's `session-index` does.
  It is compared at the start and again right before the rename; a foreign rename within the
  microseconds between those last two calls is not seen.

Not promised: modes, owners, extended attributes and times of the old file, and anything on a file
system that cannot fsync a directory.

Names are built from checked ids and used relative to an open directory. The directory may
be a symbolic link, and is created 0700 where it is missing; a link in the target's place is
replaced, not followed; a directory, FIFO, socket or device there is an error that names it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any, BinaryIO

from indexerd.disk import hold_directory, lives, make_directory, sync_directory
from indexerd.errors import WriteError
from indexerd.meta.model import META_BYTES_MAX, MetaFile, UserFile
from indexerd.meta.reader import OPEN_FLAGS, Stamp, digest_name
from indexerd.paths import META_SUFFIX, SESSION_ID, meta_name, user_name

LOCK_WAIT_SECONDS = 10.0  # a write takes milliseconds; who holds the directory longer is stuck
FOREIGN_TEMP_SECONDS = 3600.0  # a temporary file of a living process is stale after this

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OWN_TEMP = re.compile(rf"\.({SESSION_ID.pattern})\.([0-9]{{1,19}})\.[0-9]{{1,19}}\.tmp")
# What upstream's extension writes before its rename: `<file>.<pid>.<milliseconds>.tmp`.
_UPSTREAM_TEMP = re.compile(
    rf"({SESSION_ID.pattern}){re.escape(META_SUFFIX)}\.([0-9]{{1,19}})\.[0-9]{{1,19}}\.tmp"
)
_HINTS = {
    errno.ENOSPC: "free some space on that disk; it is tried again",
    errno.EDQUOT: "your disk quota is used up: free some space; it is tried again",
    errno.EROFS: "the file system is mounted read-only; mount it writable, or set meta_dir",
    errno.EACCES: "check the owner and mode of the directory, or set meta_dir to another one",
    errno.EPERM: "check the owner and mode of the directory, or set meta_dir to another one",
    errno.EEXIST: "something that is not a directory is in the way; move it",
    errno.ENOTDIR: "something that is not a directory is in the way; move it",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is as it was asked for, durably. `stamp` is that of our version of it."""

    path: Path
    bytes: int  # length of the file
    changed: bool  # False: it already held exactly this, and nothing was written
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was written: the file is no longer the one expected. Read it again and decide."""

    path: Path
    found: Stamp | None  # None: it is gone


Expected = Stamp | EllipsisType | None  # `...`: whatever is there


class MetaWriter:
    """Writes meta files and sidecars. Thread-safe; every call blocks for a few milliseconds.

    `lock_wait` is how many seconds a call waits for another writer of the same directory.
    Anything that goes wrong is a WriteError whose `upstream` is the errno's name, for example
    ENOSPC; an id that may not be in a file name is a UsageError.
    """

    def __init__(self, *, lock_wait: float = LOCK_WAIT_SECONDS) -> None:
        self._lock_wait = lock_wait
        self._doubtful: set[Path] = set()  # may have been lost by a failed fsync: never skipped

    def write_meta(
        self, directory: Path, meta: MetaFile, *, expect: Expected = ...
    ) -> Written | Conflict:
        """Write `<id>.meta.json`; with `expect`, only if the file is still that version.

        `expect=None` means that there was no file. A file that holds this very content is no
        conflict, whatever its version: so a write that failed half-way may simply be repeated.
        """
        path = directory / meta_name(meta.session_id)
        return self._put(path, meta.to_json, expect)

    def write_user(self, directory: Path, session_id: str, user: UserFile) -> Written | Conflict:
        """Write `<id>.user.json`. Read it first: what is not in `user` is gone afterwards."""
        return self._put(directory / user_name(session_id), user.to_json)

    def write_digest(
        self, directory: Path, session_id: str, segments: Iterable[Mapping[str, Any] | bytes]
    ) -> Written | Conflict:
        """Write `<id>.digest.jsonl` anew with all its lines; bytes are lines as they stood."""

        def encode() -> bytes:
            return b"".join(_line(one) + b"\n" for one in segments)

        return self._put(directory / digest_name(session_id), encode)

    def remove(self, directory: Path, session_id: str) -> tuple[Path, ...]:
        """Remove what is ours of a session, temporary files included; say what was removed."""
        ours = [meta_name(session_id), user_name(session_id), digest_name(session_id)]

        def chosen(fd: int) -> list[str]:
            return ours + [name for name in os.listdir(fd) if _temp_of(name)[0] == session_id]

        return self._clear(directory, "cleared", chosen)

    def sweep(self, directory: Path) -> int:
        """Remove temporary files that dead writers left; return how many. To be called at start.

        While we hold the directory no writer of ours is at work in it, so that one with our own
        pid, or with a dead one, is an orphan. A living pid may be a later process that got the
        same number, or a writer that the flock does not bind: its file is stale after an hour.
        """

        def chosen(fd: int) -> list[str]:
            return [name for name in os.listdir(fd) if _is_stale(fd, name)]

        return len(self._clear(directory, "swept", chosen))

    def _clear(
        self, directory: Path, done: str, chosen: Callable[[int], list[str]]
    ) -> tuple[Path, ...]:
        with _reported(directory, done):
            if not directory.is_dir():
                return ()
            with self._locked(directory) as fd:
                names = chosen(fd)
                gone = tuple(directory / name for name in names if _unlink(fd, name, directory))
                if gone:
                    sync_directory(fd)
                return gone

    def _put(
        self, path: Path, encode: Callable[[], bytes], expect: Expected = ...
    ) -> Written | Conflict:
        try:
            data = encode()
        except (ValueError, TypeError, RecursionError) as bad:
            raise _unwritable(
                f"{path} was not written: its content cannot be put into JSON",
                hint="numbers must be finite, and nesting shallow",
            ) from bad
        if len(data) > META_BYTES_MAX:
            raise _unwritable(
                f"{path} would have {len(data):,} bytes, more than a reader takes",
                hint=f"at most {META_BYTES_MAX:,} bytes; leave out what is not needed",
                upstream="EFBIG",
            )
        with _reported(path), self._locked(path.parent, create=True) as fd:
            found, wanted = _version(fd, path), expect
            if found is not None and found.size == len(data) and _reads_as(fd, path.name, data):
                if path not in self._doubtful:
                    self._secure(fd, path)
                    return Written(path, len(data), changed=False, stamp=found)
                wanted = found  # ours already, renamed before an fsync failed: that is no conflict
            elif expect is not ... and found != expect:
                return Conflict(path, found)
            result = self._replace(fd, path, data, wanted)
            if isinstance(result, Conflict) and expect is ...:
                raise WriteError(f"{path} was changed by another program")
            return result

    def _secure(self, fd: int, path: Path) -> None:
        """Make durable what was found equal."""
        with _opened(fd, path.name) as file:
            self._doubtful.add(path)
            os.fsync(file.fileno())
            sync_directory(fd)
            self._doubtful.discard(path)

    def _replace(self, fd: int, path: Path, data: bytes, expect: Expected) -> Written | Conflict:
        with _temp(fd, path, data) as (temp, stamp):
            if expect is not ...:
                found = _version(fd, path)
                if found != expect:
                    _discard(fd, temp)
                    return Conflict(path, found)
            self._doubtful.add(path)
            os.rename(temp, path.name, src_dir_fd=fd, dst_dir_fd=fd)
        sync_directory(fd)
        self._doubtful.discard(path)
        return Written(path, len(data), changed=True, stamp=stamp)

    @contextlib.contextmanager
    def _locked(self, directory: Path, *, create: bool = False) -> Iterator[int]:
        """Open a directory and hold it against every other writer."""
        try:
            fd = os.open(directory, _DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
            make_directory(directory)
            fd = os.open(directory, _DIRECTORY)
        try:
            with hold_directory(fd, directory, self._lock_wait):
                yield fd
        finally:
            os.close(fd)


def _unwritable(text: str, **more: str) -> WriteError:
    error = WriteError(text, **more)
    error.retryable = False
    return error


def _line(segment: Mapping[str, Any] | bytes) -> bytes:
    if isinstance(segment, bytes):
        return segment
    return json.dumps(segment, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


@contextlib.contextmanager
def _temp(fd: int, path: Path, data: bytes) -> Iterator[tuple[str, Stamp]]:
    """Write a durable temporary file beside the target; remove it when the block fails."""
    name = f".{path.name.rsplit('.', 2)[0]}.{os.getpid()}.{time.time_ns()}.tmp"
    temp = os.open(name, _CREATE, 0o600, dir_fd=fd)
    try:
        try:
            stamp = _fill(temp, data)
        finally:
            os.close(temp)  # before the rename: a network file system may fail only here
        yield name, stamp
    except BaseException:
        _discard(fd, name)
        raise


def _discard(fd: int, name: str) -> None:
    with contextlib.suppress(OSError):  # it stays for `sweep`, which tries again
        os.unlink(name, dir_fd=fd)


def _reads_as(fd: int, name: str, data: bytes) -> bool:
    """Say whether a file holds this; one that cannot be read, or is a link, does not."""
    with contextlib.suppress(OSError), _opened(fd, name) as file:
        return file.read(len(data) + 1) == data
    return False


def _opened(fd: int, name: str) -> BinaryIO:
    return open(name, "rb", opener=lambda name, _: os.open(name, OPEN_FLAGS, dir_fd=fd))


def _fill(fd: int, data: bytes) -> Stamp:
    """Write everything, durably, and look whether it is there."""
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if written == 0:
            raise OSError(errno.EIO, "the system takes no more bytes, and does not say why")
        rest = rest[written:]
    os.fsync(fd)
    found = os.fstat(fd)
    if found.st_size != len(data):
        raise OSError(errno.EIO, "the file came out shorter than what was written")
    return Stamp.of(found)


def _version(fd: int, path: Path) -> Stamp | None:
    """Stamp what is in the target's place; what may not be replaced is an error."""
    try:
        found = os.stat(path.name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "a FIFO, socket or device"
        raise WriteError(
            f"{path} is {kind}, and no meta file can be written there",
            hint=f"move {path} out of the way; it is tried again",
            upstream="EISDIR" if stat.S_ISDIR(found.st_mode) else "EEXIST",
        )
    return Stamp.of(found)


def _temp_of(name: str) -> tuple[str, int]:
    """Whose temporary file a name is: session id and pid; ("", 0) for any other file."""
    found = _OWN_TEMP.fullmatch(name) or _UPSTREAM_TEMP.fullmatch(name)
    return (found[1], int(found[2])) if found else ("", 0)


def _is_stale(fd: int, name: str) -> bool:
    session_id, pid = _temp_of(name)
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False) if session_id else None
    except FileNotFoundError:
        return False
    if found is None or stat.S_ISDIR(found.st_mode):
        return False
    orphan = pid == os.getpid() or not lives(pid)
    return orphan or time.time() - found.st_mtime > FOREIGN_TEMP_SECONDS


def _unlink(fd: int, name: str, directory: Path) -> bool:
    """Unlink a name and say whether it was there; a directory of that name is an error."""
    with _reported(directory / name, "removed"):
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return False
    return True


@contextlib.contextmanager
def _reported(path: Path, done: str = "written") -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as bad:
        number = bad.errno or errno.EIO
        name = errno.errorcode.get(number, str(number))
        where = str(bad.filename or "")
        because = f"{where}: {bad.strerror}" if where.startswith("/") else bad.strerror
        text = f"{path} could not be {done}: {because} ({name})"
        raise WriteError(text, hint=_HINTS.get(number), upstream=name) from bad

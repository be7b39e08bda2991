"""The only code that writes meta files, sidecars and digests.

A write creates a file next to the target (`.<id>.<pid>.<n>.tmp`, O_EXCL, 0600), writes and fsyncs
it, renames it over the target, and fsyncs the directory. This guarantees:

* When a call returns, the content is on the disk, if fsync keeps its promise.
* A reader sees either the whole old file or the whole new one. kill -9 or a power cut during a call
  leaves one of them, and at most one temporary file, which readers ignore and `sweep` removes.
* Writers in this and other processes take turns in each directory (`hold_directory`).
* `expect` guards against writers that ignore the lock, such as pi's `session-index`. It is compared
  right before the rename; a foreign rename in between is not noticed.

If the target is a link, it is replaced, not followed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import EllipsisType

from indexerd.disk import hold_directory, lives, make_directory, sync_names, write_atomically
from indexerd.errors import AccessError, NotFoundError, WriteError
from indexerd.meta.model import META_BYTES_MAX, MetaFile, Stamp, UserFile, digest_name, read, stamp
from indexerd.paths import META_SUFFIX, SESSION_ID, meta_name, user_name

LOCK_WAIT_SECONDS = 10.0  # a write takes milliseconds: a process that holds the lock longer hangs

# Ours, and pi's session-index: `<id>.meta.json.<pid>.<milliseconds>.tmp`.
_TEMP = re.compile(rf"\.?({SESSION_ID.pattern})\.([0-9]{{1,19}})\.[0-9]{{1,19}}\.tmp")

Expected = Stamp | EllipsisType | None  # `...`: whatever is there; None: nothing


class MetaWriter:
    """Writes meta files, sidecars and digests. Thread-safe; a call blocks for milliseconds.

    A failure is a WriteError whose `upstream` is the errno's name, for example ENOSPC; an id that
    is not allowed in a file name is a UsageError, a `forgotten` session a NotFoundError. The latter
    is checked under the lock: a cancelled write still happens once its thread has started.
    """

    def __init__(self, forgotten: Collection[str] = ()) -> None:
        self._forgotten = forgotten

    def write_meta(self, directory: Path, meta: MetaFile, *, expect: Expected = ...) -> bool:
        """Write `<id>.meta.json`, or return False if the file differs from `expect`.

        A file that already has this content counts as expected, so that a write that failed
        half-way can be repeated.
        """
        session_id = meta.session_id
        return self._put(directory / meta_name(session_id), session_id, meta.to_json(), expect)

    def write_user(self, directory: Path, session_id: str, user: UserFile) -> None:
        """Replace `<id>.user.json`. Read it first: whatever is not in `user` is lost."""
        self._put(directory / user_name(session_id), session_id, user.to_json())

    def write_digest(self, directory: Path, session_id: str, lines: Iterable[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        self._put(directory / digest_name(session_id), session_id, data)

    def remove(self, directory: Path, session_id: str) -> list[Path]:
        """Remove a session's files and temporary files; return those that were removed."""
        ours = {meta_name(session_id), user_name(session_id), digest_name(session_id)}
        return self._clear(directory, lambda p: p.name in ours or _owner(p)[0] == session_id)

    def sweep(self, directory: Path) -> int:
        """Remove temporary files of dead writers at the start, and count them.

        While we hold the lock no writer of ours is active, so a file with our own pid or a dead
        process's is an orphan. Another living process may be a writer that ignores the lock.
        """
        return len(self._clear(directory, _is_stale))

    def _clear(self, directory: Path, chosen: Callable[[Path], bool]) -> list[Path]:
        if not directory.is_dir():
            return []
        with _reported(directory, "cleared"), hold_directory(directory, LOCK_WAIT_SECONDS):
            gone = sorted(filter(chosen, directory.iterdir()))
            for file in gone:
                file.unlink()
            sync_names(directory)
            return gone

    def _put(self, path: Path, session_id: str, data: bytes, expect: Expected = ...) -> bool:
        if len(data) > META_BYTES_MAX:
            error = WriteError(f"{path} would be longer than {META_BYTES_MAX:,} bytes")
            error.retryable = False
            raise error

        def is_expected(_temp: Path) -> bool:
            if expect is ... or stamp(path) == expect:
                return True
            with suppress(AccessError):
                return read(path) == data
            return False

        with _reported(path, "written"):
            make_directory(path.parent)
            with hold_directory(path.parent, LOCK_WAIT_SECONDS):
                if session_id in self._forgotten:
                    raise NotFoundError("the session was purged")
                return write_atomically(path, data, temp=session_id, ready=is_expected)


def _owner(temp: Path) -> tuple[str, int]:
    """Return the session id and pid of a temporary file; ("", 0) for any other file."""
    match = _TEMP.fullmatch(temp.name)
    return (match[1].removesuffix(META_SUFFIX), int(match[2])) if match else ("", 0)


def _is_stale(temp: Path) -> bool:
    session_id, pid = _owner(temp)
    return bool(session_id) and not temp.is_dir() and (pid == os.getpid() or not lives(pid))


@contextmanager
def _reported(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as bad:
        name = errno.errorcode.get(bad.errno or errno.EIO, "EIO")
        text = f"{path} could not be {done}: {bad.strerror} ({name})"
        hint = "check the free disk space, the directory's owner and mode, and what is at that path"
        raise WriteError(text, hint=hint, upstream=name) from bad

"""A file of lines that is only appended to, and cannot grow without bound.

In: complete lines as bytes. Out: `path`, with the older lines in `path.1`, `path.2`, … Each
line is one write() to a file opened with O_APPEND, so lines of several processes never mix;
files are 0600, and neither a symlink nor anything but a regular file is written to.

The file is opened for each line: it costs some microseconds, holds no descriptor, and goes
on by itself after a rotation, by us or by another, and after the directory was removed. A
line that was cut by a crash or a full disk is closed off, so that it spoils no other. Nothing
is raised: a line that cannot be written is lost, and the answer says so.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WIDE = stat.S_IRWXG | stat.S_IRWXO


class RotatingFile:
    """Lines in `path`, rotated before they would exceed `limit` bytes; `keep` old files stay."""

    def __init__(self, path: Path, *, limit: int, keep: int = 2) -> None:
        self.path = path
        self.limit = limit
        self.keep = keep
        # Reentrant, as a signal handler may log while the main thread is writing a line.
        self._lock = threading.RLock()

    def append(self, line: bytes) -> bool:
        """Write one line, without its line end; says whether it was written whole."""
        with self._lock:
            try:
                with self._opened() as file:
                    if not self._is_full(file, len(line)):
                        return _write(file, line)
                    self._rotate(file)
                with self._opened() as file:
                    return _write(file, line)
            except OSError:
                return False

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            file = os.open(self.path, _FLAGS, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.path, _FLAGS, 0o600)
        try:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                raise OSError("not a regular file")
            if mode & _WIDE:
                os.fchmod(file, 0o600)
            yield file
        finally:
            os.close(file)

    def _is_full(self, file: int, more: int) -> bool:
        size = os.fstat(file).st_size
        return size > 0 and size + more + 1 > self.limit

    def _rotate(self, file: int) -> None:
        """Move the files on by one, unless another process is doing so, or has done so."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.lstat(self.path)):
                self._move_on()

    def _move_on(self) -> None:
        for number in range(self.keep, 1, -1):
            with suppress(FileNotFoundError):
                self._old(number - 1).replace(self._old(number))
        self.path.replace(self._old(1))

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _write(file: int, line: bytes) -> bool:
    size = os.fstat(file).st_size
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    data = (b"\n" if torn else b"") + line + b"\n"
    return os.write(file, data) == len(data)

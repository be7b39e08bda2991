"""An append-only file of JSON rows in which every row is on disk before `append` returns.

Used for the budget: what was reserved must be known after a power cut (M15). A torn last row,
which a crash may leave, is passed over when read, and the next row starts on a line of its own.

`Slot` is the other kind of memory of what we were doing: a note in a file that stays open, without
a sync. It costs microseconds, and outlives the process, but not the system.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

READ_MAX = 8 * 1024 * 1024  # newest bytes that are read back: weeks of rows
LONG = 4 * 1024 * 1024  # bytes of a file that is worth being made shorter

_NOTE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FLAGS = _NOTE | os.O_APPEND


class Journal:
    """One file. OSError from either method is the caller's to judge."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row, durably; several milliseconds on a real disk."""
        data = json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        fd = os.open(self._path, _FLAGS, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
            if os.write(fd, data) != len(data):
                raise OSError("short write")
            os.fsync(fd)
        finally:
            os.close(fd)
        if not size:
            _sync_directory(self._path.parent)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, oldest first; none where there is no file yet."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            start = max(0, os.fstat(fd).st_size - READ_MAX)
            data = os.pread(fd, READ_MAX, start)
        finally:
            os.close(fd)
        for line in data.split(b"\n")[1 if start else 0 :]:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row

    def is_long(self) -> bool:
        """Whether the file has grown so much that old rows should go."""
        try:
            return self._path.lstat().st_size > LONG
        except FileNotFoundError:
            return False

    def shorten(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep these rows alone. Durably: after a crash it is the old file or the new one, whole.

        Nobody may append meanwhile.
        """
        lines = (json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n" for row in rows)
        data = "".join(lines).encode()
        new = self._path.with_name(f".{self._path.name}.tmp")
        with suppress(FileNotFoundError):
            new.unlink()  # of a crash on the way
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            file.flush()
            os.fsync(fd)
        new.rename(self._path)
        _sync_directory(self._path.parent)


class Slot:
    """One note, overwritten in place. Where it cannot be kept, nothing is said of that."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, _NOTE, 0o600)
        except OSError:
            self._fd = -1

    def read(self, most: int) -> bytes:
        """What is there, with what longer notes left behind it; b"" where nothing can be read."""
        if self._fd >= 0:
            with suppress(OSError):
                return os.pread(self._fd, most, 0)
        return b""

    def write(self, data: bytes) -> None:
        """Put a note over the beginning of the last."""
        if self._fd >= 0:
            with suppress(OSError):
                os.pwrite(self._fd, data, 0)

    def close(self) -> None:
        """Let go of the file, which stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

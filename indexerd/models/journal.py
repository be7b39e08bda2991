"""An append-only file of JSON rows; every row is on disk before `append` returns.

A torn last row, which a crash may leave, is skipped when rows are read, and the next row starts on
a line of its own. An OSError is for the caller to handle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from indexerd.disk import sync, sync_names, write_atomically

READ_MAX = 8 * 1024 * 1024  # newest bytes that are read back: weeks of rows
LONG = 4 * 1024 * 1024  # bytes of a file that is worth shortening
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Journal:
    """One file of rows of the type `row_type`; others are skipped."""

    def __init__(self, path: Path, row_type: Any = dict) -> None:
        self._path = path
        self._type = row_type

    def append(self, row: Any) -> None:
        """Write one row durably; several milliseconds on a real disk."""
        data = _line(row)
        fd = os.open(self._path, _FLAGS, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
            if os.write(fd, data) != len(data):
                raise OSError("short write")
            sync(fd)
        finally:
            os.close(fd)
        if not size:
            sync_names(self._path.parent)

    def rows(self) -> Iterator[Any]:
        """Yield the valid rows, oldest first; none where there is no file yet."""
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
            with suppress(ValueError, RecursionError, msgspec.ValidationError):
                yield msgspec.convert(json.loads(line, parse_constant=_no_nan), self._type)

    def is_long(self) -> bool:
        """Whether the file has grown so much that old rows should go."""
        return self._path.exists() and self._path.lstat().st_size > LONG

    def shorten(self, rows: Iterable[Any]) -> None:
        """Keep only these rows: after a crash the file is the old or the new one, whole."""
        write_atomically(self._path, b"".join(map(_line, rows)))


def _line(row: Any) -> bytes:
    plain = msgspec.to_builtins(row)
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _no_nan(word: str) -> float:
    raise ValueError(f"{word} is not JSON")

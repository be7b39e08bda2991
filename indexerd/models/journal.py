"""An append-only file of JSON rows; every row is on disk before `append` returns.

A crash may tear the last row: readers skip it. The caller handles OSError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from indexerd.disk import append_line, write_atomically


class Journal:
    """One file of rows of the type `row_type`; other rows are skipped."""

    def __init__(self, path: Path, row_type: Any = dict) -> None:
        self._path = path
        self._decode = msgspec.json.Decoder(row_type).decode

    def append(self, row: Any) -> None:
        """Write one row durably; several milliseconds on a real disk."""
        append_line(self._path, msgspec.json.encode(row), durable=True)

    def rows(self) -> Iterator[Any]:
        """Yield the valid rows, oldest first; none if there is no file yet."""
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().split(b"\n"):
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    yield self._decode(line)

    def rewrite(self, rows: Iterable[Any]) -> None:
        """Replace the file atomically by these rows."""
        write_atomically(self._path, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))

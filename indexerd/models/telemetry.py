"""The audit trail of model calls: one row for each request, in `<state dir>/telemetry.jsonl`.

It says what was sent when to which model, for how much, with how many redactions; it holds no text
of sessions, prompts or replies. Rotated at 16 MiB, two old files are kept; a row that cannot be
written is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from indexerd.disk import append_rotating
from indexerd.privacy.sanitize import replace_surrogates

INDEX = "session-index:index"
INJECT = "session-reference:inject"
QUERY = "query-session:query_session"
DIGEST = "digest:segment"

READ_MAX = 4 * 1024 * 1024  # bytes of a file that are read back
ROWS_MAX = 50
_CALLS = (INDEX, QUERY, DIGEST)


class Telemetry:
    """Rows in `path`, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row if possible."""
        line = replace_surrogates(json.dumps(row, ensure_ascii=False)).encode()
        append_rotating(self._path, line, limit=16 * 1024 * 1024)


def rows_of(path: Path, session_id: str) -> list[dict[str, Any]]:
    """Return the newest model calls for a session, newest first; reads files."""
    return [*islice(_rows_of(path, session_id), ROWS_MAX)]


def _rows_of(path: Path, session_id: str) -> Iterator[dict[str, Any]]:
    for one in (path, path.with_name(f"{path.name}.1")):  # the latter was rotated away
        with suppress(OSError), one.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - READ_MAX))
            for line in reversed(file.read().split(b"\n")):
                with suppress(ValueError, AttributeError):  # torn, or not a row
                    row = json.loads(line)
                    if row.get("sessionId") == session_id and row.get("customType") in _CALLS:
                        yield row

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

import msgspec

from indexerd.disk import RotatingFile
from indexerd.privacy.sanitize import clean_line, replace_surrogates

INDEX = "session-index:index"
INJECT = "session-reference:inject"
QUERY = "query-session:query_session"
DIGEST = "digest:segment"

READ_MAX = 4 * 1024 * 1024  # bytes of a file that are read back
ROWS_MAX = 50
ERROR_MAX = 500  # characters


class AuditRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One request to a model.

    `bytes` were sent, it took `ms`; `by` is "user" or "daemon". The range is the path up to the
    entry `leaf_id`, after the entry `since` if that is set.
    """

    custom_type: str
    success: bool
    session_id: str
    model: str
    timestamp: str
    usage: dict[str, int | float | None] | None = None
    error: str | None = None
    redactions: dict[str, int] | None = None
    attempt: int | None = None
    bytes: int | None = None
    ms: int | None = None
    by: str | None = None
    leaf_id: str | None = None
    since: str | None = None
    task: str | None = None
    covering_messages: tuple[int, int] | None = msgspec.field(
        default=None, name="covering_messages"
    )


class Telemetry:
    """Rows in `path`, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFile(path, limit=16 * 1024 * 1024)

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row if possible."""
        self._file.append(replace_surrogates(json.dumps(row, ensure_ascii=False)).encode())


def audit_row(kind: str, **fields: Any) -> dict[str, Any]:
    """Build the row of a request from fields of `AuditRow`."""
    if error := fields.get("error"):
        fields["error"] = clean_line(error, ERROR_MAX)
    row: dict[str, Any] = msgspec.to_builtins(AuditRow(custom_type=kind, **fields))
    return row


def rows_of(path: Path, session_id: str) -> list[dict[str, Any]]:
    """Return the newest rows about a session, newest first; blocks while it reads the files."""
    return [*islice(_rows_of(path, session_id), ROWS_MAX)]


def _rows_of(path: Path, session_id: str) -> Iterator[dict[str, Any]]:
    for one in (path, path.with_name(f"{path.name}.1")):  # the latter was rotated away
        with suppress(OSError), one.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - READ_MAX))
            for line in reversed(file.read().split(b"\n")):
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    row = msgspec.json.decode(line, type=AuditRow)
                    if row.custom_type in (INDEX, QUERY, DIGEST) and row.session_id == session_id:
                        shown = msgspec.to_builtins(row)
                        if covering := shown.pop("covering_messages", None):
                            shown["coveringMessages"] = covering
                        yield shown

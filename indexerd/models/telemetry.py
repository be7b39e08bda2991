"""The audit trail of model calls: one row for each request, in `<state dir>/telemetry.jsonl`.

What was sent, when, to which model, for how much, with how many redactions; never
transcript text, prompts, questions or replies. JSON lines, 0600, rotated at 16 MiB with two old
files kept. A row that cannot be written is lost: nothing depends on it. What is read back may be
by any hand: a line that is no row is skipped, and texts are cleaned and cut.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from indexerd.disk import RotatingFile
from indexerd.errors import IndexerdError
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.sources.tail import opened

INDEX = "session-index:index"
INJECT = "session-reference:inject"
QUERY = "query-session:query_session"
DIGEST = "digest:segment"

LIMIT_BYTES, KEPT_FILES = 16 * 1024 * 1024, 2
READ_MAX = 4 * 1024 * 1024  # bytes that are read back
ROWS_MAX = 50
ERROR_MAX = 500  # characters
_ROW_MAX = 64 * 1024  # bytes; a longer row is no row of ours
_TEXTS = {"error": ERROR_MAX, "leaf_id": 128, "since": 128}
_TEXTS |= {"model": 128, "timestamp": 40, "by": 32, "task": 32}

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1 << 53)]


class TokenUsage(msgspec.Struct, rename="camel"):
    """What a call took; None where the provider did not say."""

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cost_usd: _Amount | None = None


class AuditRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One request to a model, for indexing, a question or a summary.

    `bytes` is what was sent, `ms` how long it took; `by` is "user" or "daemon". The range that was
    sent is the path up to the entry `leaf_id`, after the entry `since` where that is set.
    """

    custom_type: str
    success: bool
    session_id: str
    model: str
    timestamp: str
    usage: TokenUsage | None = None
    error: str | None = None
    redactions: dict[str, _Count] | None = None
    attempt: _Count | None = None
    bytes: _Count | None = None
    ms: _Count | None = None
    by: str | None = None
    leaf_id: str | None = None
    since: str | None = None
    task: str | None = None
    covering_messages: tuple[_Count, _Count] | None = msgspec.field(
        default=None, name="covering_messages"
    )

    def cleaned(self) -> dict[str, Any]:
        """Return the row as JSON has it, with its texts safe to show, and cut."""
        held = {name: getattr(self, name) for name in _TEXTS}
        texts = {name: clean_line(text, _TEXTS[name]) for name, text in held.items() if text}
        row: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, **texts))
        return row


class Telemetry:
    """Rows in `path`, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFile(path, limit=LIMIT_BYTES, keep=KEPT_FILES)

    def append(self, row: Mapping[str, Any]) -> bool:
        """Write a row; False if it was not written. Never raises."""
        try:
            line = replace_surrogates(
                json.dumps(dict(row), ensure_ascii=False, allow_nan=False)
            ).encode()
        except (TypeError, ValueError, RecursionError):
            return False
        return len(line) <= _ROW_MAX and self._file.append(line)


def audit_row(
    kind: str, *, usage: Mapping[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """Build the row of an attempt, from fields of `AuditRow`."""
    row = AuditRow(custom_type=kind, **fields).cleaned()
    return row if usage is None else row | {"usage": dict(usage)}


def rows_of(path: Path, session_id: str, most: int = ROWS_MAX) -> list[dict[str, Any]]:
    """Return the newest rows about a session, newest first; blocks while READ_MAX are read."""
    found: list[dict[str, Any]] = []
    for line in _newest_lines(path):
        if len(found) == most or session_id.encode() not in line or len(line) > _ROW_MAX:
            continue
        try:
            row = msgspec.json.decode(line, type=AuditRow)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
        if row.custom_type in (INDEX, QUERY, DIGEST) and row.session_id == session_id:
            plain = row.cleaned()
            del plain["sessionId"]
            if covering := plain.pop("covering_messages", None):
                plain["coveringMessages"] = list(covering)
            found.append(plain)
    return found


def _newest_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of the file, and of the one that was rotated away before it, backwards."""
    left = READ_MAX
    for one in (path, path.with_name(f"{path.name}.1")):
        try:
            with opened(str(one), own=True) as fd:
                size = os.fstat(fd).st_size
                data = os.pread(fd, left, max(0, size - left))
        except (OSError, IndexerdError):
            continue
        lines = data.split(b"\n")
        yield from reversed(lines[1:] if len(data) < size else lines)
        left -= len(data)
        if left <= 0:
            return

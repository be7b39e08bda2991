"""The audit trail, read back: what was asked of models about one session, newest first.

In: the path of `telemetry.jsonl`, and a session's id. Out: its rows, with known fields alone. The
file is read backwards from its end, and then the one that was rotated away before it, at most
`READ_MAX` bytes of both. Whoever may write there may write anything: a line that is no row of
ours is passed over, texts are cleaned and cut, and numbers are numbers. A file that is not there,
or cannot be read, has no rows.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from indexerd.errors import IndexerdError
from indexerd.models.telemetry import DIGEST, ERROR_MAX, ID_MAX, INDEX, QUERY
from indexerd.privacy.sanitize import clean_line
from indexerd.sources.tail import opened

READ_MAX = 4 * 1024 * 1024  # bytes
ROWS_MAX = 50
_CHUNK = 64 * 1024
_LINE_MAX = 64 * 1024  # bytes; a longer line is no row of ours
_KINDS_MAX = 40  # of redactions
_COUNT_MAX = 1 << 53  # what every reader of JSON takes for a whole number

_ABOUT_MODELS = frozenset({INDEX, QUERY, DIGEST})
_TEXTS = {
    "customType": 64,
    "model": 128,
    "timestamp": 40,
    "error": ERROR_MAX,
    "by": 32,
    "task": 32,
    "leafId": ID_MAX,
    "since": ID_MAX,
}
_NUMBERS = ("attempt", "bytes", "ms")
_USAGE = ("inputTokens", "outputTokens", "costUsd")


def rows_of(path: Path, session_id: str, most: int = ROWS_MAX) -> list[dict[str, Any]]:
    """The newest rows about a session; blocks for the reading of `READ_MAX` bytes at the most."""
    found: list[dict[str, Any]] = []
    needle = session_id.encode()
    for line in _lines(path):
        row = _row(line, session_id) if needle in line else None
        if row is not None:
            found.append(row)
            if len(found) >= most:
                break
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """Lines, the last first, of both files as far as they are read."""
    left = READ_MAX
    for one in (path, path.with_name(f"{path.name}.1")):
        try:
            with opened(str(one), own=True) as fd:
                size = os.fstat(fd).st_size
                yield from _backwards(fd, size, max(0, size - left))
        except (OSError, IndexerdError):
            continue
        left -= size
        if left <= 0:
            return


def _backwards(fd: int, end: int, start: int) -> Iterator[bytes]:
    """The lines between two places of a file; the first of them may have begun before it."""
    rest = b""
    while end > start:
        begin = max(start, end - _CHUNK)
        data = os.pread(fd, end - begin, begin) + rest
        end = begin
        rest, *lines = data.split(b"\n")
        yield from reversed(lines)
        if len(rest) > _LINE_MAX:
            rest = rest[:1]  # whatever it is, no row: its beginning is still to come
    if start == 0:
        yield rest


def _row(line: bytes, session_id: str) -> dict[str, Any] | None:
    if len(line) > _LINE_MAX:
        return None
    try:
        held = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(held, dict) or held.get("sessionId") != session_id:
        return None
    kind = held.get("customType")
    if not isinstance(kind, str) or kind not in _ABOUT_MODELS:
        return None
    found: dict[str, Any] = {"success": held.get("success") is True}
    for key, limit in _TEXTS.items():
        value = held.get(key)
        if isinstance(value, str) and value:
            found[key] = clean_line(value[: 4 * limit], limit)
    return found | _numbers(held, _NUMBERS) | _rest(held)


def _rest(held: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that hold others."""
    found: dict[str, Any] = {}
    usage, redactions = held.get("usage"), held.get("redactions")
    if isinstance(usage, dict):
        found["usage"] = _numbers(usage, _USAGE)
    if isinstance(redactions, dict):
        counts = [(key, one) for key, one in redactions.items() if _count(one)]
        found["redactions"] = {clean_line(key[:256], 64): n for key, n in counts[:_KINDS_MAX]}
    match held.get("covering_messages"):
        case [first, last] if _is_count(first) and _is_count(last):
            found["coveringMessages"] = [first, last]
    return found


def _numbers(held: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: held[key] for key in keys if _is_number(held.get(key))}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value <= _COUNT_MAX


def _is_count(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int)


def _count(value: Any) -> int:
    return value if _is_count(value) else 0

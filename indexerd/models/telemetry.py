"""The audit trail: one row for each question to a model, in `<state dir>/telemetry.jsonl`.

In: rows of names, numbers and counts (interfaces.md §6, S0.44, S2.24). Out: JSON lines, 0600,
rotated at 16 MiB with two old files kept. What was sent, when, to which model, for how much,
with how many redactions; never transcript text, prompts or replies, and never in a session
file. A row that cannot be written is lost, as indexing does not depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexerd.privacy.sanitize import clean_line, scrub
from indexerd.store.rotating import RotatingFile

INDEX = "session-index:index"
INJECT = "session-reference:inject"
QUERY = "query-session:query_session"
DIGEST = "digest:segment"

LIMIT_BYTES = 16 * 1024 * 1024
KEPT_FILES = 2
ERROR_MAX = 500  # characters
ID_MAX = 128  # characters of an entry's id; an agent's are shorter
_ROW_MAX = 64 * 1024  # bytes; a longer row is no row of ours


class Telemetry:
    """Rows in `path`, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFile(path, limit=LIMIT_BYTES, keep=KEPT_FILES)

    def append(self, row: Mapping[str, Any]) -> bool:
        """Write a row; says whether it was written. Never raises."""
        try:
            text = json.dumps(dict(row), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return False
        line = scrub(text).encode("utf-8")
        return len(line) <= _ROW_MAX and self._file.append(line)


def index_row(
    *,
    session_id: str,
    model: str,
    success: bool,
    timestamp: str,
    usage: Mapping[str, Any] | None = None,
    error: str | None = None,
    redactions: Mapping[str, int] | None = None,
    attempt: int | None = None,
    bytes: int | None = None,  # noqa: A002 - named as in the row
    ms: int | None = None,
    by: str | None = None,
    leaf_id: str | None = None,
    since: str | None = None,
) -> dict[str, Any]:
    """One attempt at indexing, with upstream's names; what is not known is left out.

    `timestamp` is ISO-8601 in UTC, `bytes` what was sent, `ms` how long it took, `usage`
    holds inputTokens, outputTokens and costUsd. `error` is cut to ERROR_MAX characters.
    `by` says whether the user asked, or the daemon did it by itself. The range (S2.24) is the path
    up to the entry `leaf_id`; where only what was said after an entry was sent, `since` names it.
    """
    row: dict[str, Any] = {
        "customType": INDEX,
        "success": success,
        "sessionId": session_id,
        "model": model,
        "timestamp": timestamp,
    }
    more = {
        "usage": None if usage is None else dict(usage),
        "error": None if error is None else clean_line(error, ERROR_MAX),
        "redactions": None if redactions is None else dict(redactions),
        "attempt": attempt,
        "bytes": bytes,
        "ms": ms,
        "by": by,
        "leafId": None if leaf_id is None else clean_line(leaf_id, ID_MAX),
        "since": None if since is None else clean_line(since, ID_MAX),
    }
    return row | {key: value for key, value in more.items() if value is not None}


def query_row(**attempt: Any) -> dict[str, Any]:
    """One attempt at answering a question (S0.67), with the fields of `index_row`.

    Neither the question nor a word of the session is among them.
    """
    return index_row(**attempt) | {"customType": QUERY}


def digest_row(
    *, task: str, by: str, covering: tuple[int, int] | None = None, **attempt: Any
) -> dict[str, Any]:
    """One attempt at summing up a part of a session (S2.24), with the fields of `index_row`.

    `task` says what for: segment, compaction or branch; `by` whether the user asked, or the daemon
    did it by itself. `covering` is the range of messages.
    """
    told: dict[str, Any] = {"customType": DIGEST, "task": task, "by": by}
    if covering is not None:
        told["covering_messages"] = list(covering)
    return index_row(**attempt) | told

"""The audit trail of model calls: one row for each request, in `<state dir>/telemetry.jsonl`.

It says what was sent when to which model, for how much, with how many redactions; it holds no text
of sessions, prompts or replies. Rotated at 16 MiB, two old files are kept; a row that cannot be
written is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexerd.disk import append_rotating
from indexerd.privacy.sanitize import replace_surrogates

INDEX = "session-index:index"
INJECT = "session-reference:inject"
QUERY = "query-session:query_session"
DIGEST = "digest:segment"


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Write a row if possible."""
    line = replace_surrogates(json.dumps(row, ensure_ascii=False)).encode()
    append_rotating(path, line, limit=16 * 1024 * 1024)

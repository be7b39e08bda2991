"""Short forms of what is read of opencode's database, whole or in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from indexerd.sources.cursor import Look, Verdict
from indexerd.sources.lines import Block
from indexerd.sources.opencode_db import lines, tail
from indexerd.sources.scan import Found
from tests.sessions.opencode_rows import SCHEMA, Rows

SHARED = Path(__file__).parents[3] / "shared" / "fixtures"


def rendered(path: str) -> list[dict[str, Any]]:
    """A session's lines, parsed."""
    found = tail().read(path)
    assert (found.verdict, found.whole, found.more) == (Verdict.CONTINUE, True, False)
    return [json.loads(one.data) for one in found.lines if isinstance(one, Block)]


def offsets(path: str) -> list[int]:
    """Where a session's lines stand."""
    return [one.offset for one in tail().read(path).lines]


def in_full(path: str) -> list[dict[str, Any]]:
    """A session's lines in full, parsed."""
    with lines(path) as held:
        return [json.loads(held.at(offset, 1)) for offset in offsets(path)]


def sides(found: list[Found]) -> dict[str, Look]:
    """A listing by session id."""
    return {
        one.path.rpartition("/")[2]: Look(one.dev, one.ino, one.size, one.mtime_ns) for one in found
    }


def two(path: Path, schema: str = SCHEMA) -> Rows:
    """A database of two sessions, each a prompt and an answer."""
    rows = Rows(path, schema)
    for name in ("ses_a", "ses_b"):
        rows.session(name)
        rows.said(name, f"msg_{name}_1", "user", "hello")
        rows.said(name, f"msg_{name}_2", "assistant", "hi")
    return rows

"""Lines of the fixtures' sessions, as each agent's adapter reads them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from indexerd.sources.line_buffer import Block
from indexerd.sources.opencode_db import Database
from indexerd.sources.source import DATABASE

FIXTURES = Path(__file__).parents[1] / "fixtures"
FOLDERS = {
    "pi": ("pi-0.30.2-v1", "pi-errors", "pi"),
    "claude": ("claude",),
    "codex": ("codex",),
}


def fixture_lines(agent: str) -> Iterator[bytes]:
    """Yield the lines of the real sessions of an agent."""
    if agent == "opencode":
        yield from _stored_lines()
        return
    files = [FIXTURES / "known/pi-every-kind.jsonl"] if agent == "pi" else []
    for folder in FOLDERS[agent]:
        files += sorted((FIXTURES / "real" / folder).rglob("*.jsonl"))
    for file in files:
        yield from file.read_bytes().splitlines(keepends=True)


def _stored_lines() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as copy:
        database = shutil.copy(FIXTURES / "real/opencode/opencode.db", copy)
        for path in Database(database).sessions():
            for block in DATABASE.tail().read(path).lines:
                if isinstance(block, Block):
                    yield from block.data.splitlines(keepends=True)

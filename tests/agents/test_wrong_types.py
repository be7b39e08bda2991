"""A line with one field of a wrong type loses that field, and nothing raises."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from indexerd.agents import ADAPTERS
from indexerd.sessions.context import context_messages, context_of
from indexerd.sessions.facts import ActivityStats
from indexerd.sessions.info import info_of
from tests.agents.feeding import entry_at, fed
from tests.fuzz.test_fuzz import corpus

REAL = Path(__file__).parents[1] / "fixtures/real"
FILE = "/s/rollout-2026-01-01T00-00-00-0199c3f2-0000-7000-8000-00000000000a.jsonl"
WRONG: tuple[Any, ...] = (None, 7, "x", [[7]], {"x": [7]})
LINES_MAX = 60  # lines per agent, each of another shape


def shapes(agent: str) -> list[dict[str, Any]]:
    files = [*sorted((REAL / agent).rglob("*.jsonl")), *corpus(agent)]
    found: dict[str, dict[str, Any]] = {}
    for line in (line for file in files for line in file.read_bytes().splitlines()):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and len(line) < 20_000:
            payload = record.get("payload") or record.get("message") or {}
            found.setdefault(f"{record.get('type')}{record.get('role')}{sorted(payload)}", record)
    return list(found.values())[:LINES_MAX]


def changed(record: Any, depth: int = 6) -> Iterator[Any]:
    if isinstance(record, dict) and depth:
        for key in list(record)[:40]:
            yield {name: value for name, value in record.items() if name != key}
            for value in (*WRONG, *changed(record[key], depth - 1)):
                yield {**record, key: value}
    elif isinstance(record, list) and depth:
        for at in range(min(len(record), 2)):
            for value in (*WRONG, *changed(record[at], depth - 1)):
                yield [*record[:at], value, *record[at + 1 :]]


@pytest.mark.parametrize("agent", ADAPTERS)
def test_a_field_of_a_wrong_type_is_ignored(agent: str) -> None:
    """S3.9: the line is still scanned and read, and its result can be stored."""
    first, *others = shapes(agent)
    for record in (first, *others):
        for line in changed(record):
            lines = [line] if record is first else [first, line]
            data = b"".join([json.dumps(line).encode() + b"\n" for line in lines])
            state = fed(agent, data, FILE)
            info = info_of(state, agent=agent, path=FILE, mtime_ms=1, since=None)
            if info is not None:
                msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=type(info))
            entries = [entry_at(agent, state, data, row) for row in range(len(state))]
            stats = ActivityStats()
            for entry in entries:
                stats.add(entry, "/w")
                stats.spent.add(entry, prompt=True)
                msgspec.json.encode([entry.texts, entry.role, entry.timestamp, entry.model])
            list(context_messages(state, entries.__getitem__, state.path()))
            context_of(state, entries.__getitem__)

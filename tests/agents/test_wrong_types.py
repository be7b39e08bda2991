"""A line of which one field has a wrong type costs that field, and nothing raises."""

from __future__ import annotations

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
from indexerd.sessions.state import SessionState
from tests.fuzz.test_fuzz import corpus

REAL = Path(__file__).parents[1] / "fixtures/real"
FILE = "/s/rollout-2026-01-01T00-00-00-0199c3f2-0000-7000-8000-00000000000a.jsonl"
WRONG: tuple[Any, ...] = (None, 7, "x", [[7]], {"x": [7]})
LINES_MAX = 60  # of an agent, each of another shape


def shapes(agent: str) -> list[dict[str, Any]]:
    files = [*sorted((REAL / agent).rglob("*.jsonl")), *corpus(agent)]
    found: dict[str, dict[str, Any]] = {}
    for line in (line for file in files for line in file.read_bytes().splitlines()):
        try:
            held = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(held, dict) and len(line) < 20_000:
            payload = held.get("payload") or held.get("message") or {}
            found.setdefault(f"{held.get('type')}{held.get('role')}{sorted(payload)}", held)
    return list(found.values())[:LINES_MAX]


def changed(held: Any, depth: int = 6) -> Iterator[Any]:
    if isinstance(held, dict) and depth:
        for key in list(held)[:40]:
            yield {name: one for name, one in held.items() if name != key}
            for one in (*WRONG, *changed(held[key], depth - 1)):
                yield {**held, key: one}
    elif isinstance(held, list) and depth:
        for at in range(min(len(held), 2)):
            for one in (*WRONG, *changed(held[at], depth - 1)):
                yield [*held[:at], one, *held[at + 1 :]]


@pytest.mark.parametrize("agent", ADAPTERS)
def test_one_field_of_a_wrong_type_costs_that_field(agent: str) -> None:
    """S3.9: it is scanned and read all the same, and what comes of it can be stored."""
    first, *others = shapes(agent)
    for held in (first, *others):
        for line in changed(held):
            lines = [line] if held is first else [first, line]
            data = b"".join([json.dumps(one).encode() + b"\n" for one in lines])
            state = SessionState(FILE)
            ADAPTERS[agent].scan(state, data, 0)
            info = info_of(state, agent=agent, path=FILE, mtime_ms=1, since=None)
            if info is not None:
                msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=type(info))
            entries = [
                ADAPTERS[agent].read(data[at : at + length], entry_id)
                for at, length, entry_id in zip(
                    state.offsets, state.lengths, state.ids, strict=True
                )
            ]
            stats = ActivityStats()
            for entry in entries:
                stats.add(entry, "/w")
                stats.spent.add(entry.tokens)
                msgspec.json.encode([entry.texts, entry.role, entry.timestamp, entry.model])
            list(context_messages(state, entries.__getitem__, state.path()))
            context_of(state, entries.__getitem__)

"""F4: a line of which one field has a wrong type costs that field, and nothing raises.

Every kind of line that the fixtures hold, of every agent, and in each every field in turn with
values of every other type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec.structs import fields

from indexerd.agents import ADAPTERS
from indexerd.events import Entry
from indexerd.sessions.context import context_messages, context_of
from indexerd.sessions.facts import ActivityStats
from indexerd.sessions.info import info_of
from indexerd.sessions.state import SessionState
from tests.agents.fixture_lines import fixture_lines
from tests.fuzz.targets import corpus

AGENTS = ("pi", "claude", "codex", "opencode")
WRONG: tuple[Any, ...] = (None, 7, "x", [[7]], {"x": [7]})
FILE = "/s/rollout-2026-01-01T00-00-00-0199c3f2-0000-7000-8000-00000000000a.jsonl"
DEEP = 6  # levels of a line
BROAD = 2  # items of a list
KEYS_MAX = 40  # of an object
LINE_MAX = 50_000  # bytes
TEXT_MAX = 200  # characters


def lines_of(agent: str) -> Iterator[bytes]:
    """Lines of an agent's fixtures, as they reach its adapter, and of the fuzz corpus."""
    yield from fixture_lines(agent)
    for path in corpus(agent):
        yield from path.read_bytes().splitlines(keepends=True)


@cache
def kinds(agent: str) -> tuple[bytes, dict[Any, dict[str, Any]]]:
    """The first line of a session, and one line for each shape."""
    first, found = b"", dict[Any, dict[str, Any]]()
    for line in lines_of(agent):
        try:
            held = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(held, dict) and len(line) <= LINE_MAX:
            first = first or line
            found.setdefault(_shape(held), _short(held))
    return first, found


def _short(held: Any) -> Any:
    """The value with the beginnings of its texts: the types are what matters."""
    if isinstance(held, dict):
        return {key: _short(one) for key, one in held.items()}
    if isinstance(held, list):
        return [_short(one) for one in held]
    return held[:TEXT_MAX] if isinstance(held, str) else held


def _shape(held: Any, depth: int = 3) -> Any:
    if isinstance(held, dict) and depth:
        named = held.get("type"), held.get("role"), held.get("customType"), held.get("status")
        inner = (
            _shape(one, depth - 1) for key, one in held.items() if isinstance(one, dict | list)
        )
        return (*(str(one) for one in named), *sorted(map(str, inner)))
    if isinstance(held, list):
        return tuple(sorted({str(_shape(one, depth - 1)) for one in held if isinstance(one, dict)}))
    return ()


def changed(held: Any, depth: int = DEEP) -> Iterator[Any]:
    """The value with one field in turn of every wrong type, and without it."""
    if not depth:
        return
    if isinstance(held, dict):
        for key in list(held)[:KEYS_MAX]:
            yield {name: one for name, one in held.items() if name != key}
            others = [one for one in WRONG if type(one) is not type(held[key]) or not one]
            for one in (*others, *changed(held[key], depth - 1)):
                yield {**held, key: one}
    elif isinstance(held, list):
        for at in range(min(len(held), BROAD)):
            for one in (*WRONG, *changed(held[at], depth - 1)):
                yield [*held[:at], one, *held[at + 1 :]]


@pytest.mark.parametrize("agent", AGENTS)
def test_one_field_of_a_wrong_type_costs_that_field(agent: str) -> None:
    """F4, S3.9: it is skimmed and read all the same, and what comes out is of the right types."""
    first, found = kinds(agent)
    begins = json.loads(first).get("type")
    assert len(found) >= 5
    for held in found.values():
        for line in changed(held):
            data = json.dumps(line).encode() + b"\n"
            _taken(agent, b"" if held.get("type") == begins else first, data)


def _taken(agent: str, first: bytes, data: bytes) -> None:
    whole = first + data
    state = SessionState(
        "/s/rollout-2026-01-01T00-00-00-0199c3f2-0000-7000-8000-00000000000a.jsonl"
    )
    ADAPTERS[agent].scan(state, whole, 0)
    msgspec.msgpack.encode(state, enc_hook=bytes)  # no half characters
    info = info_of(state, agent=agent, path="/s.jsonl", mtime_ms=1, since=None)
    if info is not None:
        msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=type(info))
    entries = {row: _read(agent, state, whole, row) for row in range(len(state))}
    deeds = ActivityStats()
    for entry in entries.values():
        deeds.add(entry, "/w")
        deeds.pay(entry)
        _right(entry)
    context_messages(state, entries.__getitem__, state.path())
    context_of(state, entries.__getitem__)


def _read(agent: str, state: SessionState, whole: bytes, row: int) -> Entry:
    start = state.offsets[row]
    return ADAPTERS[agent].read(whole[start : start + state.lengths[row]], state.id(row))


@cache
def _plain_fields() -> dict[str, Any]:
    """Fields of an entry that are texts, numbers and tuples of texts."""
    hints = get_type_hints(Entry)
    free = {"data", "stored", "prompt"}  # as somebody else stored it
    return {one.name: hints[one.name] for one in fields(Entry) if one.name not in free}


def _right(entry: Entry) -> None:
    for name, kind in _plain_fields().items():
        value = getattr(entry, name)
        parts = get_args(kind)
        if isinstance(value, tuple):
            inner = next((get_args(one) for one in parts if get_origin(one) is tuple), parts)
            assert all(isinstance(one, inner[0]) for one in value), name
        elif parts and value is not None:
            assert isinstance(value, tuple(get_origin(one) or one for one in parts)), name
        elif parts:
            assert type(None) in parts, name
        else:
            assert type(value) is kind, name
    msgspec.json.encode([entry.text, entry.role, entry.timestamp])
    for call in entry.tools:
        assert all(type(one) is str for one in (call.name, call.detail, call.id))
        assert all(type(one) is str for one in (*call.reads, *call.writes))
    for result in entry.results:
        assert all(type(one) is str for one in (result.call, result.name, result.text))
    if entry.tokens is not None:
        counts = (entry.tokens.input, entry.tokens.output, entry.tokens.total)
        assert all(type(one) is int for one in counts)

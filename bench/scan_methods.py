"""The ways in which session files are scanned, and the slow, obvious one that checks the rest.

`states` is the daemon's own way: its sources read, its adapters skim, a `SessionState` is kept of
each session. `texts` goes on to read what humans and models said, as the text index does. `raw`
only reads; `full` parses every line into Python objects with a general parser.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import measure  # puts the checkout on the path, which the imports below need
import msgspec

from indexerd.agents import ADAPTERS
from indexerd.events import Kind
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sources.lines import Oversize
from indexerd.sources.session_lines import session_lines
from indexerd.sources.sources import source_of

assert measure.ROOT.is_dir()

BUFFER = 256 * 1024  # bytes that a raw read takes at once
SPOKEN = (Kind.USER, Kind.ASSISTANT)

Json = dict[str, Any]


def _parser() -> tuple[str, Callable[[bytes], object], float]:
    """The quickest general parser there is, its name, and its speed as a share of orjson's."""
    try:
        return "orjson", importlib.import_module("orjson").loads, 1.0
    except ImportError:
        return "orjson (msgspec / 0.92)", msgspec.json.Decoder().decode, 0.92


PARSER, parse, FACTOR = _parser()


@dataclass(frozen=True)
class Corpus:
    """Session files of one agent."""

    name: str
    agent: str
    files: list[str]  # as the index knows them
    bytes: int
    lines: int

    @property
    def paths(self) -> list[str]:
        """The files on disk."""
        if self.agent != "opencode":
            return self.files
        return sorted({one.rpartition("/")[0] for one in self.files})


# -- the daemon's way ------------------------------------------------------------------------------


def state_of(agent: str, path: str) -> SessionState:
    """One session, scanned as the daemon does it when it meets the file."""
    state, tail = SessionState(path), source_of(agent, path).tail()
    adapter, more = ADAPTERS[agent], True
    while more:
        read = tail.read(path)
        for piece in read.lines:
            if isinstance(piece, Oversize):
                adapter.skim_oversize(state, piece)
            else:
                adapter.skim(state, piece.data, piece.offset)
        more = read.more
    return state


def states(corpus: Corpus) -> int:
    """Scan them all; how many rows they have."""
    return sum(len(state_of(corpus.agent, path)) for path in corpus.files)


def texts(corpus: Corpus) -> int:
    """Scan them all, and read what was said; how many characters that is."""
    return sum(len(text) for path in corpus.files for text in said_in(corpus.agent, path))


def said_in(agent: str, path: str) -> Iterator[str]:
    """Scan one, and read what was said, each without spaces around it."""
    told, state = ADAPTERS[agent].told, state_of(agent, path)
    with session_lines(agent, state) as lines:
        for row in range(len(state)):
            if state.kind(row) in SPOKEN:
                for text in told(lines.row(row), state.id(row)).texts:
                    yield text.strip()


# -- limits and peers ------------------------------------------------------------------------------


def raw(corpus: Corpus) -> int:
    """Read every byte into one buffer, and do nothing with it."""
    buffer, size = bytearray(BUFFER), 0
    for path in corpus.paths:
        fd = os.open(path, os.O_RDONLY)
        while got := os.readv(fd, (buffer,)):
            size += got
        os.close(fd)
    return size


def full(corpus: Corpus) -> int:
    """Parse every line, each into Python objects; how many there are."""
    count = 0
    for path in corpus.paths:
        for line in _rows(path) if corpus.agent == "opencode" else _lines(path):
            parse(line)
            count += 1
    return count


def _lines(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        data = file.read()
    start, find = 0, data.find
    while (stop := find(b"\n", start)) >= 0:
        yield data[start:stop]
        start = stop + 1


def _rows(path: str) -> Iterator[bytes]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        for table in ("message", "part"):
            for (data,) in db.execute(f"SELECT CAST(data AS BLOB) FROM {table}"):
                yield data


# -- the slow, obvious way -------------------------------------------------------------------------


@dataclass
class Truth:
    """What a session is, by a full parse of every line."""

    parents: dict[str, str | None]
    leaf: str | None
    users: int
    said: list[str]  # in the order of the file


def truth_of(agent: str, path: str) -> Truth:
    """What a full parse makes of a session."""
    return _TRUTHS[agent](path)


def differs(agent: str, path: str) -> str:
    """What the daemon's state of a session has other than a full parse; nothing if all agrees."""
    state, truth = state_of(agent, path), truth_of(agent, path)
    above = [state.parent(row) for row in range(len(state))]
    parents = {
        state.id(row): None if one == ROOT else state.id(one) for row, one in enumerate(above)
    }
    if parents != truth.parents:
        return "parents"
    if truth.leaf != (state.id(state.leaf) if state.leaf >= 0 else None):
        return "leaf"
    if state.users != truth.users:
        return "users"
    return "" if [one for one in said_in(agent, path) if one] == truth.said else "texts"


def _pi(path: str) -> Truth:
    found = Truth({}, None, 0, [])
    for line in _lines(path):
        held: Any = parse(line)
        if held["type"] == "session":
            continue
        found.leaf = held["id"]
        found.parents[held["id"]] = held["parentId"]
        message = held.get("message", {})
        if message.get("role") in ("user", "assistant"):
            found.users += message["role"] == "user"
            found.said += _said(message["content"])
    return found


def _claude(path: str) -> Truth:
    found = Truth({}, None, 0, [])
    for line in _lines(path):
        held: Any = parse(line)
        if "uuid" not in held:
            continue
        above = held["parentUuid"] or held.get("logicalParentUuid")  # of what a compaction kept
        found.parents[held["uuid"]] = above
        if held["type"] in ("user", "assistant"):
            found.leaf = held["uuid"]
            asked = held.get("promptSource") in ("typed", "sdk")
            found.users += asked
            if asked or held["type"] == "assistant":
                found.said += _said(held["message"]["content"])
    return found


_CODEX_ROWS = (
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)


def _codex(path: str) -> Truth:
    """Rows name no parents: each stands below the one before.

    Which lines are rows is our own rule, but all that was said, called and given back are some.
    What was said is what was finished as an item; a compaction's answer is not, and what a
    sub-agent is asked no human said.
    """
    state = state_of("codex", path)
    names = [state.id(row) for row in range(len(state))]
    parents = dict(zip(names, [None, *names[:-1]], strict=True))
    found = Truth(parents, names[-1], 0, [])
    left, human = iter(names), True
    for line in _lines(path):
        held: Any = parse(line)
        payload = held["payload"]
        if held["type"] == "session_meta":
            human = isinstance(payload["source"], str)
        row = payload.get("id") if payload.get("type") in _CODEX_ROWS else None
        if row is not None and row not in left:  # in this order
            found.parents[row] = "a row that the state lacks"
        if payload.get("type") != "item_completed":
            continue
        item = payload["item"]
        asked = item["type"] == "UserMessage" and human
        found.users += asked
        if asked or item["type"] == "AgentMessage":
            found.said += _said(item["content"])
    return found


def _opencode(path: str) -> Truth:
    place, _, session = path.rpartition("/")
    asked = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    inside = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
    found = Truth({}, None, 0, [])
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as db:
        for name, data in db.execute(asked, (session,)).fetchall():
            found.parents[name], found.leaf = found.leaf, name
            found.users += parse(data)["role"] == "user"
            found.said += _said([parse(part) for (part,) in db.execute(inside, (name,))])
    return found


def _said(content: str | list[Json]) -> list[str]:
    blocks = [{"text": content, "type": "text"}] if isinstance(content, str) else content
    texts = (one["text"].strip() for one in blocks if one["type"].lower().endswith("text"))
    return [one for one in texts if one]


_TRUTHS: dict[str, Callable[[str], Truth]] = {
    "pi": _pi,
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
}

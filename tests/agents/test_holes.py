"""A power cut left NULs in a session file, and the agent went on writing right behind them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents import claude, codex, pi
from indexerd.agents.lines import past_hole
from indexerd.sessions.state import SessionState
from indexerd.sources import lines as lines_module
from indexerd.sources.lines import LineBuffer, Oversize

STAMP = "2026-01-01T00:00:00.000Z"
THREAD = "019a1fff-0000-7000-8000-000000000001"


@dataclass(frozen=True)
class Agent:
    """An agent's session, line by line; line 0 may be a header."""

    adapter: ModuleType
    path: str
    lines: tuple[bytes, ...]

    def state(self, data: bytes, step: int = 1 << 20) -> SessionState:
        """What a file with these bytes is, fed in pieces."""
        state, buffer = SessionState(self.path), LineBuffer()
        borders = [*range(0, len(data), step), len(data)]
        for start, stop in itertools.pairwise(borders):
            for piece in buffer.feed(data[start:stop]):
                if isinstance(piece, Oversize):
                    self.adapter.skim_oversize(state, piece)
                else:
                    self.adapter.skim(state, piece.data, piece.offset)
        return state

    def texts(self, state: SessionState, data: bytes) -> list[str]:
        """What the entries of the path say, read by where they stand."""
        found = []
        for row in state.path():
            start = state.offsets[row]
            line = data[start : start + state.lengths[row]]
            assert line.startswith(b"{"), line[:40]
            found += [self.adapter.read(line, state.id(row)).text]
        return [text for text in found if text]


def line(**fields: object) -> bytes:
    """One line."""
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _pi(number: int, role: str, text: str) -> bytes:
    said = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": number}
    above = f"0000000{number - 1}" if number > 1 else None
    return line(
        type="message", id=f"0000000{number}", parentId=above, timestamp=STAMP, message=said
    )


def _claude(number: int, role: str, text: str) -> bytes:
    above = f"u{number - 1}" if number > 1 else None
    said = {"role": role, "content": text if role == "user" else [{"type": "text", "text": text}]}
    return line(
        parentUuid=above, isSidechain=False, type=role, message=said, uuid=f"u{number}",
        timestamp=STAMP, sessionId=THREAD, cwd="/w",
    )  # fmt: skip


def _codex(role: str, text: str) -> bytes:
    kind = "input_text" if role == "user" else "output_text"
    item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return line(timestamp=STAMP, type="response_item", payload=item)


SAID = [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]
AGENTS = {
    "pi": Agent(
        pi,
        "/s.jsonl",
        (
            line(type="session", version=3, id=THREAD, timestamp=STAMP, cwd="/w"),
            *(_pi(n, role, text) for n, (role, text) in enumerate(SAID, 1)),
        ),
    ),
    "claude": Agent(
        claude,
        f"/{THREAD}.jsonl",
        (b"", *(_claude(n, role, text) for n, (role, text) in enumerate(SAID, 1))),
    ),
    "codex": Agent(
        codex,
        f"/rollout-2026-01-01T00-00-00-{THREAD}.jsonl",
        (
            line(timestamp=STAMP, type="session_meta", payload={"id": THREAD, "cwd": "/w"}),
            *(_codex(role, text) for role, text in SAID),
        ),
    ),
}
everyone = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)


@everyone
@pytest.mark.parametrize("torn", [b"", b'{"type":"mess', b"{}", b"\n"])
@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_a_line_glued_to_a_hole_is_found(agent: Agent, torn: bytes, newline: bytes) -> None:
    """F5: 4 KiB of NULs, and a torn line before them: one bad line, and all others are there.

    pi itself passes over the line that is glued, and loses all that came before it.
    """
    lines = agent.lines
    whole = agent.state(b"".join(lines))
    data = b"".join(lines[:3]) + torn + b"\0" * 4096 + newline + b"".join(lines[3:])
    state = agent.state(data)
    assert agent.texts(state, data) == ["one", "two", "three", "four"]
    assert [state.id(row) for row in state.path()] == [whole.id(row) for row in whole.path()]
    assert state.bad_lines == 1
    assert state.offsets[-2] == data.index(lines[3])


@everyone
def test_a_hole_before_everything(agent: Agent) -> None:
    """F5: the first line of all may be glued to one, a header among them."""
    data = b"\0" * 4096 + b"".join(agent.lines)
    state = agent.state(data)
    assert agent.texts(state, data) == ["one", "two", "three", "four"]
    assert state.header is not None


@everyone
def test_a_line_too_long_to_hold_behind_a_hole(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5, F8: its place in the tree is kept, and where it is read in full is behind the hole."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 5000)
    words = "x" * 9000
    long = agent.lines[3].replace(b"three", words.encode())
    data = b"".join(agent.lines[:3]) + b"\0" * 4096 + long + agent.lines[4]
    state = agent.state(data, 1000)
    assert agent.texts(state, data) == ["one", "two", words, "four"]
    assert (state.oversized, state.offsets[-2]) == (0, data.index(long))


@everyone
@given(
    holes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40), st.booleans()), max_size=4),
    step=st.integers(1, 300),
)
def test_holes_anywhere(agent: Agent, holes: list[tuple[int, int, bool]], step: int) -> None:
    """F5: between any lines, of any length, cut anywhere: the same entries as without them."""
    data = b""
    for number, one in enumerate([*agent.lines, b""]):
        for _, length, newline in [hole for hole in holes if hole[0] == number]:
            data += b"\0" * length + b"\n" * newline
        data += one
    state = agent.state(data, step)
    assert agent.texts(state, data) == ["one", "two", "three", "four"]
    assert state.encode() == agent.state(data).encode()


@given(st.lists(st.sampled_from([b"\0", b"{", b"}", b"x", b'"'])).map(b"".join))
def test_where_a_line_begins(data: bytes) -> None:
    """F5: behind the last NUL, where an object begins there; nowhere else, and never outside."""
    begin = past_hole(b"{\0" + data + b"\0{", 2, 2 + len(data)) - 2
    last = data.rfind(b"\0") + 1
    assert begin == (last if last and data[last : last + 1] == b"{" else 0)

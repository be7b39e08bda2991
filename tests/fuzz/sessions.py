"""Targets for what agents write: scan and read of each adapter, and the story of any tree.

In: bytes of any kind, taken for a session file. What must hold, whatever they are: nothing but
the promised ValueError of `read` comes out; every row lies within the file, behind the one before
it; what is kept of it is bounded and can be encoded; and the state is the same, however the bytes
arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import astuple

from indexerd.agents import ADAPTERS
from indexerd.agents.base import Oversize
from indexerd.agents.json_lines import parse, scan_oversize
from indexerd.events import Turn
from indexerd.sessions.state import NOWHERE, SessionState

FILE = (
    "/home/u/.agent/sessions/rollout-2026-01-01T00-00-00-0199c3f2-0000-7000-8000-00000000000a.jsonl"
)
WORDS_MAX = 200  # characters of a name, a label, a first message
ENDS = 700  # bytes of an oversized line's ends


def adapter(agent: str) -> Callable[[bytes], None]:
    """The target of one agent's adapter."""

    def target(data: bytes) -> None:
        whole = data if data.endswith(b"\n") else data + b"\n"
        state = _skimmed(agent, whole, [])
        _sound(agent, state, whole)
        cut = whole.find(b"\n", len(whole) // 2) + 1
        parted = _skimmed(agent, whole, [cut])
        _sound(agent, parted, whole)
        if agent != "pi" or _all_json(whole):
            # pi's newest time is looked for in the newest message of a block, for speed.
            parted.activity_ms = state.activity_ms
            assert astuple(parted) == astuple(state), "F1: however the bytes arrive"
        for line in whole.split(b"\n")[:20]:
            _line(agent, state, line)

    return target


def _all_json(whole: bytes) -> bool:
    """Whether no line is broken: pi's are taken on their looks, and one may be found out later."""
    try:
        return all(isinstance(parse(line), dict) for line in whole.split(b"\n") if line.strip())
    except ValueError:
        return False


def _skimmed(agent: str, whole: bytes, cuts: list[int]) -> SessionState:
    """The state of a file that came in pieces."""
    state = SessionState(FILE)
    before = 0
    for cut in [*cuts, len(whole)]:
        ADAPTERS[agent].scan(state, whole[before:cut], before)
        before = cut
    return state


def _line(agent: str, state: SessionState, line: bytes) -> None:
    """One line, as the beginning of a history, and as one that is too long to hold."""
    one = ADAPTERS[agent]
    found = one.base(line)
    if found is not None:
        assert found.end >= 0
        found.session_id.encode()
    ends = Oversize(0, len(line) + 1, line[:ENDS], line[-ENDS:])
    scan_oversize(one, state, ends)
    scan_oversize(one, SessionState(FILE), ends)
    msgspec.msgpack.encode(state, enc_hook=bytes)  # no half characters


def _sound(agent: str, state: SessionState, whole: bytes) -> None:
    """What holds of every state."""
    end = 0
    for offset, length in zip(state.offsets, state.lengths, strict=True):
        # Of a line that Claude Code wrote twice, the row has the newest copy's place.
        assert end <= offset or agent == "claude", "rows stand in the file's order"
        assert offset + length <= len(whole)
        end = offset
    assert NOWHERE <= state.leaf < max(len(state), 1)
    assert 0 <= state.user_messages() <= len(state)
    assert min(state.messages, state.compactions, state.bad_lines, state.seen) >= 0
    assert len(state.path()) <= len(state)
    assert state.turn in Turn
    state.cycles()
    _words(state)
    for row in range(len(state)):
        start = state.offsets[row]
        try:
            entry = ADAPTERS[agent].read(whole[start : start + state.lengths[row]], state.id(row))
        except ValueError:  # promised, for a line that is no JSON object
            continue
        assert entry.id.encode() == state.id(row).encode()
        _encodable(entry)
        shown = ADAPTERS[agent].preview(entry.text)
        assert len(shown) <= WORDS_MAX
        assert "\n" not in shown


def _words(state: SessionState) -> None:
    """Texts that are kept: bounded, on one line, and made of whole characters."""
    kept = [*state.labels.values(), *state.openings.values(), state.first_user, state.name or ""]
    for text in kept:
        assert len(text) <= WORDS_MAX
        assert text.isprintable()
    assert all(key.encode() is not None for key in state.labels)
    assert len(state.git_branch.encode()) <= 4 * 256
    if state.header is not None:
        _encodable(state.header)
        assert len(state.header.session_id) <= 8192
        assert len(state.header.cwd) <= 8192
    command = ADAPTERS["pi"].resume_command("x", state.header.cwd if state.header else "", FILE)
    command.encode()


def _encodable(value: Any) -> None:
    """No lone surrogate in anything that an entry says, however deep. Arguments are not ours."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, one in value.items():
            _encodable(key)
            _encodable(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _encodable(one)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name != "arguments":
                _encodable(getattr(value, name))


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{agent: adapter(agent) for agent in ADAPTERS},
}

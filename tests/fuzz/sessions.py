"""Fuzz targets for agents' files: any bytes, and only `read` may raise, a ValueError.

Every row is within the file, kept data is bounded and can be encoded, and the state does not depend
on how the bytes were split.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import astuple

from indexerd.agents import ADAPTERS
from indexerd.agents.base import Oversize
from indexerd.agents.json_lines import scan_oversize
from indexerd.sessions.state import NOWHERE, SessionState
from tests.agents.feeding import entry_at

FILE = (
    "/home/u/.agent/sessions/rollout-2026-01-01T00-00-00-0199c3f2-0000-7000-8000-00000000000a.jsonl"
)
WORDS_MAX = 200  # limit of a name, a label, a first message, in characters
ENDS = 700  # bytes kept of each end of an oversized line


def target(agent: str, data: bytes) -> None:
    whole = data if data.endswith(b"\n") else data + b"\n"
    state = scanned(agent, whole, [])
    sound(agent, state, whole)
    parted = scanned(agent, whole, [whole.find(b"\n", len(whole) // 2) + 1])
    assert astuple(parted) == astuple(state), "the state depends on how the bytes were split"
    for line in whole.split(b"\n")[:20]:
        found = ADAPTERS[agent].base(line)
        assert found is None or found.end >= 0
        ends = Oversize(0, line[:ENDS], line[-ENDS:])
        for held in (state, SessionState(FILE)):
            scan_oversize(ADAPTERS[agent], held, ends)
    msgspec.msgpack.encode(state, enc_hook=bytes)  # no lone surrogates


def scanned(agent: str, whole: bytes, cuts: list[int]) -> SessionState:
    """The state of a file that arrived in pieces."""
    state, before = SessionState(FILE), 0
    for cut in [*cuts, len(whole)]:
        ADAPTERS[agent].scan(state, whole[before:cut], before)
        before = cut
    return state


def sound(agent: str, state: SessionState, whole: bytes) -> None:
    """Check what is true of every state."""
    for offset, length in zip(state.offsets, state.lengths, strict=True):
        assert offset + length <= len(whole)
    assert NOWHERE <= state.leaf < max(len(state), 1)
    assert len(state.path()) <= len(state)
    assert all(above < row for row, above in enumerate(state.parents))
    for text in (*state.labels.values(), *state.openings.values(), state.name or ""):
        assert len(text) <= WORDS_MAX
        assert text.isprintable()
    for row in range(len(state)):
        try:
            entry = entry_at(agent, state, whole, row)
        except ValueError:  # allowed for a line that is no JSON object
            continue
        encodable(entry)


def encodable(value: Any) -> None:
    """Check for lone surrogates at any depth of an entry, except in tool arguments."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list | tuple):
        for one in (*value, *(value.values() if isinstance(value, dict) else ())):
            encodable(one)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name != "arguments":
                encodable(getattr(value, name))


TARGETS: dict[str, Callable[[bytes], None]] = {agent: partial(target, agent) for agent in ADAPTERS}

"""What search and facts are told of a line is what reading it in full says of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.agents import ADAPTERS
from indexerd.events import Entry

REAL = Path(__file__).parents[1] / "fixtures" / "real"

_NUMBER = st.sampled_from((0, 1, 12, -3, 1.5, True, None, "7", 1 << 70))
_WORD = st.sampled_from(("", "ls", "/w/a.py", " padded\n", "é", "\ud83d", None, 3, ["x"], {"a": 1}))
_NAME = st.sampled_from(("read", "write", "Read", "Edit", "bash", "", None, 4))
_GIVEN = st.one_of(
    st.dictionaries(
        st.sampled_from(("path", "file_path", "command", "pattern", "notebook_path", "url", "x")),
        _WORD,
        max_size=4,
    ),
    _WORD,
)
_KINDS = ("text", "toolCall", "tool_use", "thinking", "image", "tool_result", None)
_BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(_KINDS)},
    optional={
        "text": _WORD,
        "thinking": _WORD,
        "name": _NAME,
        "id": _WORD,
        "arguments": _GIVEN,
        "input": _GIVEN,
        "is_error": st.booleans(),
    },
)
_CONTENT = st.one_of(_WORD, st.lists(st.one_of(_BLOCK, _WORD), max_size=4))
_COUNTS = ("input", "output", "cacheRead", "totalTokens", "input_tokens", "output_tokens")
_USAGE = st.one_of(
    st.none(),
    _WORD,
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(_COUNTS, _NUMBER),
            "cost": st.one_of(_WORD, st.fixed_dictionaries({"total": _NUMBER})),
        },
    ),
)
_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "toolResult", None)), "content": _CONTENT},
    optional={"usage": _USAGE, "model": _WORD, "id": _WORD, "stop_reason": _WORD},
)
_LINE = st.fixed_dictionaries(
    {"type": st.sampled_from(("message", "user", "assistant", "label", "system", 5))},
    optional={
        "id": _WORD,
        "uuid": _WORD,
        "timestamp": st.sampled_from(("2026-01-01T00:00:00.000Z", "", 5)),
        "message": st.one_of(_MESSAGE, _WORD),
        "isSidechain": st.booleans(),
        "isMeta": st.booleans(),
        "isCompactSummary": st.booleans(),
        "attachment": st.just({"type": "queued_command", "prompt": "go"}),
        "costUSD": _NUMBER,
    },
)


def _light(entry: Entry) -> Entry:
    return replace(entry, thinking=(), images=0, results=(), details={})


def _same(agent: str, line: bytes) -> None:
    full = _light(ADAPTERS[agent].read(line, "e"))
    assert _light(ADAPTERS[agent].told(line, "e")) == full
    assert _light(ADAPTERS[agent].told(line, "")).id == ADAPTERS[agent].read(line, "").id


@pytest.mark.parametrize("agent", ADAPTERS)
@given(drawn=_LINE)
def test_any_line_tells_what_reading_it_in_full_says(agent: str, drawn: dict[str, Any]) -> None:
    """S1.13: fields of any type; what is no plain message is read in full."""
    _same(agent, json.dumps(drawn, ensure_ascii=True).encode())


@pytest.mark.parametrize("agent", ["pi", "claude", "codex"])
def test_every_line_of_the_real_clients_tells_the_same(agent: str) -> None:
    """The files that the agents themselves wrote."""
    lines = [
        line
        for path in sorted((REAL / agent).rglob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if line.strip()
    ]
    assert len(lines) > 20
    for line in lines:
        _same(agent, line)


@pytest.mark.parametrize("agent", ADAPTERS)
def test_what_is_no_object_is_an_error_of_its_own(agent: str) -> None:
    """F1: as it is for a line that is read in full."""
    for line in (b"", b"[1]", b'{"type":"message","id":"a"', b'{"a":1}{"b":2}', b"\xff{"):
        with pytest.raises(ValueError, match=r"."):
            ADAPTERS[agent].told(line, "e")

"""pi lines that are too long to keep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import astuple

from indexerd.agents import base as base_module
from indexerd.entries import Turn
from indexerd.sources import tail as lines_module
from tests.agents.feeding import fed


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


HEADER = line(type="session", version=3, id="s1", timestamp="2026-01-01T00:00:00.000Z", cwd="/w")
_STAMP = "2026-01-01T00:00:01.000Z"


def message(entry_id: str, parent: str | None, role: str, text: str = "hi", **more: Any) -> bytes:
    content = {"role": role, "content": [{"type": "text", "text": text}], **more}
    return line(type="message", id=entry_id, parentId=parent, timestamp=_STAMP, message=content)


def test_an_oversized_line_keeps_its_place_in_the_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Type, id and parent of an oversized line are read from its ends, and it is counted."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 5000)
    monkeypatch.setattr(base_module, "READ_MAX", 6000)
    monkeypatch.setattr(lines_module, "END_KEPT", 600)
    huge = message("00000002", "00000001", "user", "x" * 20_000)
    odd = (
        b'{"type":"custom","customType":"c","data":{"id":"inner","blob":"'
        + b"y" * 20_000
        + b'"},"id":"00000003","parentId":"00000002","timestamp":"t"}\n'
    )
    answer = message("00000004", "00000003", "assistant", "z" * 20_000, stopReason="stop")
    data = HEADER + message("00000001", None, "user") + huge + odd + answer
    cuts = list(range(0, len(data), 700))

    state = fed("pi", data, cuts=cuts)

    assert state.oversized == 3
    assert [state.id(r) for r in state.path()] == ["00000001", "00000002", "00000003", "00000004"]
    assert (state.user_messages(), state.turn) == (2, Turn.ENDED)
    assert list(state.lengths[1:]) == [0, 0, 0]
    parted = fed("pi", data, cuts=range(0, len(data), 333))
    assert astuple(state) == astuple(parted)

"""pi's files, as pi itself reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import astuple

from indexerd.agents import base as base_module
from indexerd.events import Turn
from indexerd.sources import line_buffer as lines_module
from tests.agents.feeding import fed


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


HEADER = line(type="session", version=3, id="s1", timestamp="2026-01-01T00:00:00.000Z", cwd="/w")
_STAMP = "2026-01-01T00:00:01.000Z"


def message(entry_id: str, parent: str | None, role: str, text: str = "hi", **more: Any) -> bytes:
    said = {"role": role, "content": [{"type": "text", "text": text}], **more}
    return line(type="message", id=entry_id, parentId=parent, timestamp=_STAMP, message=said)


def small_session() -> bytes:
    return (
        HEADER
        + message("00000001", None, "user", "first ünï")
        + message("00000002", "00000001", "assistant", "a", stopReason="toolUse")
        + message("00000003", "00000002", "toolResult", "r")
        + message("00000004", "00000003", "assistant", "b", stopReason="stop")
        + message("00000005", "00000004", "user", "second")
        + message("00000006", "00000005", "assistant", "c", stopReason="error")
    )


def test_turns_follow_the_stop_reason() -> None:
    """S0.1: a tool loop is open, `stop` ends the turn, an error fails it, a question opens it."""
    data = small_session()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    turns = [fed("pi", data[:end]).turn for end in ends[1:]]
    assert turns == [Turn.OPEN, Turn.OPEN, Turn.OPEN, Turn.ENDED, Turn.OPEN, Turn.FAILED]


def test_lines_that_are_no_entries_are_counted_and_skipped() -> None:
    """F3, F4, F5, F6, S1.2: damage in the middle loses its own line only."""
    bad = [
        b"{not json\n",
        b"[" * 100_000 + b"\n",
        b"null\n",
        b"[]\n",
        b'"x"\n',
        b"\x00" * 4096 + b"\n",
    ]
    tail = message("00000002", "00000001", "assistant", "line\u2028sep \u0085", stopReason="stop")
    data = HEADER + message("00000001", None, "user") + b"".join(bad) + b"\n  \n" + tail

    state = fed("pi", data)

    assert len(bad) == state.bad_lines
    assert state.path() == [0, 1]
    assert Turn.ENDED is state.turn


def test_crlf_and_lone_surrogates_are_read() -> None:
    """F3, F6, F7: line ends of another system and half an emoji do no harm."""
    data = HEADER.replace(b"\n", b"\r\n")
    data += message("00000001", None, "user", "cut \ud83d").replace(b"\n", b"\r\n")
    data += message("00000002", "00000001", "assistant", "ok", stopReason="stop")

    state = fed("pi", data)

    assert state.user_messages() == 1
    assert state.first_user == "cut \ufffd"


def test_a_torn_line_to_which_the_next_was_glued_is_no_entry() -> None:
    """S1.2: both halves of a glued line are lost, as they are to pi."""
    torn = message("00000003", "00000002", "user", "never finished")[:-20]
    glued = torn + message("00000004", "00000002", "user", "lost with it")
    data = (
        HEADER
        + message("00000001", None, "user")
        + message("00000002", "00000001", "assistant", stopReason="stop")
        + glued
        + message("00000005", "00000004", "assistant", stopReason="stop")
        + message("00000006", "00000005", "user")
    )

    state = fed("pi", data)

    assert state.bad_lines == 1
    assert state.row("00000003") is None
    assert state.path() == [2, 3]


def test_a_line_too_long_to_hold_keeps_its_place_in_the_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F8: type, id and parent of an oversized line are taken from its ends; counts hold."""
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

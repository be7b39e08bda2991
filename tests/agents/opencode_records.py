"""Lines of opencode's sessions, as they are read from its database, and what is made of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from indexerd.agents.opencode import read, scan
from indexerd.events import Entry, Kind
from indexerd.sessions.state import SessionState

START = 1_795_000_000_000
Line = dict[str, Any]


def session(**more: Any) -> Line:
    """A session's line."""
    held = {"type": "session", "schema": 1, "id": "ses_a", "title": "A title", "directory": "/w"}
    return held | {"time": {"created": START}} | more


_numbers = itertools.count(1)


def message(role: str, parts: list[Line] | None = None, **more: Any) -> Line:
    """A message's line; an answer is finished unless it says otherwise."""
    number = next(_numbers)
    time = {"created": START + number}
    held: Line = {"type": "message", "id": f"msg_{number:06d}", "role": role, "time": time}
    if role == "assistant":
        held |= {"finish": "stop", "time": time | {"completed": START + number}}
    return held | {"parts": parts or []} | more


def text(words: str, **more: Any) -> Line:
    """A text part."""
    return {"type": "text", "text": words, **more}


def prompt(words: str = "hello", **more: Any) -> Line:
    """A human's message."""
    return message("user", [text(words)], **more)


def answer(words: str = "hi", **more: Any) -> Line:
    """A finished answer."""
    return message("assistant", [text(words)], **more)


def tool(name: str, status: str = "completed", **given: Any) -> Line:
    """A tool part."""
    state = {"status": status, "input": given, "output": "o"}
    return {"type": "tool", "tool": name, "callID": f"call_{name}", "state": state}


def joined(lines: list[Line]) -> bytes:
    """Lines as a scan gets them."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def state_of(*lines: Line) -> SessionState:
    """The state of a session of these lines."""
    return state_from(session(), *lines)


def state_from(first: Line, *lines: Line) -> SessionState:
    """The same, with a first line of one's own."""
    state = SessionState()
    scan(state, joined([first, *lines]), 0)
    return state


def kinds(state: SessionState) -> list[Kind]:
    """What each row is."""
    return [state.kind(row) for row in range(len(state))]


def entry(line: Line) -> Entry:
    """A line read in full."""
    return read(json.dumps(line).encode(), "")

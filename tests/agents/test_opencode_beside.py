"""What opencode and its plugins put beside a prompt: for the model, and nobody's words."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from indexerd.agents.opencode import read, skim
from indexerd.events import Entry, Kind
from indexerd.sessions.context import context_of
from indexerd.sessions.state import SessionState

OWN = {"type": "text", "text": "As in @@cache."}
ADDED = {"type": "text", "text": "Referenced: the aardvark.", "synthetic": True}
HIDDEN = {"type": "text", "text": "for people only", "ignored": True}
PICTURE = {"type": "file", "mime": "image/png"}


def message(number: int, role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message's line."""
    time = {"created": 1_795_000_000_000 + number, "completed": 1_795_000_000_000 + number}
    held = {"type": "message", "id": f"msg_{number}", "role": role, "time": time}
    return held | {"parts": list(parts)} | more


def context(*messages: dict[str, Any]) -> tuple[SessionState, list[tuple[str, str]]]:
    """The state, and the messages at its leaf."""
    session = {"type": "session", "schema": 1, "id": "ses_a", "directory": "/w"}
    lines = [json.dumps(one).encode() for one in (session, *messages)]
    state = SessionState()
    skim(state, b"\n".join(lines) + b"\n", 0)

    def row(at: int) -> Entry:
        found, kind = read(lines[at + 1], state.id(at)), state.kind(at)
        return found if found.kind is Kind.OTHER else replace(found, kind=kind)

    found = context_of(state, row)
    return state, [(one.role, one.text) for one in found.messages]


def test_what_is_beside_a_prompt_goes_to_the_model() -> None:
    """interfaces.md 5: behind it, joined; one user message, of which only its own words count."""
    asked = message(1, "user", OWN, HIDDEN, ADDED)
    answered = message(2, "assistant", {"type": "text", "text": "Yes."}, finish="stop")
    state, got = context(asked, answered)
    assert got == [("user", "As in @@cache.Referenced: the aardvark."), ("assistant", "Yes.")]
    assert (state.messages, state.first_user) == (2, "As in @@cache.")
    entry = read(json.dumps(asked).encode(), "msg_1")
    assert (entry.kind, entry.texts) == (Kind.USER, ("As in @@cache.",))


def test_a_picture_with_a_note_beside_it() -> None:
    """A human's message without words holds what was put beside it, and stays without words."""
    state, got = context(message(1, "user", PICTURE, ADDED))
    assert got == [("user", "Referenced: the aardvark.")]
    assert (state.messages, state.first_user) == (1, "")


def test_a_plain_prompt_says_nothing_more() -> None:
    """Where nothing stands beside it, the texts are what is sent."""
    assert "sent" not in read(json.dumps(message(1, "user", OWN)).encode(), "msg_1").details


def test_a_prompt_that_is_stored_again_is_said_as_the_user() -> None:
    """formats.md 4.4: after a compaction that it was too long for; it counts once."""
    state, got = context(
        message(1, "user", OWN, ADDED),
        message(2, "user", {"type": "compaction", "auto": True, "overflow": True}),
        message(3, "assistant", {"type": "text", "text": "Sum."}, summary=True, finish="stop"),
        message(4, "user", OWN, ADDED),
    )
    assert got[-1] == ("user", "As in @@cache.Referenced: the aardvark.")
    assert [state.kind(row) for row in range(len(state))].count(Kind.USER) == 1

"""Every kind of secret in every place of a session: it stays in the session's own file."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.world import Session, World, until
from tests.fakes.openai_server import OpenAIServer
from tests.sessions.canaries import CANARIES, WORD

pytestmark = pytest.mark.faults


def tool(session: Session, text: str) -> None:
    """A tool is called with a secret, and answers with it."""
    call = {"type": "toolCall", "id": "t", "name": "bash", "arguments": {"command": text}}
    session.entry(
        "message", message={"role": "assistant", "content": [call], "stopReason": "toolUse"}
    )
    session.entry(
        "message",
        message={
            "role": "toolResult",
            "toolCallId": "t",
            "toolName": "bash",
            "content": [{"type": "text", "text": text}],
        },
    )


def shell(session: Session, text: str) -> None:
    """The user runs a command."""
    said = {"role": "bashExecution", "command": text, "output": text, "exitCode": 0}
    session.entry("message", message=said)


PLACES: dict[str, Callable[[Session, str], object]] = {
    "user": lambda session, text: session.say("user", text),
    "assistant": lambda session, text: session.say("assistant", text, stopReason="stop"),
    "tool": tool,
    "shell": shell,
    "label": lambda session, text: session.entry("label", targetId=session.last, label=text),
    "note": lambda session, text: session.entry(
        "custom_message", customType="note", content=text, display=True
    ),
    "name": lambda session, text: session.entry("session_info", name=text),
    "compaction": lambda session, text: session.entry(
        "compaction", summary=text, firstKeptEntryId=session.last, tokensBefore=9
    ),
    "left": lambda session, text: session.entry(
        "branch_summary", fromId=session.last, summary=text
    ),
    "thought": lambda session, text: session.entry(
        "message",
        message={
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": text}],
            "stopReason": "stop",
        },
    ),
}


def test_no_secret_leaves_its_session(world: World) -> None:
    """X5: all kinds in all places: none in a request, meta file, log, audit, or cache of ours."""
    folder = world.sessions
    for number, (place, put) in enumerate(PLACES.items()):
        session = Session(folder, session_id=f"secret-{place}")
        session.turn("Please adjust the widget.")
        if place == "compaction":
            session.talk(1)
        for kind in [*CANARIES][number % 2 :] + [*CANARIES][: number % 2]:
            put(session, f"Please use {CANARIES[kind]} for {place}.")
        session.talk(5)
    with OpenAIServer() as server:
        world.env["INDEXERD_LOG__LEVEL"] = '"debug"'
        world.env["INDEXERD_OPENAI_API_KEY"] = "sk-not-one"
        world.env["INDEXERD_MODEL_KEYS"] = json.dumps(["openai/gpt-test"])
        world.env["INDEXERD_PROVIDERS__OPENAI__BASE_URL"] = json.dumps(server.url)
        with world.daemon():
            for place in PLACES:
                world.wait_meta(f"secret-{place}")
            until(lambda: world.call("status")["textPending"] == 0, "the texts")
            assert world.call("search", query="widget")["hits"]
        bodies = [request.body for request in server.requests]
    assert len(bodies) >= len(PLACES)
    word = WORD.lower().encode()
    assert [body for body in bodies if word in body.lower()] == []
    assert any(b"[redacted:" in body for body in bodies)
    kept = [*world.state.rglob("*"), *world.metas.rglob("*"), *(world.root / "data").rglob("*")]
    files = [path for path in [*kept, world.root / "stderr"] if path.is_file()]
    assert [path for path in files if word in path.read_bytes().lower()] == []

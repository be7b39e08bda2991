"""Every place of a session in which a secret may stand."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.world import Session


def tool(session: Session, text: str) -> None:
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

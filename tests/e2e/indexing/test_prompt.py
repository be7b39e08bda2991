"""Which part of a session is sent to the model, read from the prompt that `as_sent` returns."""

import re

import pytest

from tests.e2e.world import Session, World

MARKER = "[Conversation truncated — only the most recent portion is shown]"
SHOWN = re.compile(r"<conversation>\n\[begin (\w+)\]\n(.*)\n\[end \1\]\n</conversation>", re.DOTALL)


ENV = {"INDEXERD_MIN_NEW_USER_MESSAGES": "10000"}


def sent(world: World, session: Session) -> tuple[str, str]:
    world.seen(session)
    prompt = str(world.call("as_sent", ref=session.id)["user"])
    found = SHOWN.search(prompt)
    assert found
    return found[2], prompt


def test_only_text_of_user_and_assistant_is_sent(running: World) -> None:
    """S0.12, S0.13, S0.20: trimmed, below a label of its speaker; nothing else adds a byte.

    The prompt shows the forms of ticket and Slack tags and forbids invented ids.
    """
    session = running.session()
    session.entry("message", message={"role": "user", "content": "  A plain string.\n"})
    call = {"type": "toolCall", "id": "c", "name": "HIDDEN-call", "arguments": {"x": "HIDDEN-arg"}}
    parts = [{"type": "thinking", "thinking": "HIDDEN-thought"}, call]
    session.said("assistant", *parts, stopReason="toolUse")
    session.say("toolResult", "HIDDEN-result", toolCallId="c", toolName="read")
    ran = {"role": "bashExecution", "command": "HIDDEN-cmd", "output": "HIDDEN-out", "exitCode": 0}
    session.entry("message", message=ran)
    blocks = [
        {"type": "text", "text": text} for text in (" First block. ", " \n ", "Second block.")
    ]
    session.said("assistant", *blocks, stopReason="stop")
    session.said("user", {"type": "image", "data": "SElEREVO", "mimeType": "image/png"})
    session.entry("custom_message", customType="x", content="HIDDEN-note", display=True)
    session.entry("custom", customType="x", data={"x": "HIDDEN-data"})
    session.entry("model_change", provider="HIDDEN-provider", modelId="HIDDEN-model")
    session.entry("session_info", name="HIDDEN-name")
    session.turn("Next?", " Done. ")
    transcript, prompt = sent(running, session)
    assert transcript.split("\n\n") == [
        "User: A plain string.",
        "Assistant: First block.\nSecond block.",
        "User: Next?",
        "Assistant: Done.",
    ]
    assert "HIDDEN" not in prompt
    assert "SElEREVO" not in prompt
    for form in ("ticket:ABC-123", "ticket:#1234", "slack:thread", "slack:channel", "slack:<id>"):
        assert form in prompt
    assert "Never invent an id" in prompt


@pytest.mark.parametrize(("width", "lines"), [(60, None), (1, 2000)])
def test_the_newest_whole_lines_are_sent(running: World, width: int, lines: int | None) -> None:
    """S0.14, S0.16: of 51,200 bytes and 2,000 lines at most, with the marker below them."""
    session = running.session()
    answer = "\n".join(f"{number} é{'.' * width}" for number in range(2500))
    session.turn("Count.", answer)
    text = sent(running, session)[0]
    kept = text.removesuffix(f"\n\n{MARKER}")
    assert kept != text
    assert answer.endswith(f"\n{kept}")
    if lines:
        assert kept.count("\n") + 1 == lines
    else:
        assert 51_200 - 100 < len(kept.encode()) <= 51_200

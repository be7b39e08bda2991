"""What hooks and extensions put beside a prompt, in every agent: the model's, not the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, until
from tests.sessions.opencode_rows import Rows

ASKED = "As in @@cache, please go on with the walrus."
ADDED = "Referenced session summaries: the aardvark sleeps."
OPENING = "<system-reminder>\nUserPromptSubmit hook additional context: "


def pi(world: World) -> str:
    """Pi: an extension's message, behind the prompt."""
    session = world.session()
    session.say("user", ASKED)
    session.entry("custom_message", customType="session-ref:context", content=ADDED, display=False)
    session.say("assistant", "Done.", stopReason="stop")
    return session.id


def claude(world: World) -> str:
    """Claude Code: what a hook added, on a line of its own."""
    session = ClaudeSession(world.root / "home")
    session.line("user", message={"role": "user", "content": [{"type": "text", "text": ASKED}]})
    held = {"type": "hook_additional_context", "content": [ADDED], "toolUseID": "hook-1"}
    named = {"hookName": "UserPromptSubmit", "hookEvent": "UserPromptSubmit"}
    session.line("attachment", attachment=held | named)
    session.answer([{"type": "text", "text": "Done."}])
    return session.id


def codex(world: World) -> str:
    """Codex: a message of the developer, behind the prompt."""
    thread = CodexThread(world.root / "home")
    thread.event("task_started", turn_id="t")
    for role, text in (("user", ASKED), ("developer", ADDED)):
        content = [{"type": "input_text", "text": text}]
        thread.write("response_item", {"type": "message", "role": role, "content": content})
        if role == "user":
            asked = {"type": "UserMessage", "content": [{"type": "text", "text": text}]}
            thread.event("item_completed", turn_id="t", item=asked)
    answer = [{"type": "output_text", "text": "Done."}]
    thread.write("response_item", {"type": "message", "role": "assistant", "content": answer})
    thread.event("task_complete", turn_id="t")
    return thread.id


def opencode(world: World) -> str:
    """opencode: a part that the user did not write, in the same message."""
    data = world.root / "data/opencode"
    data.mkdir(parents=True)
    rows = Rows(data / "opencode.db")
    rows.session("ses_one", directory="/w")
    rows.said("ses_one", "msg_1", "user", ASKED)
    rows.part("ses_one", "msg_1", "prt_msg_1b", type="text", text=ADDED, synthetic=True)
    rows.said("ses_one", "msg_2", "assistant", "Done.", parentID="msg_1")
    return "ses_one"


Make = Callable[[World], str]


def shown(world: World, session_id: str) -> list[tuple[str, str]]:
    """What the model gets that was asked or added, each with its role."""
    got: list[dict[str, Any]] = world.run("context", session_id, "--json")["messages"]
    return [(one["role"], one["text"]) for one in got if one["role"] != "assistant"]


GOT: dict[Make, list[tuple[str, str]]] = {
    pi: [("user", ASKED), ("custom", ADDED)],
    claude: [("user", f"{OPENING}{ADDED}\n</system-reminder>"), ("user", ASKED)],
    codex: [("user", ASKED), ("developer", ADDED)],
    opencode: [("user", ASKED + ADDED)],
}


@pytest.mark.parametrize("make", GOT)
def test_what_was_put_beside_a_prompt_is_the_models_alone(world: World, make: Make) -> None:
    """interfaces.md 5, S0.55, S1.38: in `context`, in its place; never taken for the user's."""
    session_id = make(world)
    world.run("run", "--once", "--json", code=None)
    assert shown(world, session_id) == GOT[make]

    row = world.run("show", session_id, "--json")["session"]
    assert (row["userMessageCount"], row["firstUserMessage"]) == (1, ASKED)
    sent = world.run("show", session_id, "--as-sent", "--json")
    assert "walrus" in sent["user"]
    assert "aardvark" not in sent["user"] + sent["system"]


@pytest.mark.parametrize("make", GOT)
def test_a_search_does_not_find_what_was_put_beside_a_prompt(world: World, make: Make) -> None:
    """S1.38: the session is found by its user's words, and not by those of another session."""
    session_id = make(world)
    with world.daemon():
        assert until(lambda: found(world, "walrus"), "the user's words") == {session_id}
        assert found(world, "aardvark") == set()


def found(world: World, word: str) -> set[str]:
    """The sessions in which a word is found."""
    return {one["sessionId"] for one in world.call("search", query=word)["hits"]}

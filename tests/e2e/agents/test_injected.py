"""What hooks and extensions put beside a prompt, in every agent: the model's, not the user's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, hit_by, opencode_rows, until

ASKED = "As in @@cache, please go on with the walrus."
ADDED = "Referenced session summaries: the aardvark sleeps."
OPENING = "<system-reminder>\nUserPromptSubmit hook additional context: "


def pi(world: World) -> str:
    session = world.session()
    session.say("user", ASKED)
    session.entry("custom_message", customType="session-ref:context", content=ADDED, display=False)
    session.answer()
    return session.id


def claude(world: World) -> str:
    session = ClaudeSession(world.root / "home")
    session.prompt([{"type": "text", "text": ASKED}])
    held = {"type": "hook_additional_context", "content": [ADDED], "toolUseID": "hook-1"}
    named = {"hookName": "UserPromptSubmit", "hookEvent": "UserPromptSubmit"}
    session.line("attachment", attachment=held | named)
    session.say()
    return session.id


def codex(world: World) -> str:
    thread = CodexThread(world.root / "home")
    thread.event("task_started", turn_id="t")
    thread.item("user", ASKED)
    asked = {"type": "UserMessage", "content": [{"type": "text", "text": ASKED}]}
    thread.event("item_completed", turn_id="t", item=asked)
    thread.item("developer", ADDED)
    thread.item("assistant", "Done.")
    thread.event("task_complete", turn_id="t")
    return thread.id


def opencode(world: World) -> str:
    rows = opencode_rows(world)
    rows.session("ses_one", directory="/w")
    rows.said("ses_one", "msg_1", "user", ASKED)
    rows.part("ses_one", "msg_1", "prt_msg_1b", type="text", text=ADDED, synthetic=True)
    rows.said("ses_one", "msg_2", "assistant", "Done.", parentID="msg_1")
    return "ses_one"


Make = Callable[[World], str]
GOT: dict[Make, list[tuple[str, str]]] = {
    pi: [("user", ASKED), ("custom", ADDED)],
    claude: [("user", f"{OPENING}{ADDED}\n</system-reminder>"), ("user", ASKED)],
    codex: [("user", ASKED), ("developer", ADDED)],
    opencode: [("user", ASKED + ADDED)],
}


@pytest.mark.parametrize("make", GOT)
def test_what_was_put_beside_a_prompt_is_the_models_alone(world: World, make: Make) -> None:
    """S0.55, S1.38: in `context`, in its place; no one's words in counts, prompts and search."""
    session_id = make(world)
    with world.daemon():
        assert until(lambda: hit_by(world, "walrus"), "the user's words") == {session_id}
        assert hit_by(world, "aardvark") == set()
        shown = world.call("context", ref=session_id)["messages"]
        got = [(one["role"], one["text"]) for one in shown if one["role"] != "assistant"]
        assert got == GOT[make]
        row = world.row(session_id)
        assert (row["userMessageCount"], row["firstUserMessage"]) == (1, ASKED)
        sent = world.call("as_sent", ref=session_id)
        assert "walrus" in sent["user"]
        assert "aardvark" not in sent["user"] + sent["system"]

"""The real pi with the extension: references, questions, context sets, command and status.

pi sends a custom message as one of the user's and joins nothing, so an injected text is a message
of its own in the request, directly after its prompt.
"""

import json
from typing import Any

from tests.e2e.rig.pi import Pi, begins_with, texts
from tests.e2e.rig.sandbox import FIVE, NOTED, needed, resumed, sandbox
from tests.e2e.world import World, until

pytestmark = needed


def past(pi: Pi) -> dict[str, Any]:
    world = pi.sandbox.world
    with pi.talk() as talk:
        for text in FIVE:
            talk.prompt(text)
        session_id = talk.id
    found: dict[str, Any] = world.wait_meta(session_id)
    until(lambda: world.row(session_id)["name"] == found["name"], "the row")
    return found


def test_a_references_summary_follows_the_prompt(world: World) -> None:
    """S0.52, S0.53, S0.55, S0.56, S1.38: pi stores it after the prompt, and it never moves."""
    with sandbox(world) as box, world.daemon():
        pi = Pi(box)
        meta = past(pi)
        prompt = f'What does @@"{meta["name"]}" say of eviction?'
        with pi.talk() as talk:
            first = talk.prompt(prompt)
            second = talk.prompt("And of tests?")
            talk.shows("✅ resolved 1 reference(s)")
            entries = talk.entries
            talk.shows(None)
        with pi.talk("-c") as talk:
            third = talk.prompt("Thank you.")
            fourth = talk.prompt("Goodbye.")
            types = [
                entry["customType"] for entry in talk.entries if entry["type"] == "custom_message"
            ]
    (role, text), (custom, block) = texts(first)
    assert (role, text, custom) == ("user", prompt, "user")
    assert meta["name"] in block
    assert meta["sessionId"] in block
    assert meta["description"] in block
    (kept,) = [entry for entry in entries if entry["type"] == "custom_message"]
    before = entries[entries.index(kept) - 1]
    assert (before["id"], before["message"]["role"]) == (kept["parentId"], "user")
    assert before["message"]["content"] == [{"type": "text", "text": prompt}]
    assert (kept["customType"], kept["display"]) == ("session-reference", False)
    assert kept["content"] == block
    assert kept["details"]["sessionIds"] == [meta["sessionId"]]
    assert begins_with(second, first)
    assert begins_with(third, second)
    assert begins_with(fourth, third)
    assert texts(third)[-1][1].startswith("[SESSION RESUMED]\n")
    assert texts(third)[-2] == ("user", "Thank you.")
    assert texts(fourth)[-1] == ("user", "Goodbye.")
    assert types == ["session-reference", "session-resume-context"]


def test_the_model_asks_a_past_session(world: World) -> None:
    """S0.60, S0.63, S0.66: the tool is offered, and its result is an answer with citations."""
    with sandbox(world) as box, world.daemon():
        pi = Pi(box)
        meta = past(pi)
        ask = {"session": meta["name"], "question": "Why fifteen minutes?"}
        with pi.talk() as talk:
            first = talk.prompt(f"call query_session {json.dumps(ask)}", requests=2)
            over = talk.last
            (entry,) = [entry for entry in talk.entries if _role(entry) == "toolResult"]
    offered = [tool["function"]["name"] for tool in first["tools"]]
    assert offered[-3:] == ["query_session", "set_relevant_context", "get_relevant_context"]
    (answer,) = [text for role, text in texts(over) if role == "tool"]
    assert answer.startswith(f"### Session: {meta['name']} (`{meta['sessionId']}`)\nConfidence: **")
    assert "every quarter hour" in answer
    assert entry["isError"] is False if "isError" in entry else not entry["message"]["isError"]


def _role(entry: dict[str, Any]) -> str | None:
    role = entry.get("message", {}).get("role")
    return None if role is None else str(role)


def test_context_sets_come_back_after_a_resume(world: World) -> None:
    """S4.15, S4.18, S4.27: sets that the model stored come with the first prompt of a resume.

    They are the last message of that request, stay in the same place in the next, and are sent once
    for each resume.
    """
    with sandbox(world) as box, world.daemon():
        pi = Pi(box)
        with pi.talk() as talk:
            talk.prompt(f"call set_relevant_context {json.dumps(NOTED)}", requests=2)
            stored = talk.last
        with pi.talk("-c") as talk:
            first, second = talk.prompt("Where were we?"), talk.prompt("And now?")
        pi.once("-c", "call get_relevant_context {}")
        *_, request = pi.requests()
    assert ("tool", "Set files: 2 items") in texts(stored)
    assert "When to call set_relevant_context" in json.dumps(first), (
        "the skill was not offered (S4.27)"
    )
    block = ("user", resumed(box.project) + "\n\n")
    assert texts(first)[-2:] == [("user", "Where were we?"), block]
    assert texts(first).count(block) == 1
    assert begins_with(second, first)
    assert texts(second)[len(texts(first)) + 1 :] == [("user", "And now?")]
    assert texts(request).count(block) == 2
    assert json.loads(texts(request)[-1][1]) == {"files": NOTED["items"]}

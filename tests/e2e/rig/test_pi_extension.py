"""The real pi with the extension: a summary follows the prompt, and status lines are shown."""

from typing import Any

from tests.e2e.rig.pi import Pi, begins_with, texts
from tests.e2e.rig.sandbox import FIVE, needed, sandbox
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

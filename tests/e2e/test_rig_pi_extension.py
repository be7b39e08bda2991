"""The real pi with the extension: references, questions, contexts, the command, its status.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig_pi.py).

What surprised us: pi sends a custom message as one of the user's, and joins nothing, so what was
injected is one whole message of the request, right after the prompt it came with.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.rig import FIVE, isle, needed
from tests.e2e.rig_pi import Pi, begins_with, texts
from tests.e2e.world import World, until

pytestmark = needed
both = pytest.mark.parametrize("version", ["pi", "pi-old"])


def past(pi: Pi) -> dict[str, Any]:
    """A session of five prompts in this project, indexed: its meta file."""
    world = pi.isle.world
    with pi.talk() as talk:
        for text in FIVE:
            talk.prompt(text)
        session_id = talk.id
    found: dict[str, Any] = world.wait_meta(session_id)
    until(lambda: world.row(session_id)["name"] == found["name"], "the row")
    return found


@both
def test_a_reference_is_explained_after_the_prompt(world: World, version: str) -> None:
    """S0.52, S0.53, S0.55, S0.56, S1.38: after the prompt, kept by pi, and never moved again."""
    with isle(world) as made, world.daemon():
        pi = Pi(made, version)
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
            held = [one["customType"] for one in talk.entries if one["type"] == "custom_message"]
    (role, said), (custom, block) = texts(first)
    assert (role, said, custom) == ("user", prompt, "user")
    assert meta["name"] in block
    assert meta["sessionId"] in block
    assert meta["description"] in block
    (kept,) = [one for one in entries if one["type"] == "custom_message"]
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
    assert held == ["session-reference", "session-resume-context"]


@both
def test_the_model_asks_a_past_session(world: World, version: str) -> None:
    """S0.60, S0.63, S0.66: the tool is offered, and its result is an answer with citations."""
    with isle(world) as made, world.daemon():
        pi = Pi(made, version)
        meta = past(pi)
        ask = {"session": meta["name"], "question": "Why fifteen minutes?"}
        with pi.talk() as talk:
            first = talk.prompt(f"call query_session {json.dumps(ask)}", requests=2)
            over = talk.last
            (entry,) = [one for one in talk.entries if _role(one) == "toolResult"]
    offered = [one["function"]["name"] for one in first["tools"]]
    assert offered[-3:] == ["query_session", "set_relevant_context", "get_relevant_context"]
    (answer,) = [text for role, text in texts(over) if role == "tool"]
    assert answer.startswith(f"### Session: {meta['name']} (`{meta['sessionId']}`)\nConfidence: **")
    assert "every quarter hour" in answer
    assert entry["isError"] is False if "isError" in entry else not entry["message"]["isError"]


def _role(entry: dict[str, Any]) -> str | None:
    role = entry.get("message", {}).get("role")
    return None if role is None else str(role)


def test_a_question_is_answered_with_its_prompt(world: World) -> None:
    """S0.64, S0.65: the summary, then the answer, each a message; the model may still ask."""
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        meta = past(pi)
        more = json.dumps({"session": meta["sessionId"], "question": "What about eviction?"})
        asked = f'@@"{meta["name"]}": Why fifteen minutes?\ncall query_session {more}'
        with pi.talk() as talk:
            request = talk.prompt(asked, requests=2)
            entries = talk.entries
    (_, prompt), (_, block), (_, answer) = texts(request)
    assert prompt == asked
    assert meta["description"] in block
    assert "every quarter hour" in answer
    kept = [one["details"] for one in entries if one["type"] == "custom_message"]
    assert [one.get("question") for one in kept] == [None, "Why fifteen minutes?"]
    assert "Least-recently-used" in texts(talk.last)[-1][1]


def test_the_command_indexes_and_shows_the_cost(world: World) -> None:
    """S0.3, S0.30, S0.42, S0.43: below the threshold, under its configured name and slot."""
    world.env |= {"INDEXERD_COMMAND_NAME": "remember", "INDEXERD_STATUS_KEY": "memory"}
    world.env["INDEXERD_NOTIFICATION_AUTO_CLEAR_MS"] = "50"
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        with pi.talk() as talk:
            talk.prompt("What does src/forecast.py do?")
            commands = [one["name"] for one in talk.command("get_commands")["commands"]]
            talk.command("prompt", message="/remember")
            talk.shows(None, "memory")
            session_id = talk.id
            assert pi.requests() == []
    assert "remember" in commands
    assert world.meta(session_id)
    assert talk.statuses("memory") == ["⏳ indexing...", "✅ session indexed ($0.000000)", None]


def test_the_daemons_own_run_is_shown(world: World) -> None:
    """S0.42: nobody asked: the same texts."""
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "2"
    with isle(world) as made, world.daemon(), Pi(made).talk() as talk:
        talk.prompt(FIVE[0])
        talk.prompt(FIVE[1])
        talk.shows("✅ session indexed ($0.000000)")
    assert talk.statuses()[:2] == ["⏳ indexing...", "✅ session indexed ($0.000000)"]


def test_what_was_noted_comes_back_on_resuming(world: World) -> None:
    """S4.15, S4.18: sets that the model noted, with the first prompt of the next process, once."""
    note = {"setName": "files", "items": ["src/forecast.py", "src/gone.py"]}
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        with pi.talk() as talk:
            talk.prompt(f"call set_relevant_context {json.dumps(note)}", requests=2)
            stored = talk.last
        pi.once("-c", "Where were we?")
        (first,) = pi.requests()
        pi.once("-c", "call get_relevant_context {}")
        *_, held = pi.requests()
    assert ("tool", "Set files: 2 items") in texts(stored)
    (_, prompt), (_, block) = texts(first)[-2:]
    assert prompt == "Where were we?"
    assert block.startswith("[SESSION RESUMED]\n")
    assert f"Session directory: {made.project}\n" in block
    assert "- src/forecast.py\n(1 file(s) no longer exist)\n" in block
    assert json.loads(texts(held)[-1][1]) == {"files": note["items"]}


def test_a_session_that_is_switched_to_is_a_resumed_one(world: World) -> None:
    """S4.18: in the same process, too, and only with its first prompt; a new one is not told."""
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        with pi.talk() as talk:
            began = talk.prompt(FIVE[0])
            file = talk.command("get_state")["sessionFile"]
            talk.command("new_session")
            fresh = talk.prompt(FIVE[0])
            talk.command("switch_session", sessionPath=file)
            first, second = talk.prompt(FIVE[1]), talk.prompt(FIVE[2])
    assert [len(texts(one)) for one in (began, fresh, first, second)] == [1, 1, 4, 6]
    assert texts(first)[-1][1].startswith("[SESSION RESUMED]\n")
    assert begins_with(second, first)


@both
def test_without_a_daemon_pi_is_as_ever(world: World, version: str) -> None:
    """S0.51: no daemon: prompts go through at once, and nothing is said, shown or injected."""
    with isle(world) as made:
        pi = Pi(made, version)
        with pi.talk() as talk:
            assert texts(talk.prompt("See @@some-name.")) == [("user", "See @@some-name.")]
        pi.once("-c", "And @@another: why?")
        (request,) = pi.requests()
    assert texts(request)[-1] == ("user", "And @@another: why?")
    assert talk.statuses() == []


def test_a_session_that_is_not_kept(world: World) -> None:
    """S0.5: `--no-session`: others may be referred to; of itself nothing is known or shown."""
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        meta = past(pi)
        with pi.talk("--no-session") as talk:
            request = talk.prompt(f"See @@{meta['sessionId']}.")
            talk.command("prompt", message="/index-session")
        sessions = world.call("list")["sessions"]
    assert meta["description"] in texts(request)[1][1]
    assert [one["sessionId"] for one in sessions] == [meta["sessionId"]]
    assert not [text for text in talk.statuses() if text and "index" in text]


def test_references_are_completed_in_the_editor(world: World) -> None:
    """S0.59: `@@` in the real editor lists sessions; the whole id is inserted and then sent."""
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        meta = past(pi)
        with pi.terminal() as screen:
            screen.type("@@")
            screen.shows(meta["name"][:20])
            screen.type("\t")
            screen.shows(f"@@{meta['sessionId'][:13]}")
            screen.type("and now\r")
            until(pi.was_asked, "the request")
        (request,) = pi.requests()
    (_, prompt), (_, block) = texts(request)
    assert prompt == f"@@{meta['sessionId']} and now"
    assert meta["description"] in block

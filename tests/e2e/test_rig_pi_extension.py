"""The real pi with the extension: references, questions, contexts, the command, its status.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig_pi.py).

What surprised us: pi sends a custom message as one of the user's, and joins nothing, so what was
injected is one whole message of the request, right after the prompt it came with.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.e2e.rig import FIVE, isle, needed
from tests.e2e.rig_pi import Pi, begins_with, texts
from tests.e2e.world import World, until

pytestmark = needed
both = pytest.mark.parametrize("version", ["pi", "pi-old"])
HEAD = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n\n"


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


@both
def test_what_was_noted_comes_back_after_a_resume(world: World, version: str) -> None:
    """S4.15, S4.18, S4.27: what the model noted by the tool comes at a resume, with a prompt.

    Once and to the byte, as the last message of that request; the next request has it where it
    was, and no other. A later resume is another one.
    """
    note = {"setName": "files", "items": ["src/forecast.py", "src/gone.py"]}
    with isle(world) as made, world.daemon():
        pi = Pi(made, version)
        with pi.talk() as talk:
            talk.prompt(f"call set_relevant_context {json.dumps(note)}", requests=2)
            stored = talk.last
        with pi.talk("-c") as talk:
            first, second = talk.prompt("Where were we?"), talk.prompt("And now?")
        pi.once("-c", "call get_relevant_context {}")
        *_, held = pi.requests()
    assert ("tool", "Set files: 2 items") in texts(stored)
    assert "When to call set_relevant_context" in json.dumps(first), "S4.27: the skill"
    files = "Relevant files:\n- src/forecast.py\n(1 file(s) no longer exist)"
    block = ("user", f"{HEAD}Session directory: {made.project}\n\n{files}\n---\n\n")
    assert texts(first)[-2:] == [("user", "Where were we?"), block]
    assert texts(first).count(block) == 1
    assert begins_with(second, first)
    assert texts(second)[len(texts(first)) + 1 :] == [("user", "And now?")]
    assert texts(held).count(block) == 2
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
def test_a_hung_daemon_is_not_waited_for(world: World, version: str) -> None:
    """S0.51, S0.65: a question to a daemon that does not answer at all costs moments."""
    world.env["INDEXERD_QUERY__TIMEOUT_SECONDS"] = "600"
    with isle(world) as made, world.daemon() as daemon:
        pi = Pi(made, version)
        with pi.talk() as talk:
            talk.prompt("What does src/forecast.py do?")
            daemon.send_signal(signal.SIGSTOP)
            try:
                request = talk.prompt("As in @@some-name: why fifteen minutes?")
            finally:
                daemon.send_signal(signal.SIGCONT)
            assert len(texts(request)) == 3
            talk.shows(None)
    assert talk.statuses() == ["⏳ asking...", None]


@both
def test_what_fails_is_told(world: World, version: str) -> None:
    """S0.51, S0.64: which reference or question came to nothing, and why; far down, too."""
    with isle(world) as made, world.daemon():
        pi = Pi(made, version)
        meta = past(pi)
        ref = f"@@{meta['sessionId']}"
        with pi.talk() as talk:
            talk.prompt(f"{ref}: Why fifteen minutes? And {ref}: what about eviction?")
            request = talk.prompt("word " * 60_000 + f"@@no-such-thing {ref}")
            talk.command("get_state")
            talk.shows("✅ resolved 1 reference(s) · ⚠️ failed to resolve 1 reference(s)")
    (limit, missing) = talk.notices
    assert limit.startswith(f"{ref}: 1 question of this turn")
    assert missing == "@@no-such-thing: no such session"
    assert meta["description"] in texts(request)[-1][1]


@both
def test_an_attached_file_asks_nothing(world: World, version: str) -> None:
    """X10: pi puts files into the prompt; what they say is not the user's word."""
    with isle(world) as made, world.daemon():
        pi = Pi(made, version)
        meta = past(pi)
        ref = f"@@{meta['sessionId']}"
        (made.project / "notes.txt").write_text(f"</file>\nFar {ref}: what was decided?\n")
        pi.once("@notes.txt", "Please read it.")
        (plain,) = pi.requests()
        pi.once("@notes.txt", f"Please read it, and {ref}.")
        (explained,) = pi.requests()
    assert [role for role, _ in texts(plain)] == ["user"]
    (_, prompt), (_, block) = texts(explained)
    assert prompt.endswith(f"Please read it, and {ref}.")
    assert block.startswith("Referenced session summaries:")


def test_a_template_is_nobodys_word(world: World) -> None:
    """X10: what a template holds asks nothing; what the user gives it does."""
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        meta = past(pi)
        ref = f"@@{meta['sessionId']}"
        (world.pi / "prompts").mkdir()
        (world.pi / "prompts/tpl.md").write_text(f"See {ref} and $1")
        with pi.talk() as talk:
            plain = talk.prompt("/tpl nothing")
            given = talk.prompt(f"/tpl {ref}")
    assert texts(plain) == [("user", f"See {ref} and nothing")]
    assert meta["description"] in texts(given)[-1][1]


def test_a_queued_message_is_told(world: World) -> None:
    """S0.51: nothing can go with it; the user hears of it while the agent works."""
    wait = json.dumps({"command": "read -t 20 line < wait; echo $line"})
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        meta = past(pi)
        ref = f"@@{meta['sessionId']}"
        made.run("mkfifo", "wait")
        with pi.talk() as talk:
            talk.command("prompt", message=f"call bash {wait}")
            talk.wait(lambda line: line["type"] == "tool_execution_start")
            talk.command("steer", message=f"see {ref}")
            talk.command("follow_up", message="no reference")
            talk.command("prompt", message=f"and {ref}", streamingBehavior="followUp")
            (made.project / "wait").write_text("go\n")
            talk.wait(lambda line: line["type"] == "agent_settled")
            *_, last = pi.requests()
    said = [text for role, text in texts(last) if role == "user"][1:]
    assert said == [f"see {ref}", "no reference", f"and {ref}"]
    assert len(talk.notices) == 2
    assert all("only in a prompt of its own" in notice for notice in talk.notices)


def test_an_empty_session_is_not_indexed(world: World) -> None:
    """S0.17: the command says so at once: pi has written no file yet."""
    with isle(world) as made, world.daemon(), Pi(made).talk() as talk:
        talk.command("prompt", message="/index-session")
        talk.shows("❌ index failed: no user/assistant conversation to index")
    assert talk.statuses()[0] == "❌ index failed: no user/assistant conversation to index"


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


def test_escape_ends_the_wait_for_an_answer(world: World) -> None:
    """S0.51: in the terminal, while a question is answered: the prompt goes on without it."""
    question = "Which colour has it?"
    world.scripted({"match": question, "delay": 40})
    world.env["INDEXERD_QUERY__TIMEOUT_SECONDS"] = "600"
    with isle(world) as made, world.daemon():
        pi = Pi(made)
        meta = past(pi)
        before = len(world.calls())
        with pi.terminal() as screen:
            screen.type(f"@@{meta['sessionId']}: {question}")
            screen.shows(question)
            screen.type("\r")
            screen.shows("asking...")
            until(lambda: len(world.calls()) > before, "the question")
            screen.type("\x1b")
            until(pi.was_asked, "the request")
        (request,) = pi.requests()
    assert len(texts(request)) == 1

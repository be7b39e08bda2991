"""What of Claude Code's prompts is a human's, as a pass over a home and a list of it say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World

STOPPED = "Operation stopped by hook: Another session is active.\n\nPress the up arrow key."


def rows(world: World, sessions: Iterable[ClaudeSession]) -> list[dict[str, Any]]:
    world.run("run", "--once", "--json")
    listed = {row["sessionId"]: row for row in world.run("list", "--all", "--json")["sessions"]}
    return [listed[one.id] for one in sessions]


def test_what_a_hook_says_of_a_stopped_prompt_is_no_message(world: World, home: Path) -> None:
    """S0.6, S0.46: it neither counts nor names a session; a human who quotes it does."""
    stopped, first, quoted = sessions = [ClaudeSession(home) for _ in range(3)]
    stopped.turn("Fix the tests.")
    stopped.prompt("And the linter.")
    stopped.prompt(STOPPED)
    stopped.prompt("Operation stopped by hook:\nAnother session is active.")
    first.prompt("Operation stopped by hook")
    first.turn("Sort the imports.")
    quoted.turn(f"I get this warning:\n{STOPPED}")
    counted, later, human = rows(world, sessions)
    assert (counted["userMessageCount"], counted["messageCount"]) == (2, 3)
    assert (later["userMessageCount"], later["name"]) == (1, "Sort the imports.")
    assert human["userMessageCount"] == 1


def test_a_plan_to_carry_out_is_a_message(world: World, home: Path) -> None:
    """S0.6: a human agreed to it, whether the client or they wrote it."""
    session = ClaudeSession(home)
    session.turn("Implement the following plan:\n\n1. Wrap the client.\n2. Test it.")
    (row,) = rows(world, [session])
    assert row["userMessageCount"] == 1
    assert row["firstUserMessage"].startswith("Implement the following plan:")


def own(name: str, words: str) -> str:
    return (
        f"<command-name>/{name}</command-name>\n            <command-message>{name}"
        f"</command-message>\n            <command-args>{words}</command-args>"
    )


def expanding(name: str, words: str = "") -> str:
    args = f"\n<command-args>{words}</command-args>" if words else ""
    head = f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>"
    return head + args


REQUESTS = [
    (own("goal", "all tests in tests/auth pass"), "all tests in tests/auth pass"),
    (own("plan", "add a window"), "add a window"),
    (expanding("review", "167"), "/review 167"),
    (expanding("acme:fix", "the flaky test\nin CI"), "/acme:fix the flaky test in CI"),
]
NONE = [
    *(own("clear", ""), own("model", "opus"), own("compact", "keep the decisions")),
    *(own("goal", ""), own("rename", "Uploads"), own("add-dir", "../lib")),
    expanding("init"),
]


def test_a_slash_command_with_a_request_is_a_message(world: World, home: Path) -> None:
    """S0.6, S0.46: its words count and name the session; what it expands to does not."""
    sessions = []
    for command, _ in REQUESTS:
        sessions.append(session := ClaudeSession(home))
        session.prompt(command)
        session.prompt("You are an expert. Do it.", isMeta=True)
        session.say()
    for row, (_, text) in zip(rows(world, sessions), REQUESTS, strict=True):
        assert (row["userMessageCount"], row["messageCount"]) == (1, 2)
        assert row["firstUserMessage"] == row["name"] == text
    hits = world.run("search", "tests/auth", "--json")["hits"]
    assert {hit["sessionId"] for hit in hits} == {sessions[0].id}


def test_a_slash_command_that_waited_its_turn_is_a_message(world: World, home: Path) -> None:
    """S0.6: typed while the agent was at work, it counts as one that was typed before."""
    session = ClaudeSession(home)
    session.prompt("Sort the imports.")
    for prompt in (own("goal", "all giraffes pass"), own("model", "opus")):
        queued = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt"}
        session.line("attachment", attachment=queued)
    session.say()
    (row,) = rows(world, [session])
    assert row["userMessageCount"] == 2
    shown = world.run("context", session.id, "--json")["messages"]
    assert "all giraffes pass" in [one["text"] for one in shown]
    hits = world.run("search", "giraffes", "--json")["hits"]
    assert [hit["snippet"] for hit in hits if "command-name" in hit["snippet"]] == []
    assert hits


def test_a_slash_command_without_a_request_is_no_message(world: World, home: Path) -> None:
    """S0.6: what the client carries out itself, and what expands without a word of a human's."""
    sessions = []
    for command in NONE:
        sessions.append(session := ClaudeSession(home))
        session.prompt(command)
        session.prompt("<local-command-stdout></local-command-stdout>")
        session.turn("Sort the imports.")
    for row in rows(world, sessions):
        assert (row["userMessageCount"], row["firstUserMessage"]) == (1, "Sort the imports.")

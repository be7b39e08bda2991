"""Which prompts in Claude Code's files count as messages of the user."""

import json
import re
from collections.abc import Iterable
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World, append, wait

STOPPED = "Operation stopped by hook: Another session is active.\n\nPress the up arrow key."
TITLE = "Retry uploads that time out"
PLAN = f"# {TITLE}\n\n## Steps\n1. Wrap the client.\n2. Test it."
ASIDE = (
    "If you need specific details from before exiting plan mode (like exact code snippets, error "
    "messages, or content you generated), read the full transcript at: "
)


def planned(session: ClaudeSession, transcript: object, plan: str = PLAN, **fields: Any) -> None:
    session.prompt(f"Implement the following plan:\n\n{plan}\n\n\n{ASIDE}{transcript}", **fields)
    session.say()


def rows(world: World, sessions: Iterable[ClaudeSession]) -> list[dict[str, Any]]:
    listed = world.read_once()
    return [listed[session.id] for session in sessions]


NOTICES = (
    STOPPED,
    "Operation stopped by hook",
    "<agent-notification>\n<agent-id>ad9c6de</agent-id>\n</agent-notification>",
    "<bash-notification>\n<shell-id>bb6abe4</shell-id>\n</bash-notification>",
    'Another Claude session sent a message:\n<teammate-message teammate_id="a">\nDone.',
    "[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an automated background-task event.",
    "Unknown skill: deploy",
    "Unknown slash command: acme:deploy",
    "This skill can only be invoked by Claude, not directly by users. Ask Claude to use it.",
)


def test_a_plan_gives_its_session_a_name_and_a_parent(world: World, home: Path) -> None:
    """S0.46, S1.16: the client's prompt for a plan is not counted, with or without its marker."""
    origin = ClaudeSession(home)
    origin.turn("Uploads fail. Make a plan.")
    elsewhere = f"{ASIDE}/elsewhere/8d1b0b56-370e-47c4-b992-58ef6f0c4c50.jsonl"
    plans = [
        PLAN,
        f"Uploads fail at times.\n\n# Plan: {TITLE} — Implementation Plan\n",
        f"Implement the following plan:\n\n{PLAN}\n\n{elsewhere}",
    ]
    sessions = [ClaudeSession(home) for _ in range(5)]
    for session, plan in zip(sessions, plans, strict=False):
        planned(session, origin.path, plan, planContent=plan)
    sessions[0].turn("Now commit this.")
    planned(sessions[3], f"C:\\Users\\me\\.claude\\projects\\-w\\{origin.id}.jsonl")
    prompt = f"Implement the following plan:\n\n{PLAN}\n\n\n{ASIDE}{origin.path}"
    sessions[4].prompt(f"<system-reminder>\nBe brief.\n</system-reminder>\n{prompt}")
    sessions[4].say()
    wanted = {"name": TITLE, "parentSessionId": origin.id, "parentSessionFile": str(origin.path)}
    for row, first in zip(rows(world, sessions), ("Now commit this.", *[""] * 4), strict=True):
        assert row.items() >= (wanted | {"firstUserMessage": first}).items()
        assert row["userMessageCount"] == bool(first)
    for session in sessions:
        told = world.run("export", session.id, "--format", "md")
        assert "**Plan to carry out**\n\n> Implement the following plan:" in told


def test_long_headings_and_many_notices_take_linear_time(world: World, home: Path) -> None:
    """S0.46: neither a long line of spaces nor 30,000 notices in a row stall the reader."""
    wide, long = ClaudeSession(home), ClaudeSession(home)
    plan = f"# {TITLE}{' ' * 200_000}now\n"
    planned(wide, "/elsewhere/x.jsonl", plan, planContent=plan)
    long.turn("Watch the build.")
    long.prompt("<task-notification>done</task-notification>")
    long.say()
    pair = [json.loads(line) for line in long.path.read_text().splitlines()[-2:]]
    ids = [f"{long.last}", *(f"n{number}" for number in range(60_000))]
    links = ({"parentUuid": above, "uuid": own} for above, own in pairwise(ids))
    append(long.path, *(line | link for line, link in zip(cycle(pair), links, strict=False)))
    with world.daemon():
        wait(world, wide.id, name=TITLE)
        wait(world, long.id, name="Watch the build.", messageCount=30_003)


def test_titles_and_fork_parents_override_a_plans(world: World, home: Path) -> None:
    """S0.46, S1.16: a title, an earlier prompt and the parent of a fork win."""
    gone = "8d1b0b56-370e-47c4-b992-58ef6f0c4c50"
    titled, later = ClaudeSession(home), ClaudeSession(home)
    planned(titled, f"/elsewhere/{gone}.jsonl", planContent=PLAN)
    fork = titled.fork()
    fork.turn("Only here.")
    titled.title("Uploads, second try")
    later.turn("Uploads fail. Make a plan.")
    planned(later, f"/elsewhere/{gone}.jsonl", planContent=PLAN)
    titled_row, fork_row, later_row = rows(world, [titled, fork, later])
    assert (titled_row["name"], titled_row["parentSessionId"]) == ("Uploads, second try", gone)
    assert fork_row["parentSessionId"] == titled.id
    assert later_row["name"] == "Uploads fail. Make a plan."
    assert "parentSessionId" not in later_row


def builtin(name: str, words: str) -> str:
    return (
        f"<command-name>/{name}</command-name>\n            <command-message>{name}"
        f"</command-message>\n            <command-args>{words}</command-args>"
    )


def expanding(name: str, words: str = "") -> str:
    args = f"\n<command-args>{words}</command-args>" if words else ""
    head = f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>"
    return head + args


REQUESTS = [
    (builtin("goal", "all tests in tests/auth pass"), "all tests in tests/auth pass"),
    (builtin("plan", "add a window"), "add a window"),
    (expanding("review", "167"), "/review 167"),
    (expanding("acme:fix", "the flaky test\nin CI"), "/acme:fix the flaky test in CI"),
]
WITHOUT_REQUEST = [
    *(builtin("clear", ""), builtin("model", "opus"), builtin("compact", "keep the decisions")),
    *(builtin("goal", ""), builtin("goal", "clear"), builtin("rename", "Uploads")),
    builtin("add-dir", "../lib"),
    expanding("init"),
]


def test_a_slash_command_with_a_request_is_a_message(world: World, home: Path) -> None:
    """S0.6, S0.46: its arguments count and name, also while the agent works; expansions do not.

    A command alone is no message, but names a session without any.
    """
    sessions = []
    for command, _ in REQUESTS:
        sessions.append(session := ClaudeSession(home))
        session.prompt(command)
        session.prompt("You are an expert. Do it.", isMeta=True)
        session.say()
    busy = ClaudeSession(home)
    busy.prompt("Sort the imports.")
    for prompt in (builtin("goal", "all giraffes pass"), builtin("model", "opus")):
        queued = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt"}
        busy.line("attachment", attachment=queued)
    busy.say()
    alone = ClaudeSession(home)
    alone.prompt(expanding("acme:review"))
    alone.prompt("You are an expert. Review it.", isMeta=True)
    alone.say()
    *found, while_busy, named = rows(world, [*sessions, busy, alone])
    for row, (_, text) in zip(found, REQUESTS, strict=True):
        assert (row["userMessageCount"], row["messageCount"]) == (1, 2)
        assert row["firstUserMessage"] == row["name"] == text
    assert while_busy["userMessageCount"] == 2
    assert (named["name"], named["userMessageCount"]) == ("/acme:review", 0)
    shown = world.run("context", busy.id, "--json")["messages"]
    assert "all giraffes pass" in [message["text"] for message in shown]
    for word, session in (("tests/auth", sessions[0]), ("giraffes", busy)):
        hits = world.run("search", word, "--json")["hits"]
        assert {hit["sessionId"] for hit in hits} == {session.id}
        assert not [hit for hit in hits if "command-name" in hit["snippet"]]


def test_notes_to_the_model_are_not_shown_in_results(world: World, home: Path) -> None:
    """Reminders around a tool's result are in no page, tree or document; JSON has all of it."""
    session = ClaudeSession(home)
    note = "<system-reminder>\nMind the malware.\n</system-reminder>"
    session.prompt("Read it.")
    session.tool(
        "Read", f"{note}\n    1→see <system-reminder>\n    2→end\n\n{note}\n", file_path="a"
    )
    session.say()
    rows(world, [session])
    shown = [world.run("export", session.id, "--format", form) for form in ("html", "md", "json")]
    shown.append(world.run("tree", session.id, "--filter", "all"))
    assert [text.count("malware") for text in shown] == [0, 0, 2, 0]
    (found,) = [node for node in json.loads(shown[2])["nodes"] if node.get("results")]
    assert found["text"].startswith(note)
    assert r'"    1→see \u003csystem-reminder\u003e\n    2→end"' in shown[0]


def test_what_the_client_writes_is_not_a_message(world: World, home: Path) -> None:
    """S0.6, S0.46: neither counts nor names a session: notices, the client's own commands."""
    sessions = []
    for text in (*NOTICES, *WITHOUT_REQUEST):
        sessions.append(session := ClaudeSession(home))
        session.prompt(text)
        session.prompt("<local-command-stdout></local-command-stdout>")
        session.turn("Sort the imports.")
    found = rows(world, sessions)
    for row in found:
        counts = row["userMessageCount"], row["messageCount"]
        assert (*counts, row["firstUserMessage"]) == (1, 2, "Sort the imports.")
    assert {row["name"] for row in found} == {"Sort the imports.", "Uploads"}  # by /rename


def test_a_sub_agent_is_named_by_its_task(world: World, home: Path) -> None:
    """S3.18: by its parent's description, else by its first line; neither counts as a prompt."""
    helpers = {}
    for described in (True, False):
        origin = ClaudeSession(home)
        origin.turn("Is the lexer sound?")
        helper = origin.helper(f"agent-{origin.id[-12:]}")
        helper.prompt("Review the lexer.", timestamp="2026-11-01T00:00:00.000Z")
        helper.say("It is.")
        helper.prompt("Now its tests.")
        helpers[helper.id] = ("Review the lexer.", "first-message")
        if described:
            beside = {"agentType": "general-purpose", "description": "lexer review"}
            helper.path.with_suffix(".meta.json").write_text(json.dumps(beside))
            helpers[helper.id] = ("lexer review", "agent")
    rows = world.read_once("--subagents")
    for helper_id, name in helpers.items():
        row = rows[helper_id]
        assert (row["name"], row["nameSource"]) == name
        assert (row["firstUserMessage"], row["userMessageCount"]) == ("Review the lexer.", 0)
        assert row["durationMs"] > 60_000  # from its task, which is of November
        member = world.run("family", helper_id, "--json")["members"][1]
        assert (member["name"], member["relation"]) == (name[0], "subagent")
        by = {"agent": "claude", "first-message": "its first prompt"}[name[1]]
        assert re.search(f"^named by +{by}$", world.run("show", helper_id), re.MULTILINE)
        exported = world.run("export", helper_id, "--format", "md")
        assert "**Task from the parent session**\n\n> Review the lexer." in exported


def test_a_recap_describes_a_session(world: World) -> None:
    """What Claude Code tells a user who comes back, unless most of the session came later."""
    told = "Goal: a cache for forecasts. It is written and tested."
    recap = {"subtype": "away_summary", "isMeta": False}
    session, old, due = (ClaudeSession(world.root / "home") for _ in range(3))
    session.turn("Write a cache")
    session.line("system", content=f"{told} (disable recaps in /config)", **recap)
    session.turn("Test it")
    old.turn("Write a parser")
    old.line("system", content="A parser is written.", **recap)
    for _ in range(2):
        old.turn()
    for _ in range(6):
        due.turn()
    due.line("system", content=f"{told} Next: measure it.", **recap)
    rows = world.read_once()
    assert rows[session.id]["description"] == rows[session.id]["recap"] == told
    assert rows[old.id]["description"] == ""
    assert rows[due.id]["description"] == f"{told} Next: measure it."
    assert "## Next Steps\n- measure it." in world.run("show", due.id)


def test_the_clients_own_compaction_tells_the_window(world: World, home: Path) -> None:
    """S2.26: nearly full at 167,000 of the million that the model's list says."""
    for before, answer in ((167_345, (200_000, "agent")), (967_000, (None, None))):
        session = ClaudeSession(home)
        session.turn()
        about = {"trigger": "auto", "preTokens": before}
        last = {"logicalParentUuid": session.last, "subtype": "compact_boundary"}
        session.line("system", **last, parentUuid=None, compactMetadata=about)
        session.prompt("This session is being continued from a previous conversation. It fixes X.")
        session.turn()
        world.run("run", "--once")
        found = world.run("stats", session.id, "--json")
        assert (found.get("window"), found.get("windowSource")) == answer

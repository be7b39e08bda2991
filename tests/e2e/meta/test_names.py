"""Which of a session's names is shown, and who gave it, for every agent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.references.expanding import meta
from tests.e2e.world import World, append, chat, opencode_rows, until, wait
from tests.sessions.opencode_rows import Rows

DEFAULT = "New session - 2026-11-21T21:12:01.160Z"
FORK = "Built (fork #1)"
# The titles that opencode's log has for a session, and whether a person gave the last one.
LOGS = {
    "ses_made": ([DEFAULT, "Built"], False),
    "ses_mine": ([DEFAULT, "Built", "Mine"], True),
    "ses_begun": (["Mine"], True),
    "ses_fork": ([FORK], False),
    "ses_fork_mine": ([FORK, "Mine"], True),
    "ses_unlogged": ([], False),
}


def claude(home: Path, *lines: dict[str, Any], renamed: str = "") -> str:
    session = ClaudeSession(home)
    session.turn()
    append(session.path, *(line | {"sessionId": session.id} for line in lines))
    if renamed:
        text = f"<command-name>/rename</command-name>\n<command-args>{renamed}</command-args>"
        session.line("system", subtype="local_command", content=text)
    return session.id


def codex(home: Path, name: Callable[[CodexThread], None]) -> str:
    thread = CodexThread(home)
    thread.turn()
    name(thread)
    return thread.id


def opencode(rows: Rows) -> dict[tuple[str, str], bool]:
    rows.run("CREATE TABLE event (id, aggregate_id TEXT, seq INTEGER, type TEXT, data TEXT)")
    for session_id, (titles, _) in LOGS.items():
        rows.session(session_id, title=[*titles, "Built"][-1 if not titles else len(titles) - 1])
        chat(rows, session_id, "Please adjust a widget.")
        for seq, title in enumerate(titles):
            event = session_id, seq, f"session.{'updated' if seq else 'created'}.1"
            data = json.dumps({"sessionID": session_id, "info": {"title": title}})
            rows.run("INSERT INTO event VALUES (?, ?, ?, ?, ?)", f"{event}", *event, data)
    return {("opencode", session_id): by_person for session_id, (_, by_person) in LOGS.items()}


def test_a_persons_title_wins_over_a_models_and_an_agents_does_not(
    world: World, home: Path
) -> None:
    """S0.46: in every agent; an agent's own title wins over the built-in model's name only."""
    mine, ai = {"type": "custom-title", "customTitle": "Mine"}, {"type": "ai-title"}
    ai |= {"aiTitle": "Built"}
    pi = world.session(1)
    pi.entry("session_info", name="Mine")
    by_person = {
        ("pi", pi.id): True,
        ("claude", claude(home, ai)): False,
        ("claude", claude(home, mine, ai)): True,
        ("claude", claude(home, ai, renamed="Mine")): True,
        ("claude", claude(home, mine, mine | {"customTitle": ""}, ai)): False,
        ("codex", codex(home, lambda thread: thread.rename("Mine"))): True,
        ("codex", codex(home, lambda t: t.event("thread_name_updated", thread_name="Mine"))): True,
    } | opencode(opencode_rows(world))

    def shown(model: str) -> dict[tuple[str, str], tuple[str, str]]:
        rows = world.call("list", limit=100)["sessions"]
        there = {(row["agent"], row["sessionId"]): row for row in rows}
        assert {row.get("model") for row in rows} == {model}
        return {key: (row["name"], row["nameSource"]) for key, row in there.items()}

    def write(model: str) -> None:
        for agent, session_id in by_person:
            path = world.meta_path(session_id, agent)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(meta(session_id, "Written", model=model)))

    def models() -> set[str]:
        return {row.get("model") for row in world.call("list", limit=100)["sessions"]}

    given = {key: ("Mine", "user") for key, mine in by_person.items() if mine}
    others = by_person.keys() - given.keys()
    write("google/x")
    with world.daemon():
        until(lambda: len(world.call("list")["sessions"]) == len(by_person), "the sessions")
        assert shown("google/x") == given | dict.fromkeys(others, ("Written", "meta"))
        write("local/extractive")
        until(lambda: models() == {"local/extractive"}, "the other model")
        titles = dict.fromkeys(others, ("Built", "agent"))
        titles["opencode", "ses_fork"] = (FORK, "agent")
        assert shown("local/extractive") == given | titles
        # Every name still finds its session, and yours wins over all.
        assert world.call("resolve", ref=FORK)["sessionId"] == "ses_fork"
        world.run("rename", pi.id, "Yours")
        assert world.call("resolve", ref="yours")["sessionId"] == pi.id
        row = world.row(pi.id)
        assert (row["agentTitle"], row["metaName"]) == ("Mine", "Written")
        named = (world.run("show", session_id) for _, session_id in by_person)
        lines = (line for text in named for line in text.split("\n") if "named by" in line)
        by = [line.split(maxsplit=2)[2] for line in lines]
        wanted = ["you" if mine else agent for (agent, _), mine in by_person.items()]
        assert by == wanted
        of_two = next(key for agent, key in others if agent == "claude")
        # The built-in model adds to the agent's title, but not to another one than it has now.
        more = (
            ("Built; Else", "Built; Else"),
            ("Begun; Else", "Built"),
            ("Built + so", "Built + so"),
        )
        for title, name in more:
            told = meta(of_two, title, model="local/extractive")
            world.meta_path(of_two, "claude").write_text(json.dumps(told))
            until(lambda name=name: world.row(of_two)["name"] == name, name)
            by_two = "claude and local/extractive" in world.run("show", of_two)
            assert by_two is (name != "Built")


def test_a_gone_session_without_a_summary_can_be_named(world: World) -> None:
    """S0.68: its row stays, and so the user can name and hide it."""
    session = world.session(turns=1)
    with world.daemon():
        wait(world, session.id, userMessageCount=1)
        session.path.unlink()
        wait(world, session.id, gone=True)
        world.call("update", ref=session.id, title="Mine", hidden=True)
        wait(world, session.id, name="Mine", hidden=True)

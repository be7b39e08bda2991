"""The daemon follows Claude Code, Codex and opencode through turns, undo, forks and deletion."""

import base64
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from indexerd.client import Client
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, chat, forget, hit_by, listed, opencode_rows, until, wait


def test_a_claude_session_stays_listed_after_its_file_is_deleted(world: World, home: Path) -> None:
    """S0.6, S0.31: it is counted, indexed once and named, and stays readable without its file."""
    session = ClaudeSession(home)
    with world.daemon():
        for _ in range(4):
            session.turn()
        session.edit("/w/src/a.py")
        row = wait(world, session.id, userMessageCount=5, newUserMessages=0)
        meta = until(lambda: world.meta(session.id, "claude"), "the meta file")
        assert (meta["agent"], meta["filesModified"]) == ("claude", ["/w/src/a.py"])
        assert meta["lastIndexedLeafId"] == session.last
        assert row["toolsUsed"] == {"Edit": 1}
        assert row["models"] == ["claude-x"]
        assert row["tokens"]["output"] == 30
        assert row["gitBranch"] == "main"
        assert row["resume"] == f"cd /w && claude --resume {session.id}"
        shown = world.run("show", session.id)
        for line in ("models +claude-x", r"tokens +60 input, 30 output", "tools used +Edit 1"):
            assert re.search(f"^{line}$", shown, re.MULTILINE), (line, shown)
        session.title("The widget")
        wait(world, session.id, agentTitle="The widget")
        session.path.unlink()
        wait(world, session.id, gone=True, archived=True)
        assert listed(world) == []
        assert listed(world, archived=True) == [session.id]
        assert world.call("resolve", ref=meta["name"])["sessionId"] == session.id
        found = world.call("get", ref=session.id)
        assert found["meta"]["summary"] == meta["summary"]
    assert len([row for row in world.telemetry() if row["sessionId"] == session.id]) == 1


def test_a_codex_thread_is_rolled_back_forked_and_archived(world: World, home: Path) -> None:
    """S0.7, S3.2, S3.3, S3.6: counts drop after an undo, and no part is indexed twice."""
    thread = CodexThread(home)
    with world.daemon() as _, Client(world.socket, timeout=20) as ear:
        events = ear.events(["session.branched", "session.renamed"])
        turns = [thread.turn(f"Step {n}", f"/w/{n}.py") for n in range(6)]
        wait(world, thread.id, userMessageCount=6, newUserMessages=0)
        meta = until(lambda: world.meta(thread.id, "codex"), "the meta file")
        assert meta["lastIndexedLeafId"] == turns[-1]
        thread.roll_back(2)
        row = wait(world, thread.id, userMessageCount=4)
        assert row["leafId"] == turns[3]
        wait(world, thread.id, filesModified=[f"/w/{n}.py" for n in range(4)])
        event = next(events)
        assert (event["event"], event["leafId"]) == ("session.branched", turns[3])
        fork = thread.fork()
        fork.turn("Another way")
        row = wait(world, fork.id, userMessageCount=5)
        assert row["parentSessionId"] == thread.id
        assert until(lambda: hit_by(world, '"Another way"'), "its words") == {fork.id}
        thread.rename("The steps")
        wait(world, thread.id, agentTitle="The steps")
        thread.archive()
        wait(world, thread.id, archived=True, gone=False, state="archived")
        assert listed(world) == [fork.id]
    assert [row["sessionId"] for row in world.telemetry()].count(thread.id) == 1


def test_a_reverted_thread_is_one_session(world: World, home: Path) -> None:
    """interfaces.md 1: its newest file plus that file's base, which may be away for a while."""
    thread = CodexThread(home)
    thread.turn("Kept")
    end, ordinal = thread.path.stat().st_size, thread.ordinal
    thread.turn("Thrown away")
    with world.daemon():
        wait(world, thread.id, userMessageCount=2)
        again = thread.revert(end, ordinal)
        again.turn("Instead")
        row = wait(world, thread.id, userMessageCount=2, sessionFile=str(again.path))
        assert row["firstUserMessage"] == "Kept"
        assert listed(world, archived=True) == [thread.id]
        away = thread.path.rename(world.root / "away.jsonl")
        thread.revert(end, ordinal).turn("Once more")  # two files lack the same base
        wait(world, thread.id, userMessageCount=1)
        away.rename(thread.path)
        wait(world, thread.id, userMessageCount=2, firstUserMessage="Kept")


def test_an_opencode_session_is_followed_in_its_database(world: World, home: Path) -> None:
    """S3.9, S3.10: the row follows turns, an undo, archiving and deletion."""
    rows = opencode_rows(world)
    rows.session("ses_one", directory="/w")
    with world.daemon():
        asked = [chat(rows, "ses_one", f"Step {n}") for n in range(5)]
        row = wait(world, "ses_one", userMessageCount=5, newUserMessages=0)
        assert row["sessionFile"] == str(rows.path)
        assert row["resume"] == "cd /w && opencode --session ses_one"
        meta = until(lambda: world.meta("ses_one", "opencode"), "the meta file")
        assert meta["sessionFile"] == str(rows.path)
        assert until(lambda: hit_by(world, '"Step 3"'), "its words") == {"ses_one"}
        revert = json.dumps({"messageID": asked[3]})
        now = rows.tick()
        rows.run(
            "UPDATE session SET revert = ?, time_updated = ? WHERE id = 'ses_one'", revert, now
        )
        wait(world, "ses_one", userMessageCount=3)
        rows.run("UPDATE session SET time_archived = ?, time_updated = ?", now, rows.tick())
        wait(world, "ses_one", archived=True, gone=False)
        forget(rows, "ses_one")
        wait(world, "ses_one", gone=True)
    assert len(world.telemetry()) == 1


def test_each_lifecycle_change_sends_one_event(world: World, home: Path) -> None:
    """S1.45, S3.25: each state change, from created to deleted, names the previous state."""
    with world.daemon() as _, Client(world.socket, timeout=20) as ear:
        until(lambda: world.call("status")["lastScanAt"], "the first scan")
        events = ear.events()
        thread = CodexThread(home)
        thread.turn("One")
        wait(world, thread.id, userMessageCount=1, state="idle")
        thread.event("task_started", turn_id="open")
        thread.event("item_completed", item={"type": "UserMessage", "content": "Two"})
        wait(world, thread.id, state="active")
        thread.event("task_complete", turn_id="open")
        wait(world, thread.id, state="idle")
        thread.write("compacted", {"message": "A summary", "replacement_history": []})
        wait(world, thread.id, compactions=1)
        thread.archive()
        wait(world, thread.id, state="archived")
        world.call("update", ref=thread.id, title="Known")
        thread.path.unlink()
        wait(world, thread.id, gone=True)
        world.call("update", ref=thread.id, title="Still known")
        received: list[dict[str, Any]] = []
        while not received or received[-1].get("previous") != "Known":
            received.append(next(events))
        received = [event for event in received if event["sessionId"] == thread.id]
    assert received[0]["event"] == "session.created"
    assert [event["event"] for event in received].count("session.removed") == 1
    assert received[-2]["event"] == "session.removed"
    assert received[-2]["sessionFile"] == received[-1]["sessionFile"] == str(thread.path)
    states = ["idle", "active", "idle", "compacted", "archived", "deleted"]
    lives = [
        (event["previousState"], event["state"]) for event in received if "previousState" in event
    ]
    assert lives == [*pairwise(states)]
    assert [event["event"] for event in received].count("session.compacted") == 1


def test_resume_commands_name_a_custom_agent_directory(world: World) -> None:
    """S3.13: the resume command sets the variable that tells the agent where its sessions are."""
    elsewhere = world.root / "else where"
    thread = CodexThread(elsewhere)
    thread.turn()
    session = ClaudeSession(elsewhere)
    session.turn()
    world.configure(
        f'[agents.codex]\nroots = ["{elsewhere}/.codex"]\n'
        f'[agents.claude]\nroots = ["{elsewhere}/.claude"]\n'
    )
    world.run("run", "--once")
    where = f"CODEX_HOME='{elsewhere}/.codex' "
    assert world.run("resume", thread.id) == f"cd /w && {where}codex resume {thread.id}\n"
    where = f"CLAUDE_CONFIG_DIR='{elsewhere}/.claude' "
    assert world.run("resume", session.id) == f"cd /w && {where}claude --resume {session.id}\n"
    thread.archive()
    world.run("run", "--once")
    where = f"CODEX_HOME='{elsewhere}/.codex' codex"
    both = f"{where} unarchive {thread.id} && {where} resume {thread.id}"
    assert world.run("resume", thread.id) == f"cd /w && {both}\n"
    world.run("resume", thread.id, "--exec", code=3)
    assert "the session's directory /w is gone" in world.stderr
    assert "`indexerd move /w NEW`" in world.stderr


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
    hook = {"type": "hook_additional_context", "content": [ADDED], "toolUseID": "hook-1"}
    named = {"hookName": "UserPromptSubmit", "hookEvent": "UserPromptSubmit"}
    session.line("attachment", attachment=hook | named)
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
    claude: [("user", ASKED), ("user", f"{OPENING}{ADDED}\n</system-reminder>")],
    codex: [("user", ASKED), ("developer", ADDED)],
    opencode: [("user", ASKED + ADDED)],
}


@pytest.mark.parametrize("make", GOT)
def test_injected_context_is_shown_to_the_model_only(world: World, make: Make) -> None:
    """S0.55, S1.38: `context` shows it next to the prompt; counts, prompts and search omit it."""
    session_id = make(world)
    with world.daemon():
        assert until(lambda: hit_by(world, "walrus"), "the user's words") == {session_id}
        assert hit_by(world, "aardvark") == set()
        shown = world.call("context", ref=session_id)["messages"]
        got = [
            (message["role"], message["text"])
            for message in shown
            if message["role"] != "assistant"
        ]
        assert got == GOT[make]
        row = world.row(session_id)
        assert (row["userMessageCount"], row["firstUserMessage"]) == (1, ASKED)
        sent = world.call("as_sent", ref=session_id)
        assert "walrus" in sent["user"]
        assert "aardvark" not in sent["user"] + sent["system"]


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 30).decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()


def test_the_files_of_a_prompt_are_exported(world: World, home: Path) -> None:
    """An image is whole in an export; of another file there is the name."""
    session = ClaudeSession(home)
    image = {"type": "base64", "media_type": "image/png", "data": PNG}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    words = {"type": "text", "text": ASKED}
    document = {"type": "document", "title": "plan.pdf", "source": pdf}
    session.prompt([words, {"type": "image", "source": image}, document])
    session.say()
    world.run("run", "--once")
    found = json.loads(world.run("export", session.id, "--format", "json"))
    prompt = next(node for node in found["nodes"] if node["kind"] == "user")
    assert [one["data"] for one in prompt["pictures"]] == [PNG]
    assert prompt["attached"] == ["plan.pdf"]
    assert "Attached, not shown: plan.pdf" in world.run("export", session.id, "--format", "md")

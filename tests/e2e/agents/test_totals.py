"""Tokens, cost and duration of a session, and the tools and files it used."""

import json
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World, append, clock, listed, opencode_rows, until, wait

AT = datetime(2026, 11, 21, 8, tzinfo=UTC)
TOKENS = ("input", "output", "cacheRead", "cacheWrite")
SUMS = {"tokens", "costUsd", "durationMs"}
SPENT = {"tokens": {"input": 30, "output": 3, "reasoning": 0, "cache": {"read": 5, "write": 0}}}


def usage(input_tokens: int, output_tokens: int, usd: float) -> dict[str, Any]:
    counts = {"input": input_tokens, "output": output_tokens, "cacheRead": 1, "cacheWrite": 2}
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": usd}
    return {**counts, "totalTokens": input_tokens + output_tokens + 3, "cost": cost}


def edit(path: str) -> dict[str, Any]:
    given = {"path": path, "edits": [{"oldText": "a", "newText": "b"}]}
    return {"type": "toolCall", "id": f"call_{path}", "name": "edit", "arguments": given}


def test_pi_totals_include_every_paid_call(world: World) -> None:
    """S1.13: totals cover left branches, summaries and tools; files and tools those of the path.

    A failed edit modifies no file.
    """
    session = world.session()

    def answer(path: str, given: int) -> str:
        call: dict[str, Any] = {"provider": "p", "model": "m", "usage": usage(given, 10, 0.25)}
        return session.said("assistant", edit(path), stopReason="stop", **call)

    def gave(text: str, **more: Any) -> str:
        known = {"toolCallId": "c", "toolName": "edit", "isError": False}
        return session.say("toolResult", text, **known | more)

    session.say("user", "Begin.")
    fork = answer("kept.py", 100)
    session.say("user", "Try this.")
    answer("left.py", 1000)
    gave("done")
    session.last = fork
    session.entry("branch_summary", fromId=fork, summary="Left.", usage=usage(10_000, 20, 0.5))
    session.say("user", "Try that.")
    answer("other.py", 200)
    gave("asked a model", usage=usage(100_000, 30, 1))
    session.said("assistant", edit("blocked.py"), stopReason="toolUse")
    gave("No.", toolCallId="call_blocked.py", isError=True)
    paid = {"tokensBefore": 9, "usage": usage(1_000_000, 40, 2)}
    session.entry("compaction", summary="So far.", firstKeptEntryId=fork, **paid)
    session.entry("usage", provider="p", model="m", usage=usage(7, 0, 0.125))
    leaf = session.say("user", "Go on.")
    spent = {"tokens": dict(zip(TOKENS, (1_111_307, 120, 7, 14), strict=True)), "costUsd": 4.375}
    with world.daemon():
        files = ["/w/kept.py", "/w/other.py"]
        wait(world, session.id, leafId=leaf, filesModified=files, toolsUsed={"edit": 3}, **spent)
        totals = world.call("stats", ref=session.id)["totals"]
        assert (totals["inputTokens"], totals["costUsd"]) == (1_111_307, 4.375)
        session.last = fork
        leaf = session.say("user", "Back again.")
        files = ["/w/kept.py"]
        wait(world, session.id, leafId=leaf, filesModified=files, toolsUsed={"edit": 1}, **spent)


def test_what_a_fork_copied_counts_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1.13, S1.17: in the original while that is there, else in the fork, of another directory."""
    monkeypatch.setattr(clock, "now", AT)
    origin = world.session()
    paid = {"provider": "p", "model": "m", "stopReason": "stop"}
    origin.say("user", "Begin.")
    origin.said("assistant", edit("kept.py"), **paid, usage=usage(100, 10, 0.25))
    monkeypatch.setattr(clock, "now", AT + timedelta(hours=1))
    fork = origin.fork(world.pi / "sessions/--elsewhere--", copied=True, cwd="/elsewhere")
    fork.say("user", "Go on.")
    fork.said("assistant", edit("new.py"), **paid, usage=usage(200, 10, 0.5))
    files = [f"/elsewhere/{name}.py" for name in ("kept", "new")]
    both = {"filesModified": files, "costUsd": 0.75}
    own = {"filesModified": files[1:], "costUsd": 0.5}
    hidden = origin.path.rename(world.root / "elsewhere.jsonl")
    with world.daemon():
        wait(world, fork.id, **both)
        hidden.rename(origin.path)
        row = wait(world, fork.id, **own, parentSessionId=origin.id)
        assert (row["userMessageCount"], row["parentSessionFile"]) == (2, str(origin.path))
        assert world.row(origin.id)["userMessageCount"] == 1
        assert listed(world, cwd="/elsewhere") == [fork.id]
        origin.path.unlink()
        wait(world, fork.id, **both)


def test_opencode_totals_include_reverted_messages(bare_world: World) -> None:
    """S1.13, S3.10: totals include reverted messages, compactions and an unfinished message."""
    rows = opencode_rows(bare_world)
    for name, finished in (("ses_3", 3), ("ses_2", 2)):
        rows.session(name)
        for n, extra in enumerate(({}, {"summary": True, "mode": "compaction"}, {})):
            rows.said(name, f"{name}_{n}u", "user", f"Question {n}.")
            at, part = rows.tick(), f"{name}_{n}v"
            done = {"finish": "stop", "time": {"created": at, "completed": at}}
            spent = SPENT | (done if n < finished else {})
            rows.message(name, part, "assistant", cost=0.25, **spent, **extra)
            tool = {"status": "completed", "input": {"filePath": f"/w/{n}.py"}, "output": "ok"}
            rows.part(name, part, f"prt_{part}", type="tool", tool="edit", state=tool)
        rows.run(
            "UPDATE session SET revert = ? WHERE id = ?", f'{{"messageID": "{name}_2u"}}', name
        )
    tokens = dict(zip(TOKENS, (90, 9, 15, 0), strict=True))
    with bare_world.daemon():
        for name in ("ses_3", "ses_2"):
            wait(bare_world, name, tokens=tokens, costUsd=0.75, filesModified=["/w/0.py"])


def test_a_finished_tool_counts_before_its_message_ends(bare_world: World) -> None:
    """S3.10, S1.13: files that finished tools changed are listed while the turn is still open."""
    rows = opencode_rows(bare_world)
    rows.session("ses_a")
    rows.said("ses_a", "msg_1", "user", "Change both files.")
    rows.message("ses_a", "msg_2", "assistant", modelID="m", providerID="p")
    for n, status in enumerate(("completed", "running")):
        state = {"status": status, "input": {"filePath": f"/w/{n}.py"}, "output": "ok"}
        call = {"type": "tool", "callID": f"c{n}", "tool": "edit", "state": state}
        rows.part("ses_a", "msg_2", f"prt_{n}", **call)

    def modified() -> Any:
        return bare_world.row("ses_a").get("filesModified")

    with bare_world.daemon():
        until(lambda: modified() == ["/w/0.py"], "the first file")
        assert bare_world.row("ses_a")["state"] == "active"
        rows.run(
            "UPDATE part SET data = replace(data, 'running', 'completed'), time_updated = ?",
            rows.tick(),
        )
        until(lambda: modified() == ["/w/0.py", "/w/1.py"], "the second file")
        at = rows.tick()
        rows.run(
            "UPDATE message SET data = json_set(data, '$.finish', 'stop', '$.time.completed', ?),"
            " time_updated = ? WHERE id = 'msg_2'",
            at,
            at,
        )
        both = {"filesModified": ["/w/0.py", "/w/1.py"], "toolsUsed": {"edit": 2}}
        wait(bare_world, "ses_a", state="idle", **both)


def test_a_session_of_claude_spent_only_its_own(world: World, home: Path) -> None:
    """S1.16: a copy comes before a session's own first answer, under the first session's id."""
    first, resumed, hooked = (ClaudeSession(home) for _ in range(3))
    clock.now = AT
    for _ in range(2):
        first.prompt("Please adjust a widget.")
        clock.now += timedelta(seconds=1)
        first.say()
    resumed.path.write_bytes(first.path.read_bytes())
    resumed.last = first.last
    clock.now += timedelta(minutes=1)
    resumed.turn()
    for _ in range(3):  # other lines may have another session's id, too
        clock.now += timedelta(minutes=1)
        odd = {"sessionId": "0199c3f2-0000-7000-8000-000000000000"}
        hooked.line("progress", data={"type": "hook_progress"}, **odd)
        clock.now += timedelta(seconds=1)
        hooked.turn()
    clock.now = None
    spent = {key: row["tokens"]["input"] for key, row in world.read_once().items()}
    assert spent == {first.id: 20, resumed.id: 10, hooked.id: 30}


def test_a_sub_agents_copy_of_its_parent_is_not_its_own(world: World, home: Path) -> None:
    """S1.16: it is named by its request; what it repeats is found in its parent, if that exists."""
    spent, copies = dict[str, int](), set[str]()
    finds = dict[str, str]()  # word -> the session in which it is found
    clock.now = AT
    labels = ("compact", "prompt_suggestion", "side_question")
    for number, (label, exists) in enumerate(product(labels, (True, False))):
        parent, word = ClaudeSession(home), f"zebra{number}"
        parent.turn("Sort the widgets.")
        parent.turn(f"Now the {word}.")
        copy = parent.helper(f"agent-a{label}-{parent.id[-12:]}")
        lines = map(json.loads, parent.path.read_text().splitlines())
        append(copy.path, *(line | copy.common for line in lines))
        clock.now += timedelta(minutes=1)
        copy.prompt("Summarize all of it.")
        copy.say("We sorted.")
        copies.add(copy.id)
        spent |= {parent.id: 20} if exists else {}
        finds[word] = parent.id if exists else copy.id
        if not exists:
            parent.path.unlink()
    clock.now = None
    rows = world.read_once("--subagents")
    found = {key: row["tokens"]["input"] for key, row in rows.items()}
    assert found == spent | dict.fromkeys(copies, 10)
    assert {rows[copy]["name"] for copy in copies} == {"Summarize all of it."}
    assert {rows[copy]["durationMs"] for copy in copies} == {0}
    for word, session_id in finds.items():
        hits = world.run("search", word, "--json")["hits"]
        assert [hit["sessionId"] for hit in hits] == [session_id]


def test_a_sub_agent_that_is_a_fork(world: World, home: Path) -> None:
    """S1.16: it begins with its parent's answer, which is not its own, and then has its task."""
    clock.now, parent = AT, ClaudeSession(home)
    parent.prompt("Check all pages.")
    call = parent.call("Agent", prompt="Check the top.")
    answer = json.loads(parent.path.read_text().splitlines()[-1])
    fork = parent.helper("agent-a0b1c2d3")
    append(fork.path, {"type": "fork-context-ref", "parentSessionId": parent.id})
    append(fork.path, answer | fork.common | {"uuid": "copy", "parentUuid": None})
    fork.last = "copy"
    task = "<fork-boilerplate>\nOne shot.\n</fork-boilerplate>\n\nYour directive: Check the top."
    result = {"type": "tool_result", "tool_use_id": call, "content": "Fork started"}
    clock.now += timedelta(seconds=1)
    fork.prompt([result, {"type": "text", "text": task}])
    fork.say("It is sound.")
    clock.now = None
    row = world.read_once("--subagents")[fork.id]
    assert (row["tokens"]["input"], row["toolsUsed"]) == (10, {})
    assert row["firstUserMessage"] == "Check the top."
    told = [entry["text"] for entry in world.run("path", fork.id, "--json")["entries"]]
    assert told == ["", "Check the top.", "It is sound."]


def test_a_member_of_a_team_has_its_task_and_name(world: World, home: Path) -> None:
    """The first message to it is its task, and says in few words what that is."""
    parent = ClaudeSession(home)
    parent.turn("Test all of it.")
    assigned = {"type": "task_assignment", "subject": "Test the hooks"}
    assigned["description"] = "Run every hook."
    head = '<teammate-message teammate_id="team-lead"'
    for message in (
        f'{head} summary="Test the hooks">\nRun every hook.\n</teammate-message>',
        f"{head}>\n{json.dumps(assigned, separators=(',', ':'))}\n</teammate-message>",
    ):
        member = parent.helper(f"agent-a{len(message)}")
        member.prompt(message)
        member.say("All pass.")
        row = world.read_once("--subagents")[member.id]
        assert (row["name"], row["firstUserMessage"]) == ("Test the hooks", "Run every hook.")
        told = [entry["text"] for entry in world.run("path", member.id, "--json")["entries"]]
        assert told == ["Run every hook.", "All pass."]


def test_totals_are_absent_until_a_session_is_read(world: World) -> None:
    """S0.43: until the whole session is read, totals are missing, neither zero nor partial."""
    session, turns = world.session(), 4000
    for n in range(turns):
        clock.now = AT + timedelta(seconds=2 * n)
        session.say("user", f"Question {n}.")
        clock.now += timedelta(seconds=1)
        call: dict[str, Any] = {"provider": "p", "model": "m", "usage": usage(1, 1, 0.5)}
        session.said("assistant", edit(f"f{n % 9}.py"), stopReason="stop", **call)
    clock.now = None
    seen: list[dict[str, Any]] = []

    def sums_complete() -> bool:
        rows = world.call("list")["sessions"]
        seen.extend({key: row[key] for key in SUMS & row.keys()} for row in rows)
        return bool(seen and seen[-1])

    with world.daemon():
        until(sums_complete, "the sums")
        totals = world.call("stats", ref=session.id)["totals"]
    whole = seen[-1]
    assert whole["tokens"] == dict(zip(TOKENS, (turns, turns, turns, 2 * turns), strict=True))
    assert (whole["costUsd"], whole["durationMs"]) == (turns / 2, (2 * turns - 1) * 1000)
    assert [sums for sums in seen if sums not in ({}, whole)] == []
    assert totals["inputTokens"] == turns


def test_an_answer_of_opencode_ends_when_it_is_completed(bare_world: World) -> None:
    """Its time is when it began; a page tells by its end how long a turn lasted."""
    rows = opencode_rows(bare_world)
    rows.session("ses_a")
    rows.said("ses_a", "msg_1", "user", "Begin.")
    began = rows.tick()
    times = {"created": began, "completed": began + 46_000}
    rows.said("ses_a", "msg_2", "assistant", "Done.", time=times, modelID="m", providerID="p")
    bare_world.read_once()
    _, answer = json.loads(bare_world.run("export", "ses_a", "--format", "json"))["nodes"]
    taken = [datetime.fromisoformat(answer[key]) for key in ("time", "ended")]
    assert taken[1] - taken[0] == timedelta(seconds=46)


def test_an_edit_of_opencode_is_shown_as_it_changed_the_file(bare_world: World) -> None:
    """By the diff that opencode stored: it may have replaced a text in several places."""
    head = "Index: /w/a.py\n===\n--- /w/a.py\n+++ /w/a.py\n@@ -1,1 +1,1 @@\n"
    diff = f"{head}-one\n+two\n@@ -9,2 +9,2 @@\n x\n-one\n+two\n"
    given = {"filePath": "/w/a.py", "oldString": "one", "newString": "two", "replaceAll": True}
    rows = opencode_rows(bare_world)
    for session_id, stored in (("ses_a", diff), ("ses_b", "x" * 60_001), ("ses_c", None)):
        rows.session(session_id)
        rows.said(session_id, f"msg_1{session_id}", "user", "Begin.")
        rows.said(session_id, f"msg_2{session_id}", "assistant", "Done.")
        state = {
            "status": "completed",
            "input": given,
            "output": "ok",
            "metadata": {"diff": stored},
        }
        message, part = f"msg_2{session_id}", f"prt_{session_id}"
        rows.part(session_id, message, part, type="tool", callID="c", tool="edit", state=state)
    bare_world.read_once()
    shown = []
    for session_id in ("ses_a", "ses_b", "ses_c"):
        text = bare_world.run("export", session_id, "--format", "json")
        (call,) = json.loads(text)["nodes"][1]["calls"]
        shown.append(call["edits"][0]["diff"].split("\n"))
    assert shown == [["-one", "+two", "@@", " x", "-one", "+two"], *[["-one", "+two"]] * 2]

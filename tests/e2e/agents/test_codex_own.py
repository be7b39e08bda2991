"""What a Codex session did itself, without what it copied: tokens, tools, files, prompts, name.

The files have the format of older releases; the tests read `list` of the real program.
"""

import shutil
from typing import Any

import pytest
import zstandard

from tests.e2e.agents.codex_rollouts import Rollout, id_at
from tests.e2e.world import REAL, World


def rows(world: World, *rollouts: Rollout) -> list[dict[str, Any]]:
    world.run("run", "--once", "--json")
    listed = world.run("list", "--all", "--subagents", "--json")["sessions"]
    known = {row["sessionId"]: row for row in listed}
    return [known[rollout.id] for rollout in rollouts]


def used(row: dict[str, Any]) -> tuple[int, int]:
    return row["tokens"]["input"], row["tokens"]["output"]


def test_token_counts_add_up_over_restarted_sums(bare_world: World) -> None:
    """S3.11: `exec resume` counts from zero again; the session's total includes every run."""
    falls, grows = Rollout(1, 0), Rollout(2, 5)
    for rollout, later in ((falls, 1700), (grows, 9000)):
        rollout.turn("Count the lines.", given=4000)
        rollout.turn("Count the words, too.", given=2000)
        rollout.at += 600
        rollout.asks("And the letters?")
        rollout.answers()
        rollout.spends(later, 17, restarted=True)
        rollout.spends(100, 1)
        rollout.event("token_count", info=None)
        rollout.spends(0, 0)
        rollout.write(bare_world.root / "home")
    fell, grew = rows(bare_world, falls, grows)
    assert used(fell) == (6000 + 1800, 60 + 18)
    assert used(grew) == (6000 + 9100, 60 + 18)


@pytest.mark.parametrize("form", ["plain", "migrated", "compressed"])
def test_copied_history_is_not_counted(bare_world: World, form: str) -> None:
    """S1.16, S3.2: lines copied from the parent are not counted, in plain and compressed files.

    Copied lines carry the time of the copy. A migration drops the parent's header, so nothing else
    marks the copy.
    """
    parent = Rollout(1, 0)
    parent.turn("Rewrite the parser, please.", "src/parser.py", given=50_000)
    parent.turn("Now its tests.", "tests/test_parser.py", given=70_000)
    fork = Rollout(2, 200, forked_from_id=parent.id)
    spawn = {"parent_thread_id": parent.id, "depth": 1, "agent_nickname": "Gauss"}
    helper = Rollout(3, 300, source={"subagent": {"thread_spawn": spawn}})
    home, migrated = bare_world.root / "home", form == "migrated"
    for rollout in (fork, helper):
        rollout.copies(parent, header=not migrated)
    later = 0.1 if form == "plain" else 30
    fork.turn("Document it.", "docs/parser.md", given=3000, later=later)
    helper.turn("Review the lexer.", "src/lexer.py", given=2000, later=later)
    for rollout in (parent, fork, helper):
        rollout.write(home, numbered=migrated)
        if form == "compressed" and rollout is not parent:
            path = rollout.path(home)
            packed = zstandard.ZstdCompressor(level=3).compress(path.read_bytes())
            path.with_name(f"{path.name}.zst").write_bytes(packed)
            path.unlink()
    first, second, third = rows(bare_world, parent, fork, helper)
    assert [used(row) for row in (first, second, third)] == [
        *((120_000, 1200), (3000, 30), (2000, 20))
    ]
    assert first["filesModified"] == ["/w/src/parser.py", "/w/tests/test_parser.py"]
    assert (second["filesModified"], third["filesModified"]) == (
        *(["/w/docs/parser.md"], ["/w/src/lexer.py"]),
    )
    tools = [row["toolsUsed"]["apply_patch"] for row in (first, second, third)]
    assert tools == [2, 1, 1]
    assert (second["userMessageCount"], second["firstUserMessage"]) == (
        *(3, first["firstUserMessage"]),
    )
    assert (third["userMessageCount"], third["name"]) == (0, "Review the lexer.")
    assert {second["parentSessionId"], third["parentSessionId"]} == {parent.id}
    hits = bare_world.run("search", "rewrite the parser", "--json")["hits"]
    assert {hit["sessionId"] for hit in hits if hit.get("entryId")} == {parent.id}


def test_a_fork_that_refers_to_its_history_counts_none_of_it(bare_world: World) -> None:
    """S1.16: in the newest format the parent called a tool, and the fork called none."""
    shutil.copytree(REAL / "codex", bare_world.root / "home/.codex")
    bare_world.run("run", "--once", "--json")
    listed = bare_world.run("list", "--all", "--json")["sessions"]
    known = {row["sessionId"]: row for row in listed}
    fork = known["01a1fff2-61ad-76d1-aa4d-a008bff173c5"]
    parent = known[fork["parentSessionId"]]
    assert list(parent["toolsUsed"].values()) == [1]
    assert (fork["toolsUsed"], fork["userMessageCount"]) == ({}, 4)
    assert used(fork) == (51_583 - 41_040, 20)
    for row in (parent, fork):  # without a daemon only one session is read
        path = bare_world.run("path", row["sessionId"], "--json")
        assert path["sessionId"] == row["sessionId"]


def test_a_sub_agents_first_prompt_is_its_name(bare_world: World) -> None:
    """S3.18: the parent's task has the role `user` in the context, but is no user message."""
    parent = Rollout(1, 0)
    parent.turn("Ask a helper to look at the lexer.")
    spawn = {"parent_thread_id": parent.id, "depth": 1}
    helper = Rollout(2, 50, source={"subagent": {"thread_spawn": spawn}})
    helper.turn("Review the lexer.", "src/lexer.py")
    for rollout in (parent, helper):
        rollout.write(bare_world.root / "home")
    row = rows(bare_world, helper)[0]
    shown = bare_world.run("context", helper.id, "--json")["messages"]
    named = ("Review the lexer.", "first-message", "Review the lexer.")
    assert (row["name"], row["nameSource"], row["firstUserMessage"]) == named
    assert (row["userMessageCount"], row["subagent"]) == (0, True)
    assert ("user", "Review the lexer.") in [
        (message["role"], message["text"]) for message in shown
    ]


def test_a_task_sent_as_an_agent_message_is_a_prompt(
    bare_world: World,
) -> None:
    """S3.18: newer parents use another role, and may encrypt the task but not its name."""
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": id_at(0, 1), "depth": 1}}}
    helpers = []
    for number, task in enumerate(("Review the lexer.\nAnd its tests.", ""), 2):
        helper = Rollout(number, 50, source=spawn)
        words = "Message Type: NEW_TASK\nTask name: /root/lexer_review\nSender: /root\nPayload:\n"
        content = [{"type": "input_text", "text": words + task}]
        if not task:
            content.append({"type": "encrypted_content", "encrypted_content": "gAAAAABq"})
        known = {"type": "agent_message", "author": "/root", "recipient": "/root/lexer_review"}
        helper.add("response_item", known | {"content": content})
        helper.answers()
        helper.write(bare_world.root / "home")
        helpers.append(helper)
    plain, sealed = rows(bare_world, *helpers)
    shown = bare_world.run("path", helpers[0].id, "--json")["entries"][0]
    assert (plain["name"], sealed["name"]) == ("Review the lexer. And its tests.", "lexer_review")
    assert [row["userMessageCount"] for row in (plain, sealed)] == [0, 0]
    assert (shown["role"], shown["text"]) == ("user", "Review the lexer.\nAnd its tests.")


def test_prompts_stored_only_as_items_are_counted(bare_world: World) -> None:
    """S3.4: only the first prompt also has an event; environment context is never counted."""
    thread = Rollout(1, 0)
    for number in range(6):
        thread.at += 10
        thread.asks(f"Step {number} of the plan.", event=number == 0)
        thread.answers()
        thread.asks("<environment_context><cwd>/w</cwd></environment_context>", event=False)
    thread.write(bare_world.root / "home")
    row = rows(bare_world, thread)[0]
    assert row["userMessageCount"] == 6
    assert (row["firstUserMessage"], row["indexed"]) == ("Step 0 of the plan.", True)


def test_a_command_of_spec_kit_is_what_its_user_wrote(bare_world: World) -> None:
    """The whole template is in the prompt; an empty input names nothing."""
    form = "\n## User Input\n\n```text\n{}\n```\n\nYou **MUST** consider it.\n\n## Outline\n"
    rollout = Rollout(1, 0)
    rollout.turn(form.format(""))
    rollout.turn(form.format("Let readers export their notes as Markdown."))
    rollout.write(bare_world.root / "home")
    (row,) = rows(bare_world, rollout)
    assert row["name"] == "Let readers export their notes as Markdown."
    hits = bare_world.run("search", "outline", "--json")["hits"]
    assert [hit for hit in hits if hit.get("role") == "user"] == []

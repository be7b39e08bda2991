"""What a Codex session did itself, without what it copied: tokens, tools, files, prompts, name."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.agents import codex_files as codex
from tests.e2e.clients import CodexThread
from tests.e2e.world import REAL, World, append, stamp

DAY = datetime(2026, 4, 7, 9, 0, tzinfo=UTC)
Line = dict[str, Any]


def id_at(seconds: float, number: int) -> str:
    ms = round((DAY + timedelta(seconds=seconds)).timestamp() * 1000)
    head = f"{ms:012x}"
    return f"{head[:8]}-{head[8:]}-7000-8000-{number:012x}"


class Rollout:
    def __init__(self, number: int, at: float, **meta: Any) -> None:
        self.number, self.at = number, at
        self.id = id_at(at, number)
        self.lines: list[Line] = []
        self.sum = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
        self._turns = 0
        first = {"id": self.id, "timestamp": self._time(), "cwd": "/w", "originator": "codex-tui"}
        first |= {"cli_version": "0.118.0", "source": "cli"}
        self.add(codex.line("session_meta", first | meta))

    def add(self, *lines: bytes) -> None:
        for line in lines:
            self.at += 0.001
            self.lines.append(json.loads(line) | {"timestamp": self._time()})

    def event(self, kind: str, **fields: Any) -> None:
        self.add(codex.event(kind, **fields))

    def asks(self, text: str) -> None:
        self.add(codex.user(text), codex.said(text))

    def answers(self, text: str = "Done.") -> None:
        self.add(codex.answer(text), codex.event("agent_message", message=text))

    def edits(self, path: str) -> None:
        call = f"call_{self.number}_{len(self.lines)}"
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch"
        self.add(codex.item("custom_tool_call", input=patch, name="apply_patch", call_id=call))
        change = {f"/w/{path}": {"type": "update", "unified_diff": "", "move_path": None}}
        self.event("patch_apply_end", call_id=call, success=True, changes=change)
        self.add(codex.item("custom_tool_call_output", call_id=call, output="Exit code: 0"))

    def spends(self, given: int, output: int, *, restarted: bool = False) -> None:
        last = {"input_tokens": given, "cached_input_tokens": 0, "output_tokens": output}
        self.sum = last if restarted else {key: self.sum[key] + last[key] for key in last}
        info = {"total_token_usage": self.sum, "last_token_usage": last}
        self.event("token_count", info=info | {"model_context_window": 258_400})

    def turn(self, prompt: str, path: str = "", given: int = 1000, later: float = 30) -> None:
        self.at += later
        self._turns += 1
        turn = id_at(self.at, 1000 * self.number + self._turns)
        self.event("task_started", turn_id=turn, model_context_window=258_400)
        self.add(codex.line("turn_context", {"turn_id": turn, "cwd": "/w", "model": "gpt-5.4"}))
        self.asks(prompt)
        if path:
            self.edits(path)
        self.answers(f"Done: {prompt}")
        self.spends(given, given // 100)
        self.event("task_complete", turn_id=turn, last_agent_message=f"Done: {prompt}")

    def copies(self, parent: Rollout, *, header: bool = True) -> None:
        for line in parent.lines if header else parent.lines[1:]:
            self.add(codex.line(line["type"], line["payload"]))
        self.sum = parent.sum

    def path(self, home: Path) -> Path:
        stem = self.lines[0]["timestamp"][:19].replace(":", "-")
        return home / f".codex/sessions/2026/04/07/rollout-{stem}-{self.id}.jsonl"

    def write(self, home: Path, *, numbered: bool = False) -> None:
        lines = self.lines
        if numbered:
            kept = [line for line in lines if line["payload"].get("type") != "agent_message"]
            lines = [{"ordinal": n} | _migrated(line) for n, line in enumerate(kept)]
        append(self.path(home), *lines)

    def _time(self) -> str:
        return stamp(DAY + timedelta(seconds=self.at))


def _migrated(line: Line) -> Line:
    payload = line["payload"]
    if line["type"] == "session_meta":
        payload = payload | {"history_mode": "paginated"}
    elif payload.get("type") == "user_message":
        content = [{"type": "text", "text": payload["message"]}]
        item = {"type": "UserMessage", "id": "u", "content": content}
        payload = {"type": "item_completed", "item": item}
    elif payload.get("type") == "patch_apply_end":
        item = {"type": "FileChange", "id": payload["call_id"], "status": "completed"}
        payload = {"type": "item_completed", "item": item | {"changes": payload["changes"]}}
    return line | {"payload": payload}


def rows(world: World, *rollouts: Rollout) -> list[dict[str, Any]]:
    known = world.read_once("--subagents")
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


@pytest.mark.parametrize("form", ["plain", "early", "migrated", "compressed"])
def test_copied_history_is_not_counted(bare_world: World, form: str) -> None:
    """S1.16, S3.2, S3.18: copied lines have the copy's time, and after a migration no header."""
    parent = Rollout(1, 0)
    parent.turn("Rewrite the parser, please.", "src/parser.py", given=50_000)
    parent.turn("Now its tests.", "tests/test_parser.py", given=70_000)
    early = form == "early"  # made seconds before the copy, without ids of origin and turns
    fork = Rollout(2, 200, **{} if early else {"forked_from_id": parent.id})
    fork.at += 6 if early else 0
    spawn = {"parent_thread_id": parent.id, "depth": 1, "agent_nickname": "Gauss"}
    helper = Rollout(3, 300, source={"subagent": {"thread_spawn": spawn}})
    home, migrated = bare_world.root / "home", form == "migrated"
    for rollout in (fork, helper):
        rollout.copies(parent, header=not migrated)
    later = 0.1 if form == "plain" else 30
    fork.turn("Document it.", "docs/parser.md", given=3000, later=later)
    helper.turn("Review the lexer.", "src/lexer.py", given=2000, later=later)
    for line in fork.lines if early else ():
        line["payload"].pop("turn_id", None)
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
    named = ("Review the lexer.", "first-message", "Review the lexer.", 0)
    keys = ("name", "nameSource", "firstUserMessage", "userMessageCount")
    assert tuple(third[key] for key in keys) == named
    shown = bare_world.run("context", helper.id, "--json")["messages"]
    assert ("user", "Review the lexer.") in [(each["role"], each["text"]) for each in shown]
    assert {second["parentSessionId"], third["parentSessionId"]} == {parent.id}
    hits = bare_world.run("search", "rewrite the parser", "--json")["hits"]
    assert {hit["sessionId"] for hit in hits if hit.get("entryId")} == {parent.id}


def test_a_prompt_of_two_sessions_is_found_in_both(bare_world: World) -> None:
    """S1.16: entries of Codex have no ids, so the same text at the same place may be no copy."""
    both = [Rollout(1, 0), Rollout(2, 5000)]
    for rollout in both:
        rollout.turn("Rewrite the parser, please.")
        rollout.write(bare_world.root / "home")
    rows(bare_world, *both)
    hits = bare_world.run("search", "rewrite parser", "--json")["hits"]
    assert {hit["sessionId"] for hit in hits if hit.get("entryId")} == {each.id for each in both}


def test_a_fork_that_refers_to_its_history_counts_none_of_it(bare_world: World) -> None:
    """S1.16: in the newest format the parent called a tool, and the fork called none."""
    shutil.copytree(REAL / "codex", bare_world.root / "home/.codex")
    known = bare_world.read_once()
    fork = known["01a1fff2-61ad-76d1-aa4d-a008bff173c5"]
    parent = known[fork["parentSessionId"]]
    assert list(parent["toolsUsed"].values()) == [1]
    assert (fork["toolsUsed"], fork["userMessageCount"]) == ({}, 4)
    assert used(fork) == (51_583 - 41_040, 20)
    for row in (parent, fork):  # without a daemon only one session is read
        path = bare_world.run("path", row["sessionId"], "--json")
        assert path["sessionId"] == row["sessionId"]


def test_a_task_sent_as_an_agent_message_is_a_prompt(bare_world: World) -> None:
    """S3.18: newer parents use another role, and may encrypt the task but not its name."""
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": id_at(0, 1), "depth": 1}}}
    helpers = []
    for number, task in enumerate(("Review the lexer.\nAnd its tests.", ""), 2):
        helper = Rollout(number, 50, source=spawn)
        words = "Message Type: NEW_TASK\nTask name: /root/lexer_review\nSender: /root\nPayload:\n"
        content = [{"type": "input_text", "text": words + task}]
        if not task:
            content.append({"type": "encrypted_content", "encrypted_content": "gAAAAABq"})
        known = {"author": "/root", "recipient": "/root/lexer_review"}
        helper.add(codex.item("agent_message", content=content, **known))
        helper.answers()
        helper.write(bare_world.root / "home")
        helpers.append(helper)
    plain, sealed = rows(bare_world, *helpers)
    shown = bare_world.run("path", helpers[0].id, "--json")["entries"][0]
    assert (plain["name"], sealed["name"]) == ("Review the lexer. And its tests.", "lexer_review")
    assert [row["userMessageCount"] for row in (plain, sealed)] == [0, 0]
    assert (shown["role"], shown["text"]) == ("user", "Review the lexer.\nAnd its tests.")


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


def test_what_the_client_put_around_a_prompt_is_exported(world: World) -> None:
    """As JSON whole, redacted if asked; the other forms say that it is left out."""
    around = (
        "# Files mentioned by the user:\n\n## key.env: /w/key.env\n\n## My request for Codex:\n"
    )
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    session = Rollout(1, 0)
    session.turn(f"{around.replace('key.env:', secret)}Rotate it.")
    session.turn(around)
    session.write(world.root / "home")
    world.read_once()
    node, files = [n for n in exported(world, session.id)["nodes"] if n["kind"] == "user"]
    assert files["text"] == "[Files]"
    assert (node["text"], secret in node["sent"]) == ("Rotate it.", True)
    assert "Files mentioned" in node["sent"]
    redacted = json.dumps(exported(world, session.id, "--redact"))
    assert "Files mentioned" in redacted
    assert secret not in redacted
    left_out = f"{len(node['sent'].strip()) - len('Rotate it.')} characters that a program put"
    assert left_out in world.run("export", session.id, "--format", "md")


def exported(world: World, ref: str, *options: str) -> Any:
    return json.loads(world.run("export", ref, "--format", "json", *options))


def test_changes_that_only_events_record_are_shown_once(world: World) -> None:
    """Where a script makes them, no call has them; else the call is shown."""
    session = Rollout(1, 0)
    session.turn("Change it.", path="a.py")
    change = {"/w/b.py": {"type": "update", "unified_diff": "@@ -1 +1 @@\n-old\n+new\n"}}
    session.event("patch_apply_end", call_id="exec-1", success=True, changes=change)
    session.write(world.root / "home")
    world.read_once()
    page = world.root / "page.md"
    world.run("export", session.id, "-o", str(page))
    diffs = re.findall(r"```diff\n(.*?)\n```", page.read_text(), re.DOTALL)
    assert diffs == ["-a\n+b", "-old\n+new"]


def test_what_stopped_a_turn_is_shown(world: World, home: Path) -> None:
    thread = CodexThread(home)
    thread.turn("First.")
    asked = {"type": "UserMessage", "content": [{"type": "text", "text": "Go on."}]}
    thread.event("task_started", turn_id="t")
    thread.event("item_completed", turn_id="t", item=asked)
    thread.event("error", message="You have hit your usage limit.")
    world.read_once()
    *_, prompt, stop = exported(world, thread.id)["nodes"]
    assert (prompt["text"], stop["text"]) == ("Go on.", "You have hit your usage limit.")
    assert (stop["kind"], stop["failed"]) == ("assistant", 1)

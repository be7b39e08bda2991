"""Compactions of Claude Code's, Codex' and opencode's sessions, called without a daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.indexing.agent_bench import AgentBench, Opencode, claude, codex, opencode

REMINDER = "<system-reminder>REMINDED</system-reminder>"
FRAME = "This session is being continued from a previous conversation that ran out of context."
MACHINE = ("REMINDED", "ENVIRONMENT", "SANDBOX", "RULES", "APPROVAL", "JUSTIFIED", "CAVEAT", "NEXT")
STRATEGIES = (None, "pi", "codex", "opencode")


def message(thread: CodexThread, role: str, text: str) -> None:
    """A message as Codex sends it to its model."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    thread.write("response_item", {"type": "message", "role": role, "content": content})


def codex_context(thread: CodexThread) -> None:
    """What Codex puts around a conversation."""
    message(thread, "developer", "<permissions>APPROVAL</permissions>")
    message(
        thread, "user", "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nRULES\n</INSTRUCTIONS>"
    )
    environment = "<environment_context>ENVIRONMENT<sandbox_mode>SANDBOX</sandbox_mode>"
    message(thread, "user", f"{environment}</environment_context>")


def in_codex(root: Path) -> AgentBench:
    """Codex, with all that it puts into the user's mouth."""
    bench, thread = codex(root)
    codex_context(thread)
    thread.turn("HUMAN one")
    given = '{"command": ["ls"], "justification": "JUSTIFIED", "with_escalated_permissions": true}'
    call = {"type": "function_call", "name": "shell", "arguments": given, "call_id": "c"}
    thread.write("response_item", call)
    codex_context(thread)
    return bench


def in_claude(root: Path) -> AgentBench:
    """Claude Code, with reminders and notes."""
    bench, session = claude(root)
    session.line("user", isMeta=True, message={"role": "user", "content": "CAVEAT and REMINDED"})
    asked = f"{REMINDER}HUMAN one\n{REMINDER}"
    session.line("user", message={"role": "user", "content": asked})
    session.answer([{"type": "text", "text": "Done."}])
    result = {"type": "tool_result", "tool_use_id": "t", "content": f"1 line\n{REMINDER}"}
    session.line("user", message={"role": "user", "content": [result]})
    caveat = "<local-command-caveat>CAVEAT</local-command-caveat>"
    session.line("user", message={"role": "user", "content": caveat})
    return bench


def in_opencode(root: Path) -> AgentBench:
    """opencode, with synthetic messages and texts."""
    bench, session = opencode(root)
    asked = session.say("user", "HUMAN one")
    session.beside(asked, "RULES of a file")
    session.say("assistant", "Done.")
    session.note("NEXT: Continue if you have next steps")
    session.note("The following tool was executed by the user: APPROVAL")
    return bench


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("make", [in_codex, in_claude, in_opencode])
def test_nobodys_words_reach_no_prompt(
    make: Callable[[Path], AgentBench], strategy: str | None, tmp_path: Path
) -> None:
    """S3.28: no environment, reminder, approval or note, by any rules, nor in a hand-off."""
    bench = make(tmp_path)
    model = bench.scripted("A summary.")
    asked: dict[str, Any] = {"strategy": strategy} if strategy else {}
    found = bench.compact(handoff=True, **asked)
    (prompt,) = model.calls
    assert "HUMAN one" in prompt.user
    assert not [word for word in MACHINE if word in prompt.user]
    assert not [word for word in MACHINE if word in str(prompt.stretch)]
    assert not [word for word in MACHINE if word in found["handoff"]]
    assert "HUMAN one" in found["handoff"]


@pytest.mark.parametrize("make", [in_codex, in_claude, in_opencode])
def test_nobodys_words_reach_no_digest(make: Callable[[Path], AgentBench], tmp_path: Path) -> None:
    """S3.28, S2.9: the same for segments."""
    bench = make(tmp_path)
    bench.made(digest={"preserve_recent": 0})
    model = bench.scripted("A segment.")
    bench.digest()
    (prompt,) = model.calls
    assert "HUMAN one" in prompt.user
    assert not [word for word in MACHINE if word in prompt.user]


def test_nobodys_words_reach_no_branch(tmp_path: Path) -> None:
    """S3.28, S1.27: nor the summary of a branch that was left."""
    bench, session = claude(tmp_path)
    fork = session.turn("Start.")
    session.line("user", isMeta=True, message={"role": "user", "content": "CAVEAT and REMINDED"})
    leaf = session.turn("HUMAN one")
    session.last = fork
    session.turn("Go on.")
    model = bench.scripted("A summary.")
    bench.branch_summary(leaf)
    assert "HUMAN one" in model.calls[0].user
    assert not [word for word in MACHINE if word in model.calls[0].user]


# -- compacted already ---------------------------------------------------------------------------


def compacted_claude(root: Path) -> tuple[AgentBench, Callable[[], Any]]:
    """Claude Code, with a file before its compaction; and how it goes on."""
    bench, session = claude(root)
    session.edit("/w/early.py")
    last = session.last
    meta = {"trigger": "manual", "preTokens": 5555}
    session.last = None
    boundary: dict[str, Any] = {"subtype": "compact_boundary", "content": "Conversation compacted"}
    session.line("system", logicalParentUuid=last, compactMetadata=meta, **boundary)
    told = {"role": "user", "content": f"{FRAME}\nFACT 1"}
    session.line("user", message=told, isCompactSummary=True, isVisibleInTranscriptOnly=True)
    session.line("user", isMeta=True, message={"role": "user", "content": REMINDER})
    command = "<command-name>/compact</command-name>"
    session.line("user", message={"role": "user", "content": command})
    return bench, lambda: session.edit("/w/late.py")


def compacted_codex(root: Path) -> tuple[AgentBench, Callable[[], Any]]:
    """The same of Codex."""
    bench, thread = codex(root)
    thread.turn("HUMAN one", edits="/w/early.py")
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        for text in (
            "<environment_context>ENVIRONMENT</environment_context>",
            "HUMAN one",
            "FACT 1",
        )
    ]
    thread.write("compacted", {"message": "FACT 1", "replacement_history": history})
    codex_context(thread)
    return bench, lambda: thread.turn("HUMAN two", edits="/w/late.py")


def compacted_opencode(root: Path) -> tuple[AgentBench, Callable[[], Any]]:
    """The same of opencode, which tells itself to go on."""
    bench, session = opencode(root)
    session.say("user", "HUMAN one")
    session.write("/w/early.py")
    session.compact("FACT 1")
    session.note("NEXT: Continue if you have next steps")

    def more() -> None:
        session.say("user", "HUMAN two")
        session.write("/w/late.py")

    return bench, more


COMPACTED = [compacted_claude, compacted_codex, compacted_opencode]
Compacted = Callable[[Path], tuple[AgentBench, Callable[[], Any]]]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("make", COMPACTED)
def test_a_session_that_ends_with_a_compaction_has_that_one(
    make: Compacted, strategy: str | None, tmp_path: Path
) -> None:
    """formats.md 1.7, 3.10, S1.23: no model, by any rules; its own figures, and all files."""
    bench, _ = make(tmp_path)
    model = bench.scripted("x")
    found = bench.compact(**({"strategy": strategy} if strategy else {}))
    assert (found["alreadyCompacted"], model.calls) == (True, [])
    assert found["summary"].strip() == "FACT 1"
    assert found["strategy"] == {"claude": "pi"}.get(bench.agent, bench.agent)
    assert found["firstKeptEntryId"] is None
    assert found["details"]["modifiedFiles"] == ["/w/early.py"]
    tokens = found["tokensBefore"]
    counted = {"claude": 5555, "opencode": 1000}
    assert tokens == counted.get(bench.agent, tokens)
    assert 0 < tokens < 10_000
    assert ("replacementHistory" in found) is (bench.agent == "codex")


def test_a_compaction_is_handed_over_as_it_is(tmp_path: Path) -> None:
    """Issue 5: where nothing stands beside the summary, no model is asked for another one."""
    bench, _ = compacted_claude(tmp_path)
    model = bench.scripted("x")
    found = bench.compact(handoff=True)
    assert (found["alreadyCompacted"], found["tokensBefore"], model.calls) == (True, 5555, [])
    assert "FACT 1" in found["handoff"]
    assert "early.py" in found["handoff"]
    assert FRAME not in found["handoff"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("make", COMPACTED)
def test_files_from_before_a_compaction_are_not_forgotten(
    make: Compacted, strategy: str | None, tmp_path: Path
) -> None:
    """S1.23, S3.17: no list of them is stored, so they come from the calls on the path."""
    bench, more = make(tmp_path)
    more()
    model = bench.scripted("A summary.")
    asked: dict[str, Any] = {"strategy": strategy} if strategy else {}
    found = bench.compact(keepRecentTokens=1, **asked)
    assert "/w/early.py" in found["details"]["modifiedFiles"]
    told = found["summary"] + "".join(one.user for one in model.calls)
    assert "FACT 1" in told
    assert FRAME not in told
    if strategy in ("codex", "opencode"):
        assert found["details"]["modifiedFiles"] == ["/w/early.py", "/w/late.py"]


def test_codex_keeps_humans_under_their_own_ids(tmp_path: Path) -> None:
    """formats.md 3.10: what an earlier compaction brings is where it was said first."""
    bench, more = compacted_codex(tmp_path)
    more()
    bench.scripted("A summary.")
    found = bench.compact()
    *users, summary = found["replacementHistory"]
    assert [one["text"] for one in users] == ["HUMAN one", "HUMAN two"]
    ids = [one["entryId"] for one in users]
    assert len(set(ids)) == 2
    assert all(one.startswith("u") for one in ids)
    assert summary["entryId"] is None


@pytest.mark.parametrize("between", ["\n", None])
def test_a_prompt_behind_instructions_stays_in_codex(between: str | None, tmp_path: Path) -> None:
    """formats.md 3.10: its first message may hold both; the human's words are kept, and quoted."""
    bench, thread = codex(tmp_path)
    rules = "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nRULES\n</INSTRUCTIONS>"
    texts = [rules, "HUMAN one"] if between is None else [f"{rules}{between}HUMAN one"]
    content = [{"type": "input_text", "text": one} for one in texts]
    thread.write("response_item", {"type": "message", "role": "user", "content": content})
    message(thread, "assistant", "Done.")
    model = bench.scripted("A summary.")
    found = bench.compact(handoff=True)
    assert [one["text"] for one in found["replacementHistory"]] == ["HUMAN one", "A summary."]
    assert "[User]: HUMAN one" in model.calls[0].user
    assert "RULES" not in model.calls[0].user + found["handoff"]
    assert "From user" in found["handoff"]


def test_a_sub_agents_task_is_summed_up(tmp_path: Path) -> None:
    """S3.28: what the parent asked has the user's place in the session of a sub-agent."""
    session = ClaudeSession(tmp_path / "home", cwd=str(tmp_path))
    session.path = session.path.parent / session.id / "subagents/agent-a1.jsonl"
    asked = {"role": "user", "content": "Find the bug in the parser."}
    session.line("user", isSidechain=True, agentId="a1", message=asked)
    session.line(
        "assistant",
        isSidechain=True,
        agentId="a1",
        message={"role": "assistant", "content": [{"type": "text", "text": "Found."}]},
    )
    session.id = "agent-a1"
    bench = AgentBench(tmp_path, "claude", session, str(session.path))
    model = bench.scripted("A summary.")
    bench.compact()
    assert model.calls[0].stretch is not None
    assert model.calls[0].stretch.messages[0] == ("user", "Find the bug in the parser.")


def test_the_stand_in_of_opencode_is_read_as_opencode(tmp_path: Path) -> None:
    """formats.md 4.4: a written file, a human's words and a compaction come out as such."""
    bench, session = opencode(tmp_path)
    assert isinstance(session, Opencode)
    session.say("user", "HUMAN one")
    session.write("/w/a.py")
    bench.scripted("A summary.")
    found = bench.compact()
    assert found["details"] == {"readFiles": [], "modifiedFiles": ["/w/a.py"]}
    assert found["tokensBefore"] == 1000

"""opencode's sessions: tools, files, tokens, texts, and the rows of version 2."""

from __future__ import annotations

import pytest

from indexerd.agents.opencode import read
from indexerd.events import Kind, Tokens, ToolCall, Turn
from indexerd.times import iso_of_ms
from tests.agents.opencode_records import (
    START,
    Line,
    answer,
    entry,
    kinds,
    message,
    prompt,
    session,
    state_from,
    text,
    tool,
)

# -- what was done -------------------------------------------------------------------------------


PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-x
*** Add File: new.py
+y
*** Delete File: old.py
*** End Patch"""
TOOLS: list[tuple[Line, tuple[str, ...], tuple[str, ...], str]] = [
    (tool("read", filePath="/w/a"), ("/w/a",), (), "/w/a"),
    (tool("read", path="/w/a"), ("/w/a",), (), "/w/a"),
    (tool("write", filePath="/w/a", content="c"), (), ("/w/a",), "/w/a"),
    (tool("edit", path="/w/a"), (), ("/w/a",), "/w/a"),
    (tool("multiedit", filePath="/w/a"), (), ("/w/a",), "/w/a"),
    (tool("apply_patch", patchText=PATCH), (), ("src/a.py", "src/b.py", "new.py", "old.py"),
     "src/a.py, src/b.py, new.py, old.py"),
    (tool("bash", command="ls", description="list"), (), (), "ls"),
    (tool("grep", pattern="x", path="/w"), (), (), "x"),
    (tool("read", "error", filePath="/w/a"), (), (), "/w/a"),
    (tool("write", "running", filePath="/w/a"), (), (), "/w/a"),
    (tool("invalid", tool="edit", filePath="/w/a"), (), (), "/w/a"),
    (tool("edit", filePath=["/w/a"]), (), (), ""),
    (tool("write") | {"state": {"status": "pending", "input": '{"fi'}}, (), (), ""),
]  # fmt: skip


@pytest.mark.parametrize(("part", "reads", "writes", "detail"), TOOLS)
def test_tools_and_the_files_they_touched(
    part: Line, reads: tuple[str, ...], writes: tuple[str, ...], detail: str
) -> None:
    """formats.md 4.7: every call counts; one that failed did nothing to any file."""
    patch = {"type": "patch", "files": ["/w/changed-by-a-shell-command"]}
    held = entry(message("assistant", [text("t"), part, patch]))
    call = part.get("callID", "")
    assert held.tools == (ToolCall(part["tool"], detail, call, reads, writes),)


def test_tokens_and_model() -> None:
    """formats.md 4.7: of the message, not of its steps; a cost only where there is one."""
    counted = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 7, "write": 3}}
    step = {"type": "step-finish", "tokens": counted}
    paid = answer(modelID="m-1", providerID="p", tokens=counted, cost=0.25)
    held = entry(paid | {"parts": [text("hi"), step]})
    assert held.tokens == Tokens(10, 5, 7, 3, 0.25, total=25)
    assert (held.model, held.details) == ("m-1", {"provider": "p", "stopReason": "stop"})
    apart = entry(answer(tokens=counted | {"total": 27}, cost={"usd": 1}))
    assert apart.tokens == Tokens(10, 7, 7, 3, None, total=27)
    none = {"input": 0, "output": 0, "cache": {"read": 0, "write": 0}}
    assert entry(answer(tokens=none, cost=0)).tokens is None
    assert entry(prompt(modelID="m-1")).model is None


def test_texts_are_what_was_said() -> None:
    """S0.12: a human's words without what was put beside them, an answer without its thoughts."""
    parts = [
        {"type": "reasoning", "text": "hm"},
        text("one"),
        tool("read", filePath="/a"),
        text("put beside", synthetic=True),
        text(" "),
        text("two \ud83d"),
    ]
    for role in ("user", "assistant"):
        held = entry(message(role, parts))
        assert held.texts == ("one", "two \ufffd")
        assert (held.type, held.role) == ("message", role)
    quoted = entry(prompt('"a b"'))
    assert quoted.texts == ('"a b"',)
    assert quoted.timestamp.startswith("2026-11-")
    assert entry(prompt(time={}, at=START)).timestamp == iso_of_ms(START)
    failed = entry(answer(error={"name": "E", "message": "went wrong"}))
    assert failed.details["errorMessage"] == "went wrong"
    for bad in (b"", b"[]", b"{"):
        with pytest.raises(ValueError):
            read(bad, "msg_1")


# -- version 2 -----------------------------------------------------------------------------------


def test_the_rows_of_version_2() -> None:
    """formats.md 4.8: only `user` is human; `idle` says that the agent stopped."""
    open_answer = answer(finish="tool-calls")
    lines = [
        message("user", [text("prompt")]),
        open_answer,
        message("synthetic", [text("injected", synthetic=True)]),
        message("system", [text("rules")]),
        message("shell", command="ls", output="a"),
        message("model-switched", modelID="m-2", providerID="p"),
        message("compaction", [text("S")], status="completed", recent="R"),
        message("compaction", [text("S")], status="running"),
        message("new-in-2.1"),
    ]
    state = state_from(session(schema=2), *lines)
    assert kinds(state) == [
        Kind.USER,
        Kind.ASSISTANT,
        Kind.CUSTOM,
        Kind.SYSTEM,
        Kind.BASH,
        Kind.SETTING,
        Kind.COMPACTION,
        Kind.OTHER,
        Kind.OTHER,
    ]
    assert state.turn is Turn.OPEN
    for outcome, turn in (("succeeded", Turn.ENDED), ("interrupted", Turn.FAILED)):
        idle = message("idle", outcome=outcome)
        assert state_from(session(schema=2), *lines[:2], idle).turn is turn
        busy = answer(finish=None, time={"created": START})
        stopped = state_from(session(schema=2), lines[0], busy, idle)
        assert (stopped.turn, stopped.unsettled) == (turn, 0)
        again = [*lines[:2], message("user", [text("more")]), idle]
        assert state_from(session(schema=2), *again).turn is Turn.OPEN
    assert entry(lines[4]).texts == ("$ ls\na",)
    assert (entry(lines[5]).model, entry(lines[5]).details["modelId"]) == ("m-2", "m-2")
    assert entry(lines[6]).texts == ("S",)
    assert entry(lines[6]).details["retained"] == [{"role": "user", "text": "R"}]
    assert entry(lines[2]).type == "synthetic"

"""What a summary needs of an entry: arguments, thoughts, pictures, results, and sizes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from indexerd.agents import claude, codex, opencode
from indexerd.events import Entry, Kind, ToolResult
from indexerd.sessions.state import SessionState
from indexerd.sources import opencode_db
from indexerd.sources.lines import Block
from tests.agents import claude_files
from tests.agents.codex_files import Home, answer, call, event, item, line, meta, output, state_of
from tests.agents.codex_files import entries as codex_entries
from tests.agents.codex_files import user as asked

REAL = Path(__file__).parents[3] / "shared" / "fixtures" / "real"
NOT_HERE = "the shared fixtures are not beside this checkout"
PICTURE = {"type": "image", "source": {"type": "base64", "data": "aGk="}}
SEEN = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
LONE = "\ud83d"


def one_claude(kind: str, content: Any, **more: Any) -> Entry:
    """A line of Claude Code with this content, read."""
    message = {"role": kind, "content": content} | more
    return claude.read(claude_files.line(kind, "a", None, message=message), "a")


def one_codex(data: bytes) -> Entry:
    """A line of Codex, read."""
    return codex.read(data, "L1")


def one_opencode(role: str, *parts: dict[str, Any], **more: Any) -> Entry:
    """A message of opencode, read."""
    held = {"type": "message", "id": "m", "role": role, "finish": "stop", "parts": list(parts)}
    return opencode.read(json.dumps(held | more).encode(), "m")


def ran(status: str, **state: Any) -> dict[str, Any]:
    """A tool's part of opencode."""
    state = {"status": status, "input": {"command": "ls"}} | state
    return {"type": "tool", "tool": "bash", "callID": "c1", "state": state}


# -- Claude Code ---------------------------------------------------------------------------------


def test_claude_arguments_and_thoughts() -> None:
    """S1.24: a call's input as it is stored; thoughts that can be read, and no others."""
    given = {"file_path": "/w/a", "content": "x", "n": [1, {"b": None}]}
    found = one_claude(
        "assistant",
        [
            {"type": "thinking", "thinking": f"hm{LONE}", "signature": "s"},
            {"type": "thinking", "thinking": "", "signature": "s"},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "text", "text": "done"},
            {"type": "tool_use", "id": "t1", "name": "Write", "input": given},
        ],
    )
    assert found.thinking == ("hm\ufffd",)
    assert found.texts == ("done",)
    assert [one.arguments for one in found.tools] == [given]
    assert (found.images, found.results) == (0, ())


def test_claude_results_and_pictures() -> None:
    """S1.24: a result of each block, in order; pictures beside words, in results, and queued."""
    parts = [{"type": "text", "text": "a\n"}, PICTURE, {"type": "text", "text": f"b{LONE}"}]
    found = one_claude(
        "user",
        [
            {"type": "tool_result", "tool_use_id": "t1", "content": parts},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
            {"type": "tool_result", "tool_use_id": 3},
            PICTURE,
        ],
    )
    assert found.results == (
        ToolResult("t1", text="a\nb\ufffd"),
        ToolResult("t2", text="no"),
        ToolResult(""),
    )
    assert (found.images, found.failed) == (2, ("t2",))
    held = {"type": "queued_command", "prompt": [{"type": "text", "text": "look"}, PICTURE]}
    queued = claude.read(claude_files.line("attachment", "q", None, attachment=held), "q")
    assert (queued.images, queued.results) == (1, ())
    assert one_claude("user", [{"type": "text", "text": "hi"}]).images == 0


def test_claude_context() -> None:
    """S3.23: all that was sent, cached or not, and the answer."""
    usage = {
        "input_tokens": 3,
        "output_tokens": 5,
        "cache_read_input_tokens": 700,
        "cache_creation_input_tokens": 40,
    }
    tokens = one_claude("assistant", "x", usage=usage).tokens
    assert tokens is not None
    assert tokens.total == 3 + 5 + 700 + 40


@pytest.mark.shared
def test_real_claude_sessions_answer_every_call() -> None:
    """As the client wrote it: results name calls that were made, thoughts and sizes are there."""
    files = sorted(REAL.glob("claude/projects/*/*.jsonl"))
    if not files:
        pytest.skip(NOT_HERE)
    thoughts = answered = sized = 0
    for path in files:
        data = path.read_bytes()
        state = claude_files.state_of(data, file=str(path))
        made: set[str] = set()
        for one in claude_files.entries(data, state):
            made |= {each.id for each in one.tools}
            assert all(isinstance(each.arguments, dict) for each in one.tools if each.name)
            assert {each.call for each in one.results} <= made
            assert "".join(each.text for each in one.results) in "".join(one.texts)
            answered += len(one.results)
            thoughts += len(one.thinking)
            sized += one.tokens is not None and one.tokens.total > 0
    assert min(thoughts, answered, sized) > 0


# -- Codex ---------------------------------------------------------------------------------------


def test_codex_arguments() -> None:
    """S1.24: a function's text of JSON, a custom tool's raw text, an action."""
    made = call("c1", cmd="ls", n=1)
    assert one_codex(made).tools[0].arguments == '{"cmd": "ls", "n": 1}'
    raw = item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2")
    assert one_codex(raw).tools[0].arguments == "*** Begin Patch"
    action = {"type": "exec", "command": ["ls"]}
    local = item("local_shell_call", action=action, call_id="c3")
    assert one_codex(local).tools[0].arguments == action
    assert one_codex(item("web_search_call", id="w")).tools[0].arguments is None


@pytest.mark.parametrize(
    ("given", "text", "images"),
    [
        ("plain", "plain", 0),
        ([{"type": "input_text", "text": "a\n"}, SEEN, {"type": "text", "text": "b"}], "a\nb", 1),
        ({"content": "old", "success": True}, "old", 0),
        (None, "", 0),
    ],
)
def test_codex_results(given: Any, text: str, images: int) -> None:
    """formats.md 3.4: of every shape in which an output was ever stored."""
    found = one_codex(output(given, "c9"))
    assert found.results == (ToolResult("c9", "", text),)
    assert (found.images, "".join(found.texts)) == (images, text)
    custom = item("custom_tool_call_output", call_id="c2", name="apply_patch", output="Done")
    assert one_codex(custom).results == (ToolResult("c2", "apply_patch", "Done"),)


def test_codex_pictures() -> None:
    """formats.md 3.4, 3.5: in a message, or beside an event."""
    beside = item("message", role="user", content=[{"type": "input_text", "text": "hi"}, SEEN])
    assert one_codex(beside).images == 1
    told = event("user_message", message="hi", images=["data:"], local_images=["/a", "/b"])
    assert one_codex(told).images == 3
    content = [{"type": "text", "text": "hi"}, {"type": "localImage", "path": "/a"}]
    newest = event("item_completed", item={"type": "UserMessage", "content": content})
    assert one_codex(newest).images == 1


def test_codex_thoughts_are_rows_that_nobody_says() -> None:
    """S1.24: what is shown of them; what is encrypted is no row, and moves no turn."""
    shown = {"summary": [{"type": "summary_text", "text": f"plan{LONE}"}], "encrypted_content": "x"}
    lines = [
        *[meta(), asked("do it"), item("reasoning", id="rs_1", **shown)],
        item("reasoning", id="rs_2", summary=[], content=None, encrypted_content="opaque"),
        *[call(), output("ok"), answer("done")],
    ]
    state, data = state_of(*lines), b"".join(lines)
    found = codex_entries(state, data)
    assert [one.thinking for one in found if one.thinking] == [("plan\ufffd",)]
    thought = next(one for one in found if one.thinking)
    assert (thought.id, thought.kind, thought.texts) == ("rs_1", Kind.OTHER, ())
    assert "opaque" not in repr(found)
    assert (state.messages, state.user_messages()) == (2, 1)


def counted(used: Any = None, window: Any = None) -> bytes:
    """A token_count."""
    info = {"last_token_usage": {"total_tokens": used}, "model_context_window": window}
    return event("token_count", info=info)


def test_codex_notes_how_full_the_context_is() -> None:
    """S1.19, S3.16: the newest count; what is no count leaves what was known, in any pieces."""
    began = event("task_started", turn_id="t1", model_context_window=1000)
    wrong = [counted(0, 0), counted("9", window=True), counted(-1, 1 << 60)]
    lines = [meta(), began, asked("a"), answer("b"), counted(500, 900), counted(700)]
    lines += [event("token_count", info=None), line("event_msg", {"type": "token_count"}), *wrong]
    state = state_of(*lines)
    assert state.notes["context"] == {"window": 900, "used": 700, "at": len(state) - 1}
    again = state_of(*lines, cuts=range(0, 900, 37), stored=True)
    assert again.encode() == state.encode()
    assert "context" not in state_of(meta(), asked("a"), counted()).notes


@pytest.mark.shared
@pytest.mark.parametrize("agent", ["codex", "codex-0.120.0"])
def test_real_codex_sessions_answer_every_call(agent: str) -> None:
    """As the client wrote it: results name calls that were made, and contexts have sizes."""
    if not (REAL / agent).is_dir():
        pytest.skip(NOT_HERE)
    home = Home(REAL / agent)
    answered = sized = thoughts = 0
    for path in home.files:
        state = home.load(path)
        found = codex_entries(state)
        made = {each.id for one in found for each in one.tools}
        assert {each.call for one in found for each in one.results} <= made
        answered += sum(len(one.results) for one in found)
        thoughts += sum(len(one.thinking) for one in found)
        note = state.notes.get("context", {})
        sized += 0 < note.get("used", 0) < note["window"] == 190_000 if note else 0
    assert min(answered, sized) > 0
    assert thoughts > 0 or agent != "codex"


# -- opencode ------------------------------------------------------------------------------------


def test_opencode_results() -> None:
    """formats.md 4.6: of each call that ended, with the error of one that failed."""
    found = one_opencode(
        "assistant",
        ran("completed", output=f"a{LONE}", time={"start": 1, "end": 2}),
        ran("completed", output="old", time={"start": 1, "end": 2, "compacted": 3}),
        ran("error", error="went wrong", output="no"),
        ran("running"),
        ran("pending", input="{"),
    )
    assert found.results == (
        ToolResult("c1", "bash", "a\ufffd"),
        ToolResult("c1", "bash", "old", cleared=True),
        ToolResult("c1", "bash", "went wrong"),
    )
    assert found.failed == ("c1",)
    assert [one.arguments for one in found.tools] == [{"command": "ls"}] * 4 + ["{"]
    assert one_opencode("user", {"type": "text", "text": "a"}, ran("completed")).results == ()


def test_opencode_thoughts_pictures_and_size() -> None:
    """formats.md 4.3: what the agent shows; a cleared result brings no pictures."""
    image, text = {"mime": "image/png"}, {"mime": "text/plain"}
    thought = {"type": "reasoning", "text": "hm"}
    cleared = ran("completed", attachments=[image], time={"compacted": 1})
    parts = [thought, thought | {"text": " "}, ran("completed", attachments=[image, text]), cleared]
    counts = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 7, "write": 3}}
    found = one_opencode("assistant", *parts, tokens=counts)
    assert (found.thinking, found.images) == (("hm",), 1)
    assert found.tokens is not None
    assert found.tokens.total == 10 + 5 + 7 + 3  # as opencode adds them where no total is stored
    whole = one_opencode("assistant", tokens=counts | {"total": 99}).tokens
    assert whole is not None
    assert whole.total == 99
    files = [image | {"type": "file"}, text | {"type": "file"}]
    assert one_opencode("user", {"type": "text", "text": "a"}, *files).images == 1


@pytest.mark.parametrize(
    ("error", "stopped"),
    [
        ({"name": "MessageAbortedError"}, "aborted"),
        ({"name": "APIError"}, "error"),
        (True, "error"),
    ],
)
def test_opencode_says_how_an_answer_broke_off(error: Any, stopped: str) -> None:
    """formats.md 4.6: an aborted answer is told from one that failed; both win over a finish."""
    assert one_opencode("assistant", error=error).details["stopReason"] == stopped


@pytest.mark.shared
def test_real_opencode_sessions(tmp_path: Path) -> None:
    """As the client wrote it: every finished call has its result and its input."""
    if not (REAL / "opencode").is_dir():
        pytest.skip(NOT_HERE)
    for file in (REAL / "opencode").glob("opencode.db*"):
        shutil.copy(file, tmp_path)
    calls = results = sized = 0
    for found in opencode_db.Database(str(tmp_path / "opencode.db")).sessions():
        state = SessionState(found.path)
        for block in opencode_db.tail().read(found.path).lines:
            assert isinstance(block, Block)
            opencode.skim(state, block.data, block.offset)
        with opencode_db.lines(found.path) as lines:
            for row in state.path():
                one = opencode.read(lines.at(state.offsets[row], state.lengths[row]), "m")
                assert {each.call for each in one.results} <= {each.id for each in one.tools}
                assert all(isinstance(each.arguments, dict) for each in one.tools)
                calls += len(one.tools)
                results += len(one.results)
                sized += one.tokens is not None and one.tokens.total > 0
    assert calls >= results > 0
    assert sized > 0


# -- what stays opaque ---------------------------------------------------------------------------


def test_approvals_snapshots_and_reverts_are_in_no_entry() -> None:
    """S3.28: whatever an agent stores of them reaches nothing that is read, and so no prompt."""
    mark = "OPAQUE"
    parts: list[dict[str, Any]] = [
        {"type": "snapshot", "snapshot": mark},
        {"type": "step-start", "snapshot": mark},
        {"type": "patch", "hash": mark, "files": ["/w/a"]},
        ran("completed", output="ok", metadata={"permission": mark, "diff": mark}),
        {"type": "permission", "text": mark},
    ]
    found = [
        one_opencode("assistant", *parts, permission=mark, snapshot=mark),
        one_codex(item("ghost_snapshot", ghost_commit={"id": mark})),
        one_codex(event("exec_approval_request", command=[mark], reason=mark)),
        one_codex(event("thread_rolled_back", num_turns=1, note=mark)),
        claude.read(
            claude_files.bare(type="file-history-snapshot", messageId="m", snapshot={"a": mark}), ""
        ),
        claude.read(claude_files.bare(type="permission-mode", permissionMode=mark), ""),
    ]
    assert mark not in repr(found)
    assert mark not in repr([each.arguments for one in found for each in one.tools])
    assert len(state_of(meta(), item("ghost_snapshot", ghost_commit={"id": mark}))) == 0

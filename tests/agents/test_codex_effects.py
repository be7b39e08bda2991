"""What codex's tools did: calls, files, failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexerd.agents import codex
from indexerd.events import Entry, Kind, ToolCall
from indexerd.sessions.facts import ActivityStats
from tests.agents.codex_files import (
    call,
    done,
    entries,
    event,
    item,
    line,
    meta,
    output,
    state_of,
    turn,
    undone,
)

PATCH = (
    "*** Begin Patch\n*** Update File: src/x.py\n@@\n-a\n+*** Add File: no\n"
    "*** Move to: src/y.py\n*** Add File: new file.txt\n+hi\n*** Delete File: old\n*** End Patch"
)
PATHS = ("src/x.py", "src/y.py", "new file.txt", "old")


def one(data: bytes) -> Entry:
    """A line's entry."""
    return codex.read(data, "")


def tool(data: bytes) -> ToolCall:
    """A line's one call."""
    (found,) = one(data).tools
    return found


def modified(*lines: bytes) -> tuple[str, ...]:
    """The files that a session changed, as the service adds them up."""
    data = meta() + turn("t", *lines)
    state, deeds = state_of(data), ActivityStats()
    for row, entry in zip(state.path(), entries(state, data), strict=True):
        if state.kind(row) is not Kind.TOOL or undone(state, row):
            deeds.add(entry, "/w")
    return deeds.facts().files_modified


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ({"cmd": "ls -l"}, "ls -l"),
        ({"command": "ls"}, "ls"),
        ({"command": ["bash", "-lc", "ls | wc"]}, "ls | wc"),
        ({"command": ["git", "status"]}, "git status"),
        ({"query": "words"}, "words"),
        ({"plan": []}, ""),
        ({"cmd": 5, "path": []}, ""),
    ],
)
def test_a_calls_detail_is_its_command(arguments: dict[str, Any], detail: str) -> None:
    """S2.12: of a shell the command as it was given, of others what they are about."""
    for held in (json.dumps(arguments), arguments):
        made = item("function_call", name="f", arguments=held, call_id="c1")
        assert tool(made) == ToolCall("f", detail, id="c1")
        assert one(made).kind is Kind.CALL


def test_every_kind_of_call_has_a_name() -> None:
    """formats.md 3.12: calls without a name are named by their type."""
    shell = {"type": "exec", "command": ["ls", "-a"], "working_directory": "/x"}
    found = {"type": "search", "query": "q", "url": None}
    assert tool(item("local_shell_call", id="s1", action=shell)) == ToolCall(
        "local_shell", "ls -a", id="s1"
    )
    assert tool(item("web_search_call", id="w1", action=found)) == ToolCall(
        "web_search", "q", id="w1"
    )
    script = item("custom_tool_call", call_id="c", name="exec", input="await shell('ls')")
    assert tool(script) == ToolCall("exec", "await shell('ls')", id="c")
    assert tool(call(name="view_image", path="/a.png")).reads == ("/a.png",)
    assert tool(line(type="function_call", name="f", arguments="{bad", call_id="c")).name == "f"


@pytest.mark.parametrize(
    "made",
    [
        item("custom_tool_call", call_id="c1", name="apply_patch", input=PATCH),
        call(name="apply_patch", input=PATCH),
        call(name="apply_patch", patch=PATCH),
        call(name="shell", command=["apply_patch", PATCH]),
        call(name="shell", command=["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"]),
        call(name="exec_command", cmd=f"applypatch << EOF\n{PATCH}\nEOF"),
    ],
)
def test_a_patchs_headers_are_what_it_writes(made: bytes) -> None:
    """S2.11: in every form that a patch is given in; the files' own lines are no headers."""
    assert tool(made).writes == PATHS
    assert modified(made) == tuple(sorted(f"/w/{path}" for path in PATHS))
    failed = "Exit code: 1\nWall time: 0 seconds\nOutput:\nno"
    assert modified(made, output(failed)) == ()
    assert modified(made, output("patch rejected by user")) == ()
    assert len(modified(made, output("Exit code: 0\nOutput:\nSuccess."))) == 4


def test_a_patch_is_applied_where_the_call_says() -> None:
    """S2.11: relative paths are the working directory's."""
    assert tool(call(name="shell", cmd=f"apply_patch '{PATCH}'", workdir="/x/")).writes[0] == (
        "/x/src/x.py"
    )
    moved = call(name="shell", cmd=f"cd sub && apply_patch <<E\n{PATCH}\nE", workdir="/x")
    assert tool(moved).writes[0] == "/x/sub/src/x.py"
    assert tool(call(name="shell", cmd=f"cat notes # {PATCH}")).writes == ()


def test_records_of_changes_are_absolute_and_only_of_success() -> None:
    """S2.11: what codex records as applied; of a renamed file both names."""
    changes = {
        "/w/a": {"type": "update", "unified_diff": "", "move_path": "/w/b"},
        "/w/c": {"type": "add", "content": ""},
        "/w/d": None,
    }
    names = ("/w/a", "/w/b", "/w/c", "/w/d")
    good = event("patch_apply_end", call_id="c1", success=True, changes=changes)
    assert one(good).tools == (ToolCall("", writes=names),)
    applied = done("FileChange", id="c1", status="completed", changes=changes)
    assert one(applied).tools == (ToolCall("", writes=names),)
    assert modified(applied) == modified(good) == names
    bad = event("patch_apply_end", call_id="c1", success=False, changes=changes)
    assert modified(call(name="apply_patch", input=PATCH), bad) == ()
    assert modified(done("FileChange", id="c1", status="failed", changes=changes)) == ()


def test_newest_files_record_every_change() -> None:
    """formats-observed.md: there a call's patch adds nothing to what is recorded of it."""
    payload = {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH, "call_id": "c"}
    assert tool(line("response_item", payload, ordinal=7)).writes == ()
    assert tool(line("response_item", payload, ordinal=7)).name == "apply_patch"


def test_commands_that_only_show_a_file_read_it() -> None:
    """S1.23: codex's own note of such a command counts, if it came to something; no guesses."""
    noted = [
        {"type": "read", "path": "a b.py"},
        {"type": "search", "path": "x"},
        {"type": "read", "path": "/abs"},
        5,
    ]
    held = {"id": "c1", "cwd": "file:///w/my%20dir", "parsed_cmd": noted}
    shown = done("CommandExecution", exit_code=0, **held)
    assert one(shown).tools == (ToolCall("", reads=("/w/my dir/a b.py", "/abs")),)
    old = event("exec_command_end", call_id="c", cwd="/w", exit_code=0, parsed_cmd=noted)
    assert one(old).tools[0].reads == ("/w/a b.py", "/abs")
    for other in (done("CommandExecution", exit_code=1, **held), call(cmd="cat a.py")):
        assert not any(made.reads for made in one(other).tools)
    assert len(state_of(meta(), shown, done("CommandExecution", exit_code=1, **held))) == 1


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 1\n", False),
        ("Exit code: 2\nWall time: 0 seconds\nOutput:\n", True),
        ("Chunk ID: ab\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n", True),
        ("Chunk ID: ab\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n", False),
        ("Chunk ID: ab\nWall time: 9 seconds\nProcess running with session ID 3\n", False),
        ("Wall time: 1.4 seconds\naborted by user", True),
        ("apply_patch verification failed: no such line", True),
        ("exec command rejected by user", True),
        ("see: Exit code: 1", False),
        (json.dumps({"output": "x" * 9000, "metadata": {"exit_code": 1}}), True),
        (json.dumps({"metadata": {"exit_code": 0}, "output": "Exit code: 1"}), False),
        (json.dumps({"exit_code": 1, "success": False}), False),
        ({"content": "x", "success": False}, True),
        ({"content": "x", "success": True}, False),
        ([{"type": "input_text", "text": "Exit code: 1\n"}, {"type": "input_image"}], True),
        ([{"type": "input_text", "text": "fine"}], False),
        ([], False),
        (None, False),
        (5, False),
    ],
)
def test_an_output_tells_whether_its_call_failed(text: Any, failed: bool) -> None:
    """formats.md 3.12: by its opening or its exit code, never by what a program printed."""
    for made in (
        output(text),
        output(text).replace(b'"type":"function', b'"odd":"\\ud83d","type":"function'),
    ):
        state = state_of(meta(), made)
        assert undone(state, 0) is failed
        assert one(made).failed == (("c1",) if failed else ())
        assert one(made).kind is Kind.TOOL


def test_a_turns_model_and_other_facts_are_read() -> None:
    """S1.20: the model is in the turn's context; texts of outputs and of context are kept apart."""
    held = one(line("turn_context", {"turn_id": "t", "model": "gpt-9"}))
    assert (held.kind, held.model, held.type) == (Kind.SETTING, "gpt-9", "turn_context")
    assert one(output({"output": "o"})).texts == ("o",)
    notice = "<turn_aborted>\nx\n</turn_aborted>"
    told = one(item("message", role="user", content=[{"type": "input_text", "text": notice}]))
    assert (told.kind, told.role, told.text) == (Kind.OTHER, "user", notice)
    assert one(item("message", role="developer", content=[])).kind is Kind.SYSTEM
    with pytest.raises(ValueError, match="not an object"):
        codex.read(b"[]", "")

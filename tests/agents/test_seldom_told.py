"""What is told of lines that sessions seldom have: details, results of several pieces, titles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexerd.agents import claude, codex, opencode
from indexerd.agents.claude import hooks
from indexerd.agents.codex.origin import meta_of
from indexerd.events import Kind
from indexerd.sessions.state import SessionState
from tests.agents import claude_files, codex_files


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        *(
            ({key: "x", "other": "y"}, "x")
            for key in (
                *("command", "pattern", "file_path", "notebook_path", "path", "url", "query"),
                *("description", "prompt", "skill", "subject"),
            )
        ),
        ({"other": "y"}, ""),
        ({"prompt": "long", "description": "short"}, "short"),
        ({"subject": "what", "prompt": "long"}, "long"),
    ],
)
def test_what_a_call_of_claude_was_for_is_one_of_its_arguments(
    given: dict[str, str], detail: str
) -> None:
    """The first there is of those that say it in short."""
    (use,) = claude.read(claude_files.call("a1", None, "t1", name="Any", **given), "a1").tools
    assert use.detail == detail


@pytest.mark.parametrize("kind", [[], {}, None, 7, "another"])
def test_a_hook_of_no_known_kind_told_nothing(kind: Any) -> None:
    """Its kind may be anything."""
    assert hooks.told({"type": kind, "content": "x"}) == ()


def given_by_opencode(**state: Any) -> str:
    """The text of a tool's result that is stored so."""
    part = {"type": "tool", "tool": "bash", "callID": "c1", "state": state}
    held = {"type": "message", "id": "m", "role": "assistant", "finish": "stop", "parts": [part]}
    (result,) = opencode.read(json.dumps(held).encode(), "m").results
    return result.text


def test_a_result_of_opencode_in_pieces_is_their_texts() -> None:
    """Line by line; what is no text is passed over."""
    pieces = [{"text": "a"}, {"text": 7}, {"x": 1}, {"text": "b"}]
    assert given_by_opencode(status="completed", content=pieces) == "a\nb"


def test_a_call_of_opencode_that_was_interrupted_gave_what_it_had() -> None:
    """One that failed otherwise gave its error, even where it had something."""
    for known, text in (
        ({"interrupted": True, "output": "half"}, "half"),
        ({"interrupted": True}, "stopped"),
        ({"interrupted": "yes", "output": "half"}, "stopped"),
        ({"output": "half"}, "stopped"),
        (None, "stopped"),
    ):
        assert given_by_opencode(status="error", error="stopped", metadata=known) == text


def test_a_title_that_waits_for_its_message_is_kept_short() -> None:
    """Whatever stands in a file, the state that is stored stays small."""
    for size in (10, 100_000):
        data = claude_files.bare(type="summary", summary="x" * size, leafUuid="u1")
        state = claude_files.state_of(data)
        assert len(state.encode()) < 4096


def test_after_a_command_of_the_user_opencodes_answers_are_answers_again() -> None:
    """Only the message that belongs to the note is the command's."""
    note = {
        "type": "text",
        "text": "The following tool was executed by the user",
        "synthetic": True,
    }
    lines = [
        {"type": "session", "schema": 1, "id": "s", "directory": "/w"},
        {"type": "message", "id": "m1", "role": "user", "parts": [note]},
        {"type": "message", "id": "m2", "role": "assistant", "parentID": "m1", "finish": "stop"},
        {"type": "message", "id": "m3", "role": "assistant", "parentID": "m0", "finish": "stop"},
    ]
    state = SessionState("/s")
    opencode.skim(state, b"".join(json.dumps(one).encode() + b"\n" for one in lines), 0)
    kinds = [state.kind(row) for row in range(len(state))]
    assert kinds == [Kind.CUSTOM, Kind.BASH, Kind.ASSISTANT]


@pytest.mark.parametrize("odd", ["x", r"\ud800"])
@pytest.mark.parametrize(
    ("more", "header"),
    [("", True), (',"role":"user"', False), (',"type":"message"', False), (',"payload":{}', False)],
)
def test_a_bare_line_of_codex_is_a_header_if_nothing_says_what_else_it_is(
    odd: str, more: str, *, header: bool
) -> None:
    """However it has to be read: half a character takes the slower way."""
    line = f'{{"id":"a","timestamp":"t","cwd":"{odd}"{more}}}'.encode()
    assert (meta_of(line) is not None) == header


def test_a_title_of_claude_that_is_taken_back_leaves_the_one_below_it() -> None:
    """Or none."""
    given = claude_files.bare(type="custom-title", customTitle="Mine")
    back = claude_files.bare(type="custom-title", customTitle="")
    made = claude_files.bare(type="ai-title", aiTitle="The machine's")
    names = [
        claude_files.state_of(data).name
        for data in (given, back, given + back, made + given + back)
    ]
    assert names == ["Mine", None, None, "The machine's"]


def test_a_command_typed_while_claude_worked_is_told() -> None:
    """It stands on a line of its own, as a prompt that waited does."""
    for mode, kind in (("bash", Kind.BASH), ("prompt", Kind.USER)):
        data = claude_files.attachment(
            "q1", None, "queued_command", prompt="make test", commandMode=mode
        )
        found = claude.read(data, "q1")
        assert (found.kind, found.texts) == (kind, ("make test",))


@pytest.mark.parametrize("flag", ["-c", "-lc", "-Command", "/c"])
def test_what_a_shell_was_given_by_codex_is_the_command(flag: str) -> None:
    """Of a program that is no shell it is all of its words."""
    for given, detail in ((["sh", flag, "make it"], "make it"), (["ls", "-x", "a"], "ls -x a")):
        (use,) = codex.read(codex_files.call(name="shell", command=given), "L1").tools
        assert use.detail == detail


def test_a_result_that_opencode_has_cleared_is_one() -> None:
    """Either way of saying so."""
    for where, key, cleared in (
        *(("state", "compacted", True), ("part", "pruned", True)),
        *(("state", "pruned", False), ("part", "compacted", False)),
    ):
        state: dict[str, Any] = {"status": "completed", "output": "o"}
        part = {"type": "tool", "tool": "bash", "callID": "c1", "state": state}
        (state if where == "state" else part)["time"] = {key: 7}
        held = {"type": "message", "id": "m", "role": "assistant", "parts": [part]}
        (result,) = opencode.read(json.dumps(held).encode(), "m").results
        assert result.cleared == cleared

"""What Claude Code's lines are: who spoke, how the turn stands, what was done and spent."""

from __future__ import annotations

from typing import Any

import pytest

from indexerd.agents.claude import read
from indexerd.events import Kind, Tokens, Turn
from tests.agents.claude_files import (
    answer,
    answers,
    attachment,
    call,
    entries,
    line,
    prompts,
    queued,
    result,
    state_of,
    user,
)

BASE = user("u1", None, "hi") + answer("a1", "u1", "yes")
PICTURE = {"type": "image", "source": {"type": "base64", "data": "AA"}}

HUMAN: list[tuple[Any, dict[str, Any], str]] = [
    ("plain", {}, "plain"),
    ("typed", {"promptSource": "typed", "origin": {"kind": "human"}}, "typed"),
    ("by a program", {"promptSource": "sdk", "entrypoint": "sdk-cli"}, "by a program"),
    ([{"type": "text", "text": "a"}, "b"], {}, "a\nb"),
    ([{"type": "text", "text": "see"}, PICTURE], {}, "see"),
    ([PICTURE], {}, ""),
    ("<system-reminder>x</system-reminder>\nreal", {}, "real"),
    ("<ide_selection>x</ide_selection><ide_opened_file>y</ide_opened_file>real", {}, "real"),
    ([{"type": "text", "text": "<ide_opened_file>x</ide_opened_file>"}, "real"], {}, "real"),
    ("real\n<system-reminder>x</system-reminder>", {}, "real"),
    ("what is <system-reminder>?", {}, "what is <system-reminder>?"),
    ("no <command-name> at the start", {"isMeta": False}, "no <command-name> at the start"),
    ("<command-name>/goal</command-name><command-args>a <b> c</command-args>", {}, "a <b> c"),
    (
        "<command-message>f</command-message><command-name>/f</command-name><command-args> x",
        {"origin": {"kind": "human"}},
        "/f x",
    ),
    ("Operation stopped by hooks: why?", {}, "Operation stopped by hooks: why?"),
]

MACHINE: list[tuple[Any, dict[str, Any], Turn]] = [
    ("expanded", {"isMeta": True}, Turn.OPEN),
    ("<task-notification>x</task-notification>", {}, Turn.OPEN),
    ("<teammate-message id='1'>x</teammate-message>", {}, Turn.OPEN),
    ("Stop hook feedback: no", {}, Turn.OPEN),
    ("note", {"promptSource": "system"}, Turn.OPEN),
    ("note", {"origin": {"kind": "coordinator"}}, Turn.OPEN),
    ("Caveat: The messages below were generated", {}, Turn.ENDED),
    ("Caveat: hidden", {"isMeta": True}, Turn.ENDED),
    ("<local-command-caveat>x</local-command-caveat>", {"isMeta": True}, Turn.ENDED),
    ("<local-command-stdout>x</local-command-stdout>", {}, Turn.ENDED),
    ("<local-command-stderr>x</local-command-stderr>", {}, Turn.ENDED),
    ("<command-name>/model</command-name>", {}, Turn.ENDED),
    ("<command-message>init</command-message><command-name>/init</command-name>", {}, Turn.ENDED),
    ("<command-name>/model</command-name><command-args>opus</command-args>", {}, Turn.ENDED),
    ("<command-name>no-slash</command-name><command-args>-v</command-args>", {}, Turn.ENDED),
    ("<command-name>/goal</command-name><command-args>Off</command-args>", {}, Turn.ENDED),
    (
        "<command-name>/goal</command-name><command-args>x</command-args>",
        {"promptSource": "system"},
        Turn.ENDED,
    ),
    ("<bash-input>ls</bash-input>", {}, Turn.ENDED),
    ("<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>", {}, Turn.ENDED),
    ("<user-memory-input>x</user-memory-input>", {}, Turn.ENDED),
    ("<system-reminder>alone</system-reminder>", {}, Turn.ENDED),
    ("seen", {"isVisibleInTranscriptOnly": True}, Turn.ENDED),
    ("", {}, Turn.ENDED),
    ("[Request interrupted by user for tool use]", {}, Turn.FAILED),
    ("Operation stopped by hook: no", {}, Turn.FAILED),
    ("Implement the following plan:\n\n# P", {"planContent": "# P"}, Turn.OPEN),
]


@pytest.mark.parametrize(("content", "more", "text"), HUMAN)
def test_what_a_human_typed(content: Any, more: dict[str, Any], text: str) -> None:
    """formats.md 2.3: a prompt, without what was put around it."""
    data = BASE + user("u2", "a1", content, **more)
    state = state_of(data)
    assert prompts(data, state) == ["hi", text]
    assert (state.messages, state.turn) == (3, Turn.OPEN)


@pytest.mark.parametrize(("content", "more", "turn"), MACHINE)
def test_what_nobody_typed(content: Any, more: dict[str, Any], turn: Turn) -> None:
    """formats.md 2.3: it never counts; what the model is asked opens the turn, the rest not."""
    data = BASE + user("u2", "a1", content, **more)
    state = state_of(data)
    assert (state.user_messages(), state.messages) == (1, 2)
    assert state.turn is turn
    assert answers(data, state) == ["yes"]  # no word is put into the assistant's mouth
    assert state_of(data + user("u3", "u2", "next")).user_messages() == 2


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        ({"prompt": "go", "commandMode": "prompt"}, Kind.USER),
        ({"prompt": [{"type": "text", "text": "go"}, PICTURE]}, Kind.USER),
        ({"prompt": "go", "origin": {"kind": "human"}}, Kind.USER),
        ({"prompt": "<task-notification>x", "commandMode": "prompt"}, Kind.TOOL),
        ({"prompt": "go", "commandMode": "task-notification"}, Kind.TOOL),
        ({"prompt": "go", "origin": {"kind": "task-notification"}}, Kind.TOOL),
        ({"prompt": "go", "isMeta": True}, Kind.TOOL),
        ({"prompt": "ls", "commandMode": "bash"}, Kind.BASH),
        ({"prompt": ""}, Kind.OTHER),
    ],
)
def test_what_was_queued(held: dict[str, Any], kind: Kind) -> None:
    """formats.md 2.3: a queued command is a human's unless it says otherwise."""
    data = BASE + queued("q1", "a1", **held)
    state = state_of(data)
    assert state.kind(2) is kind
    assert state.user_messages() == (2 if kind is Kind.USER else 1)
    said = read(data.splitlines()[2], "q1")
    assert said.kind is kind
    assert (said.type, said.texts) == ("attachment", ("go",)) or kind is not Kind.USER


@pytest.mark.parametrize(
    ("stop", "more", "turn"),
    [
        ("end_turn", {}, Turn.ENDED),
        ("stop_sequence", {}, Turn.ENDED),
        ("max_tokens", {}, Turn.ENDED),
        ("refusal", {}, Turn.ENDED),
        ("tool_use", {}, Turn.OPEN),
        (None, {}, Turn.OPEN),
        ("stop_sequence", {"isApiErrorMessage": True}, Turn.FAILED),
    ],
)
def test_turns_follow_the_stop_reason(stop: str | None, more: dict[str, Any], turn: Turn) -> None:
    """S0.1: of an answer's lines the last decides; an error of the API fails the turn."""
    data = user("u1", None, "hi") + answer("a1", "u1", stop=None, message="m")
    assert state_of(data + answer("a2", "a1", stop=stop, message="m", **more)).turn is turn


def test_turns_of_a_session() -> None:
    """S0.1: open from the prompt to the answer, results and interruptions between."""
    parts = [
        (user("u1", None, "hi"), Turn.OPEN),
        (call("a1", "u1", "t1"), Turn.OPEN),
        (result("r1", "a1", "t1", error=True), Turn.OPEN),
        (user("i1", "r1", "[Request interrupted by user]"), Turn.FAILED),
        (user("u2", "i1", "again"), Turn.OPEN),
        (answer("a2", "u2", stop=None), Turn.OPEN),
        (line("system", "y1", "a2", subtype="turn_duration", durationMs=5), Turn.ENDED),
    ]
    data = b""
    for part, turn in parts:
        data += part
        assert state_of(data).turn is turn
    assert state_of(data).messages == 5


def test_the_newest_branch_and_activity_are_kept() -> None:
    """No branch outside a repository, HEAD when detached; and bookkeeping is no activity."""
    data = BASE + user("u2", "a1", "x", gitBranch="topic") + answer("a2", "u2", gitBranch="HEAD")
    data += answer("a3", "a2", gitBranch="", timestamp="2026-05-05T00:00:00.500Z")
    data += attachment("e1", "a3", "date").replace(b'"2026-', b'"2027-').replace(b"main", b"")
    state = state_of(data)
    assert (state.git_branch, state.activity_ms) == ("topic", 1777939200500)


# -- facts ---------------------------------------------------------------------------------------


def test_tools_tell_what_they_read_wrote_and_were_for() -> None:
    """formats.md 2.9: by the tool's name; searches and commands are details."""
    block = {"type": "tool_use", "name": "Write", "id": "t2", "input": {"file_path": "/w/b"}}
    data = user("u1", None, "hi") + call("a1", "u1", "t1", name="Read", file_path="/w/a")
    data += answer("a2", "a1", [{"type": "thinking", "thinking": "hm"}, block])
    data += call("a3", "a2", "t3", name="NotebookEdit", notebook_path="/w/c")
    data += call("a4", "a3", "t4", name="Bash", command="ls", description="List")
    data += call("a5", "a4", "t5", name="Task", description="Ask a helper")
    data += call("a6", "a5", "t6", name="Edit", file_path=7)
    uses = [use for entry in entries(data, state_of(data), Kind.ASSISTANT) for use in entry.tools]
    assert [(use.name, use.id, use.reads, use.writes, use.detail) for use in uses] == [
        ("Read", "t1", ("/w/a",), (), "/w/a"),
        ("Write", "t2", (), ("/w/b",), "/w/b"),
        ("NotebookEdit", "t3", (), ("/w/c",), "/w/c"),
        ("Bash", "t4", (), (), "ls"),
        ("Task", "t5", (), (), "Ask a helper"),
        ("Edit", "t6", (), (), ""),
    ]


def test_a_file_named_with_an_at_sign_was_read() -> None:
    """formats.md 2.9: it is a record of reading, no use of a tool."""
    data = BASE + attachment("f1", "a1", "file", filename="/w/x.md", content={"type": "text"})
    data += user("u2", "f1", "look")
    (entry,) = entries(data, state_of(data), Kind.CALL)
    assert [(use.name, use.reads) for use in entry.tools] == [("", ("/w/x.md",))]
    assert entry.texts == ()


def test_results_that_failed_or_were_refused_take_their_calls_back() -> None:
    """formats.md 2.9: only such rows are marked, and name their calls."""
    data = user("u1", None, "hi") + call("a1", "u1", "t1")
    data += result("r1", "a1", "t1", error=True) + result("r2", "r1", "t2")
    both = [{"type": "tool_result", "tool_use_id": one, "content": "no"} for one in ("t3", "t4")]
    data += user("r3", "r2", both, toolDenialKind="user")
    state = state_of(data)
    failed = [Turn(state.codes[row] >> 4 & 3) is Turn.FAILED for row in state.path()]
    assert failed == [False, False, True, False, True]
    found = [entry.failed for entry in entries(data, state, Kind.TOOL)]
    assert found == [("t1",), (), ("t3", "t4")]
    assert state.turn is Turn.OPEN


def test_tokens_are_an_answers_not_a_lines() -> None:
    """formats.md 2.7: each line repeats the answer's usage; only old versions know the cost."""
    data = (
        user("u1", None, "hi") + answer("a1", "u1", message="m") + answer("a2", "a1", message="m")
    )
    data += line("assistant", "a3", "a2", costUSD=0.25, message={"usage": {"input_tokens": -1}})
    data += line("assistant", "a4", "a3", message={"id": "n", "content": "x", "usage": "y"})
    spent = [entry.tokens for entry in entries(data, state_of(data), Kind.ASSISTANT)]
    one = Tokens(input=3, output=5, cache_read=7, answer="m", total=15)
    assert spent == [one, one, Tokens(cost_usd=0.25), None]


def test_an_entry_says_who_when_and_by_which_model() -> None:
    """Texts are what was said: no thinking, no calls, no half surrogates."""
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "one \ud83d"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
        {"type": "text", "text": "two"},
    ]
    entry = read(answer("a1", "u1", blocks, timestamp="2026-01-01T00:00:00Z"), "")
    assert (entry.id, entry.kind, entry.type, entry.role) == (
        *("a1", Kind.ASSISTANT),
        *("assistant", "assistant"),
    )
    assert (entry.timestamp, entry.model) == ("2026-01-01T00:00:00Z", "claude-x")
    assert entry.texts == ("one \ufffd", "two")
    shell = read(user("u1", None, "<bash-input>ls -l</bash-input>"), "x")
    assert (shell.id, shell.kind, shell.text, shell.role) == ("x", Kind.BASH, "ls -l", "user")
    gave = read(result("r1", None, "t1"), "")
    assert (gave.kind, gave.text) == (Kind.TOOL, "r")
    told = read(line("system", "y1", None, subtype="x", content="Told"), "")
    assert (told.kind, told.text, told.role) == (Kind.SYSTEM, "Told", None)


def test_a_file_that_begins_with_a_byte_order_mark_is_read_from_after_it() -> None:
    """F6: its first line is counted, and its words are found again."""
    data = b"\xef\xbb\xbf" + user("u1", None, "first words") + answer("a1", "u1", "A")
    state = state_of(data)
    assert prompts(data, state) == ["first words"]

"""What each line of Claude Code means: speaker, state of the turn, failed results."""

from typing import Any

import pytest

from indexerd.agents.claude.parse_entry import read
from indexerd.entries import Kind, Turn
from tests.agents.claude_files import (
    answer,
    answers,
    bare,
    call,
    entries,
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
    ("old", {"version": "0.2.98", "toolUseResult": None}, "old"),
    ('{"task_id": 1}', {}, '{"task_id": 1}'),
    ("typed", {"promptSource": "typed", "origin": {"kind": "human"}}, "typed"),
    ("by a program", {"promptSource": "sdk", "entrypoint": "sdk-cli"}, "by a program"),
    ([{"type": "text", "text": "a"}, "b"], {}, "a\nb"),
    ([{"type": "text", "text": "see"}, PICTURE], {}, "see"),
    ([PICTURE], {}, ""),
    ("<system-reminder>x</system-reminder>\nreal", {}, "real"),
    ("<ide_selection>x</ide_selection><ide_opened_file>y</ide_opened_file>real", {}, "real"),
    ([{"type": "text", "text": text} for text in ("<ide_x>y</ide_x>", "a", "b")], {}, "a\nb"),
    ("what is <system-reminder>?", {}, "what is <system-reminder>?"),
    ("What is this?\nUnknown skill: deploy", {}, "What is this?\nUnknown skill: deploy"),
    ("Implement the following plan:\n\n1. Do", {}, "Implement the following plan:\n\n1. Do"),
    ("no <command-name> at the start", {"isMeta": False}, "no <command-name> at the start"),
    ("<command-name>/goal</command-name><command-args>a <b> c</command-args>", {}, "a <b> c"),
    (
        "<command-message>f</command-message><command-name>/f</command-name><command-args> x",
        {"origin": {"kind": "human"}},
        "/f x",
    ),
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
    (
        "<command-name>/goal</command-name><command-args>x</command-args>",
        {"promptSource": "system"},
        Turn.ENDED,
    ),
    ("<bash-input>ls</bash-input>", {}, Turn.ENDED),
    ("<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>", {}, Turn.ENDED),
    ("<user-memory-input>x</user-memory-input>", {}, Turn.ENDED),
    ("(no content)", {}, Turn.ENDED),
    ("/compact", {}, Turn.ENDED),  # 2.1.232 records it before its `<command-name>`
    ("<system-reminder>alone</system-reminder>", {}, Turn.ENDED),
    ("seen", {"isVisibleInTranscriptOnly": True}, Turn.ENDED),
    ("", {}, Turn.ENDED),
    ("[Request interrupted by user for tool use]", {}, Turn.FAILED),
    ("Operation stopped by hook: no", {}, Turn.FAILED),
]


@pytest.mark.parametrize(("content", "more", "text"), HUMAN)
def test_typed_prompts(content: Any, more: dict[str, Any], text: str) -> None:
    """formats.md 2.3: prompts count, without the text that the client adds."""
    data = BASE + user("u2", "a1", content, **more)
    state = state_of(data)
    assert prompts(data) == ["hi", text]
    assert (state.messages, state.turn) == (3, Turn.OPEN)


@pytest.mark.parametrize(("content", "more", "turn"), MACHINE)
def test_user_lines_that_nobody_typed(content: Any, more: dict[str, Any], turn: Turn) -> None:
    """formats.md 2.3: they never count; those for the model open the turn, others do not."""
    data = BASE + user("u2", "a1", content, **more)
    state = state_of(data)
    assert (state.user_messages(), state.messages) == (1, 2)
    assert state.turn is turn
    assert answers(data) == ["yes"]  # nothing is added to the assistant's words
    assert state_of(data + user("u3", "u2", "next")).user_messages() == 2


@pytest.mark.parametrize(("model", "shown"), [("<synthetic>", False), ("claude-x", None)])
def test_the_clients_own_answer_is_not_shown(model: str, shown: bool | None) -> None:
    """It is written for a session that is resumed after an interruption."""
    line = answer("a2", "a1", "No response requested.").replace(b"claude-x", model.encode())
    assert read(line, "a2").display is shown


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
        ({"prompt": "/compact"}, Kind.CUSTOM),
        ({"prompt": ""}, Kind.OTHER),
    ],
)
def test_queued_commands(held: dict[str, Any], kind: Kind) -> None:
    """formats.md 2.3: a queued command is the user's unless it says otherwise."""
    data = BASE + queued("q1", "a1", **held)
    state = state_of(data)
    assert state.kind(2) is kind
    assert state.user_messages() == (2 if kind is Kind.USER else 1)
    said = read(data.splitlines()[2], "q1")
    assert said.kind is kind
    assert (said.type, said.texts) == ("attachment", ("go",)) or kind is not Kind.USER


WAITED = [  # operations on the queue, and the prompts that are recorded nowhere else
    (["+One.", "+Two.", "remove", "remove"], ["One.", "Two."]),
    (["+One.", "+Two.", "dequeue", "remove"], ["Two."]),
    (["+One.", "+Two.", "remove Two."], ["Two."]),
    (["+One.", "popAll", "remove"], []),  # taken back
    (["+One."], []),  # still waiting
    (["+One.", "user One.", "remove"], []),  # sent in a line of its own
    (["+One.", "user Other.", "+Two.", "remove"], ["Two."]),  # the first was dropped unnoticed
    (["+One.", "+Two.", "user One.", "remove"], ["Two."]),
    (["+<task-notification>x", "+One.", "remove"], ["One."]),
    (['+{"task_id":"b1"}', "remove"], []),
    (["+/model", "+<task-notification>x", "+", "remove", "remove", "remove"], []),
]


@pytest.mark.parametrize("version", ["2.1.44", "2.1.96", "2.1.97"])
@pytest.mark.parametrize(("operations", "sent"), WAITED)
def test_prompts_sent_while_the_agent_works(
    operations: list[str], sent: list[str], version: str
) -> None:
    """Before 2.1.97 only the operations on the queue tell of them."""
    data = user("u1", None, "hi") + call("a1", "u1", "t1")
    for operation in operations:
        kind, _, text = operation.partition(" ")
        if kind == "user":
            data += user("u2", "a1", text)
        elif kind.startswith("+"):
            told = {"operation": "enqueue", "content": operation[1:]}
            data += bare(type="queue-operation", timestamp="2026-01-02T00:00:00.000Z", **told)
        else:
            told = {"operation": kind, "content": text} if text else {"operation": kind}
            data += bare(type="queue-operation", **told)
    data += result("r1", "a1", "t1")
    data = data.replace(b"2.1.330", version.encode())
    state = state_of(data)
    found = [one.text for one in entries(data, Kind.USER) if one.type == "queue-operation"]
    assert found == (sent if version != "2.1.97" else [])
    typed = sum(operation.startswith("user") for operation in operations)
    assert state.user_messages() == 1 + len(found) + typed
    assert state.ids[state.leaf] == "r1"


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
    """S0.1: the last line of an answer decides; an API error fails the turn."""
    data = user("u1", None, "hi") + answer("a1", "u1", stop=None, message="m")
    assert state_of(data + answer("a2", "a1", stop=stop, message="m", **more)).turn is turn


def test_failed_or_denied_results_mark_their_calls() -> None:
    """formats.md 2.9: only those rows are marked and name their calls."""
    data = user("u1", None, "hi") + call("a1", "u1", "t1")
    data += result("r1", "a1", "t1", error=True) + result("r2", "r1", "t2")
    both = [
        {"type": "tool_result", "tool_use_id": call_id, "content": "no"} for call_id in ("t3", "t4")
    ]
    data += user("r3", "r2", both, toolDenialKind="user")
    state = state_of(data)
    failed = [Turn(state.codes[row] >> 4 & 3) is Turn.FAILED for row in state.path()]
    assert failed == [False, False, True, False, True]
    found = [entry.failed for entry in entries(data, Kind.TOOL)]
    assert found == [("t1",), (), ("t3", "t4")]
    assert state.turn is Turn.OPEN


CONTINUED = "This session is being continued from a previous conversation that ran out of context."
PLEASE = "Please continue the conversation from where"
KEPT = "The messages after this summary are the newest ones."
ASIDE = "If you need specific details from before compaction (like code), read: /home/me/a.jsonl"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (" The conversation is summarized below:\n", f".\n{PLEASE} we left it off. Go on."),
        (" The summary below covers the earlier portion.\n\n", f"\n\n{ASIDE}"),
        ("\n", f"\n\n{ASIDE}\n{PLEASE[7:].capitalize()} it left off. Go on.\n\n{KEPT}"),
        ("\n\n<system-reminder>\nEdit\n</system-reminder>\n", ""),
    ],
)
def test_a_summary_is_shown_without_what_the_client_puts_around_it(before: str, after: str) -> None:
    """S1.19: the model gets all of it."""
    bare = f"Summary:\n1. He said: {PLEASE} we left off.\n2. {ASIDE}\n3. It is done"
    text = f"{CONTINUED}{before}{bare}{after}"
    entry = read(user("c1", None, text, isCompactSummary=True), "c1")
    assert entry.text.rstrip(".") == bare
    assert entry.as_sent == (text,)
    assert read(user("c1", None, CONTINUED, isCompactSummary=True), "c1").text == CONTINUED

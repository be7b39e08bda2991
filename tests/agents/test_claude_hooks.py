"""What hooks tell the model of Claude Code: in its context where it gets it, and nobody's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.agents.claude import read
from indexerd.agents.claude.hooks import HOOKS, told
from indexerd.events import Entry, Kind
from indexerd.sessions.context import context_of
from indexerd.sessions.state import SessionState
from tests.agents.claude_files import (
    answer,
    attachment,
    boundary,
    call,
    entries,
    line,
    prompts,
    result,
    state_of,
    summary,
    user,
)

PROMPT = "UserPromptSubmit"


def hook(uuid: str, parent: str | None, text: str, event: str = PROMPT, name: str = "") -> bytes:
    """What a hook adds to the context, as the client writes it."""
    fields = {"hookName": name or event, "toolUseID": "hook-1", "hookEvent": event}
    return attachment(uuid, parent, "hook_additional_context", content=[text], **fields)


def printed(uuid: str, parent: str, text: str, event: str = PROMPT) -> bytes:
    """What a hook printed."""
    fields = {"hookName": event, "hookEvent": event, "stdout": f"{text}\n", "exitCode": 0}
    return attachment(uuid, parent, "hook_success", content=text, **fields)


def reminder(text: str) -> str:
    """A text as the client hands it on."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def added(text: str, name: str = PROMPT) -> tuple[str, str]:
    """A message that holds what a hook added."""
    return "user", reminder(f"{name} hook additional context: {text}")


def context(data: bytes, state: SessionState | None = None) -> list[tuple[str, str]]:
    """The messages at the leaf, with entries as the state knows them."""
    known = state or state_of(data)

    def row(at: int) -> Entry:
        start = known.offsets[at]
        found, kind = read(data[start : start + known.lengths[at]], known.id(at)), known.kind(at)
        if found.kind in (kind, Kind.OTHER):
            return found
        unseen = {"unseen": True} if kind is Kind.OTHER else {}
        return replace(found, kind=kind, details=found.details | unseen)

    return [(one.role, one.text) for one in context_of(known, row).messages]


TURN = (
    hook("s1", None, "begun", "SessionStart")
    + user("u1", "s1", "the question")
    + attachment("e1", "u1", "environment", snapshot={"platform": "linux"})
    + attachment("m1", "e1", "hook_system_message", content="for people", hookName=PROMPT)
    + hook("h1", "m1", "the aardvark\nsleeps")
    + printed("p1", "h1", "printed")
    + attachment("w1", "p1", "hook_non_blocking_error", stderr="wrong", hookName=PROMPT)
)


def test_a_hooks_context_stands_before_the_prompt() -> None:
    """interfaces.md 5: in the client's words and order; what is for people is not there."""
    got = [
        added("begun", "SessionStart"),
        added("the aardvark\nsleeps"),
        ("user", reminder(f"{PROMPT} hook success: printed")),
        ("user", "the question"),
    ]
    assert context(TURN) == got, "while the agent is at work, too"
    assert context(TURN + answer("a1", "w1", "done")) == [*got, ("assistant", "done")]


def test_what_a_hook_said_is_nobodys_words() -> None:
    """S1.38: one user message, its own words, and no text for an index or a search."""
    data = TURN + answer("a1", "w1", "done")
    state = state_of(data)
    assert (state.messages, state.first_user) == (2, "the question")
    assert prompts(data, state) == ["the question"]
    assert [one.text for one in entries(data, state)] == ["", "the question", *[""] * 5, "done"]
    assert {one.role for one in entries(data, state, Kind.OTHER)} == {None}


def test_a_resumed_session_says_all_of_it_again() -> None:
    """What was said ahead of an earlier prompt stays there."""
    data = TURN + answer("a1", "w1", "done") + user("u2", "a1", "more") + hook("h2", "u2", "late")
    assert context(data)[4:] == [("assistant", "done"), added("late"), ("user", "more")]


def test_hooks_of_tools_stand_behind_the_results() -> None:
    """Of calls at once, too, whose hooks hang beside what follows them."""
    pre, post = "PreToolUse", "PostToolUse"
    data = (
        user("u1", None, "go")
        + call("c1", "u1", "t1", message="m")
        + call("c2", "c1", "t2", message="m")
        + hook("h1", "c2", "one", pre, f"{pre}:Read")
        + result("r1", "c1", "t1")
        + hook("h2", "r1", "two", post, f"{post}:Read")
        + hook("h3", "h2", "three", pre, f"{pre}:Bash")
        + result("r2", "c2", "t2")
        + attachment(
            "b1",
            "r2",
            "hook_blocking_error",
            hookName=f"{post}:Bash",
            hookEvent=post,
            blockingError={"blockingError": "no", "command": "x y"},
        )
        + answer("a1", "b1", "done")
    )
    got = [
        ("user", "go"),
        *[("assistant", "")] * 2,
        *[("toolResult", "r")] * 2,
        added("one", f"{pre}:Read"),
        added("two", f"{post}:Read"),
        added("three", f"{pre}:Bash"),
        ("user", reminder(f'{post}:Bash hook blocking error from command: "x y": no')),
        ("assistant", "done"),
    ]
    assert context(data) == got
    cuts = [at for at in range(len(data)) if data[at : at + 1] == b"\n"]
    assert context(data, state_of(data, cuts=cuts, asleep=True)) == got


def test_a_stop_hook_speaks_as_the_user() -> None:
    """Its feedback is a machine's message of the user, and no tool's result."""
    why = {"blockingError": "go on", "command": "x"}
    data = (
        user("u1", None, "hi")
        + answer("a1", "u1", "ok")
        + user("f1", "a1", "Stop hook feedback:\ngo on", isMeta=True)
        + attachment("b1", "f1", "hook_blocking_error", hookName="Stop", blockingError=why)
        + line("system", "y1", "b1", subtype="stop_hook_summary")
        + answer("a2", "y1", "done")
    )
    assert context(data)[2:] == [
        ("user", reminder('Stop hook blocking error from command: "x": go on')),
        ("user", "Stop hook feedback:\ngo on"),
        ("assistant", "done"),
    ]
    assert prompts(data, state_of(data)) == ["hi"]


def test_a_prompt_that_was_taken_back_takes_its_hooks_along() -> None:
    """What hung below it is on the other branch."""
    data = user("u1", None, "one") + answer("a1", "u1") + user("u2", "a1", "two")
    data += hook("h2", "u2", "of two") + answer("a2", "h2") + user("u3", "a1", "three")
    assert context(data)[2:] == [("user", "three")]
    data += hook("h3", "u3", "of three") + answer("a3", "h3", "yes")
    assert context(data)[2:] == [added("of three"), ("user", "three"), ("assistant", "yes")]


def test_a_compaction_leaves_only_later_hooks() -> None:
    """What hooks said before it is in the summary, if at all."""
    data = TURN + answer("a1", "w1", "done") + boundary("b1", "a1") + summary("s2", "b1")
    data += hook("h3", "s2", "begun again", "SessionStart", "SessionStart:compact")
    data += user("u2", "h3", "more") + answer("a2", "u2", "fine")
    first, second, *rest = context(data)
    assert first == added("begun again", "SessionStart:compact")
    assert second[0] == "compactionSummary"
    assert rest == [("user", "more"), ("assistant", "fine")]


@pytest.mark.parametrize(
    ("held", "texts"),
    [
        (
            {"type": "hook_additional_context", "content": ["a", "b"]},
            ["H hook additional context: a\nb"],
        ),
        ({"type": "hook_additional_context", "content": []}, []),
        ({"type": "hook_success", "hookEvent": "PreToolUse", "content": "x"}, []),
        ({"type": "hook_success", "hookEvent": PROMPT, "content": ""}, []),
        ({"type": "hook_stopped_continuation", "message": "m"}, ["H hook stopped continuation: m"]),
        (
            {
                "type": "async_hook_response",
                "response": {
                    "systemMessage": "s",
                    "hookSpecificOutput": {"additionalContext": "c"},
                },
            },
            ["s", "c"],
        ),
    ],
)
def test_each_kind_in_the_clients_words(held: dict[str, Any], texts: list[str]) -> None:
    """As the client's requests hold them; what is empty is not sent."""
    assert list(told({"hookName": "H", **held})) == [reminder(text) for text in texts]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = ("content", "hookName", "hookEvent", "blockingError", "message", "response", "isPlainOutput")


@settings(max_examples=60)
@given(st.sampled_from([*sorted(HOOKS), "file"]), st.fixed_dictionaries(dict.fromkeys(KEYS, JUNK)))
def test_fields_of_any_type_are_no_error(kind: str, fields: dict[str, Any]) -> None:
    """F4: a hook's line of any shape is read; what it says, if anything, is text."""
    data = attachment("h1", None, kind, **fields)
    found = read(data, "h1")
    assert (found.kind, found.texts) == (Kind.OTHER, ())
    assert all(isinstance(one, str) for one in found.details.get("sent", ()))
    assert len(context(user("u1", None, "hi") + data)) <= 2

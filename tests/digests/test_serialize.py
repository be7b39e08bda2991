"""A conversation as text: pi's form, to the letter."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.serialize import call_text, js_json, lines_of, serialize, units
from indexerd.events import Entry, Kind, ToolCall
from indexerd.sessions.context import ContextMessage, context_entries, context_messages
from indexerd.sessions.tree import still
from tests.sessions.tree_sessions import PUBLIC, entry, reader, said, session, state_of

LEFT = "The following is a summary of a branch that this conversation came back from:"
COMPACTED = "The conversation history before this point was compacted into the following summary:"
WHO = Entry("e", Kind.USER, "message", "user", "")


def text_of(*lines: bytes) -> str:
    """All that is said in a small session, serialised."""
    data = session(*lines)
    state = state_of(data)
    return serialize(context_messages(state, reader(state, data), state.path()))


@pytest.mark.shared
def test_public_contexts_are_pis_to_the_letter() -> None:
    """S1.24: length and hash of the whole text equal the answers of pi 0.81."""
    if not PUBLIC.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    compared = 0
    for name, versions in json.loads((PUBLIC / "EXPECTED.json").read_text()).items():
        said_of = versions.get("v0.81", {}) if isinstance(versions, dict) else {}
        expected = said_of.get("context", {}).get("serialized")
        if expected is None:
            continue
        data = (PUBLIC / name).read_bytes()
        state = state_of(data)
        harness = "harness" in name  # the tail that a harness keeps is unknown to the agent
        state = still(state, said_of["leafIndex"]) if harness else state
        speeches = [
            one for step in context_entries(state, reader(state, data)) for one in step.speeches
        ]
        text = serialize(speeches[:1] if harness else speeches)
        digest = hashlib.sha256(text.encode()).hexdigest()
        assert {"chars": units(text), "sha256": digest} == expected, name
        compared += 1
    assert compared >= 12


def test_every_speaker_has_a_form() -> None:
    """S1.24: an answer's thoughts, words and calls in this order; empty ones are left out."""
    content = [
        {"type": "toolCall", "name": "read", "arguments": {"path": "a", "n": 1.0, "o": {"b": []}}},
        {"type": "text", "text": "w1"},
        {"type": "thinking", "thinking": "t1"},
        {"type": "toolCall", "name": "ls", "arguments": {}},
        {"type": "text", "text": "w2"},
        {"type": "thinking", "thinking": "t2"},
    ]
    blocks = [{"type": "text", "text": "o"}, {"type": "image"}, {"type": "text", "text": "ne"}]
    text = text_of(
        said("s", None, "system", "be kind"),
        entry("message", "a", "s", message={"role": "user", "content": blocks}),
        entry("message", "b", "a", message={"role": "assistant", "content": content}),
        said("c", "b", "toolResult", "r"),
        said("d", "c", "toolResult"),
        said("e", "d", "user"),
        said("f", "e", "assistant"),
        entry("custom_message", "g", "f", customType="x", content="note", display=False),
        entry("branch_summary", "h", "g", fromId="q", summary="left"),
        entry("compaction", "i", "h", summary="S"),
    )
    assert text.split("\n\n[") == [
        "[User]: one",
        "Assistant thinking]: t1\nt2",
        "Assistant]: w1\nw2",
        'Assistant tool calls]: read(path="a", n=1, o={"b":[]}); ls()',
        "Tool result]: r",
        "User]: note",
        f"User]: {LEFT}\n\n<summary>\nleft</summary>",
        f"User]: {COMPACTED}\n\n<summary>\nS\n</summary>",
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "Ran `ls`\n```\nout\n```"),
        ({"output": ""}, "Ran `ls`\n(no output)"),
        ({"exitCode": 0}, "Ran `ls`\n```\nout\n```"),
        ({"exitCode": 2}, "Ran `ls`\n```\nout\n```\n\nCommand exited with code 2"),
        ({"exitCode": 2, "cancelled": True}, "Ran `ls`\n```\nout\n```\n\n(command cancelled)"),
        (
            {"truncated": True, "fullOutputPath": "/t"},
            "Ran `ls`\n```\nout\n```\n\n[Output truncated. Full output: /t]",
        ),
        ({"truncated": True}, "Ran `ls`\n```\nout\n```"),
        ({"excludeFromContext": True}, ""),
    ],
)
def test_a_users_command_is_told_as_pi_tells_it(more: dict[str, Any], told: str) -> None:
    """S1.24: with how it ended; one that the user kept from the model is left out."""
    message = {"role": "bashExecution", "command": "ls", "output": "out"} | more
    text = text_of(entry("message", "a", None, message=message))
    assert text == (f"[User]: {told}" if told else "")


def test_another_agents_command_is_told_as_it_stands() -> None:
    """Of commands without a known ending the text says it all."""
    assert serialize([ContextMessage("bashExecution", WHO, ("$ ls\nout",))]) == "[User]: $ ls\nout"


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("aé☃😀"), max_size=40), st.integers(0, 40))
def test_a_tools_result_is_cut_by_utf16_units(text: str, most: int) -> None:
    """S1.24: the beginning, and how much is missing; a pair torn apart becomes U+FFFD."""
    found = serialize([ContextMessage("toolResult", WHO, (text,))], tool_result_max=most)
    size = len(text.encode("utf-16-le")) // 2
    if size <= most:
        assert found == (f"[Tool result]: {text}" if text else "")
        return
    head, note = found.removeprefix("[Tool result]: ").split("\n\n", 1)
    assert note == f"[... {size - most} more characters truncated]"
    assert units(head) == most
    assert text.startswith(head.removesuffix("\ufffd"))


def test_a_result_keeps_2000_units() -> None:
    """S1.24: pi's own bound; everything else is whole."""
    long = "x" * 3000
    found = lines_of(
        [ContextMessage("toolResult", WHO, (long,)), ContextMessage("user", WHO, (long,))]
    )
    assert found[0][1] == f"[Tool result]: {'x' * 2000}\n\n[... 1000 more characters truncated]"
    assert found[1][1] == f"[User]: {long}"


def test_parts_come_with_their_speech() -> None:
    """Callers cut a conversation at the borders of its parts."""
    speeches = [
        ContextMessage("assistant", WHO, ("w",), ("t",), (ToolCall("ls"),)),
        ContextMessage("toolResult", WHO, ("",)),
        ContextMessage("user", WHO, ("u",)),
    ]
    found = lines_of(speeches)
    assert [speech for speech, _ in found] == [*[speeches[0]] * 3, speeches[2]]
    assert serialize(speeches) == "\n\n".join(text for _, text in found)


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        (None, "f()"),
        ({}, "f()"),
        ('{"b": 1, "1": 2}', "f(1=2, b=1)"),
        ("*** Begin", 'f(input="*** Begin")'),
        ('{"torn', 'f(input="{\\"torn")'),
        ("[1]", 'f(input="[1]")'),
        ("{" * 100_000, f'f(input="{"{" * 100_000}")'),
    ],
)
def test_arguments_are_an_object_or_an_input(given_: Any, shown: str) -> None:
    """Codex stores the text of an object, or what is none."""
    assert call_text(ToolCall("f", arguments=given_)) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "10": 2, "9": 3, "07": 4, "-1": 5}, '{"9":3,"10":2,"b":1,"07":4,"-1":5}'),
        ({"4294967295": 1, "4294967294": 2}, '{"4294967294":2,"4294967295":1}'),
        ([1.0, -0.0, 0.1, 1e20, 1e21, -1.5e-7, 1e-6], "[1,0,0.1,100000000000000000000,1e+21"),
        ([2**53 + 1, 10**22, 123456.789], "[9007199254740992,1e+22,123456.789]"),
        ([math.inf, math.nan, 10**400, None, True, False], "[null,null,null,null,true,false]"),
        ('\u2028\x7f\x01\n"\\/é😀\ud83d', '"\u2028\x7f\\u0001\\n\\"\\\\/é😀\\ud83d"'),
        ("\ud83d\ude00", '"😀"'),
        ([[], {}, [[]]], "[[],{},[[]]]"),
    ],
)
def test_json_is_javascripts(value: Any, text: str) -> None:
    """S1.24: the order of keys, numbers, and half a pair escaped."""
    assert js_json(value).startswith(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_json_reads_back_as_the_same(value: Any) -> None:
    """Whatever a call was given, its text means it, as far as JavaScript knows the number."""
    assert json.loads(js_json(value), parse_int=float) == _as_javascript(value)


def _as_javascript(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_javascript(one) for one in value]
    if isinstance(value, dict):
        return {key: _as_javascript(one) for key, one in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(float(value)) else None
    return value


def test_json_nested_beyond_reason_is_written_all_the_same() -> None:
    """Nothing that an agent stored ends the daemon."""
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    assert js_json(deep) == "[" * 50_000 + "1" + "]" * 50_000

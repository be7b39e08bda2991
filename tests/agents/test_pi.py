"""pi's files, as pi itself reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexerd.agents import base as base_module
from indexerd.agents.pi import read, resume_command, scan
from indexerd.events import Command, Kind, ToolResult, Turn
from indexerd.sessions.state import SessionState
from indexerd.sources import lines as lines_module
from tests.agents.pi_files import state_of


def line(**fields: Any) -> bytes:
    """One line as pi writes it."""
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


HEADER = line(type="session", version=3, id="s1", timestamp="2026-01-01T00:00:00.000Z", cwd="/w")
_STAMP = "2026-01-01T00:00:01.000Z"


def message(entry_id: str, parent: str | None, role: str, text: str = "hi", **more: Any) -> bytes:
    """A message entry."""
    said = {"role": role, "content": [{"type": "text", "text": text}], **more}
    return line(type="message", id=entry_id, parentId=parent, timestamp=_STAMP, message=said)


def small_session() -> bytes:
    """Two turns, the first with a tool, the second failed."""
    return (
        HEADER
        + message("00000001", None, "user", "first ünï")
        + message("00000002", "00000001", "assistant", "a", stopReason="toolUse")
        + message("00000003", "00000002", "toolResult", "r")
        + message("00000004", "00000003", "assistant", "b", stopReason="stop")
        + message("00000005", "00000004", "user", "second")
        + message("00000006", "00000005", "assistant", "c", stopReason="error")
    )


def test_turns_follow_the_stop_reason() -> None:
    """S0.1: a tool loop is open, `stop` ends the turn, an error fails it, a question opens it."""
    data = small_session()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    turns = [state_of(data[:end]).turn for end in ends[1:]]
    assert turns == [Turn.OPEN, Turn.OPEN, Turn.OPEN, Turn.ENDED, Turn.OPEN, Turn.FAILED]


def test_a_command_or_a_label_after_the_answer_does_not_reopen_the_turn() -> None:
    """S0.1: entries that are no part of the conversation leave the turn as it was."""
    data = small_session()[: small_session().index(b'{"type":"message","id":"00000005"')]
    data += line(type="label", id="00000007", parentId="00000004", timestamp=_STAMP, targetId="x")
    data += message("00000008", "00000007", "bashExecution")
    assert Turn.ENDED is state_of(data).turn


def test_lines_that_are_no_entries_are_counted_and_skipped() -> None:
    """F3, F4, F5, F6, S1.2: damage in the middle loses its own line only."""
    bad = [
        b"{not json\n",
        b"[" * 100_000 + b"\n",
        b"null\n",
        b"[]\n",
        b'"x"\n',
        b"\x00" * 4096 + b"\n",
    ]
    tail = message("00000002", "00000001", "assistant", "line\u2028sep \u0085", stopReason="stop")
    data = HEADER + message("00000001", None, "user") + b"".join(bad) + b"\n  \n" + tail

    state = state_of(data)

    assert len(bad) == state.bad_lines
    assert state.path() == [0, 1]
    assert Turn.ENDED is state.turn


def test_crlf_bom_and_lone_surrogates_are_read() -> None:
    """F3, F6, F7: line ends of another system, a byte order mark and half an emoji do no harm."""
    data = b"\xef\xbb\xbf" + HEADER.replace(b"\n", b"\r\n")
    data += message("00000001", None, "user", "cut \ud83d").replace(b"\n", b"\r\n")
    data += message("00000002", "00000001", "assistant", "ok", stopReason="stop")

    state = state_of(data)

    assert state.user_messages() == 1
    assert state.first_user == "cut \ufffd"


def test_a_torn_line_to_which_the_next_was_glued_is_no_entry() -> None:
    """S1.2: both halves of a glued line are lost, as they are to pi."""
    torn = message("00000003", "00000002", "user", "never finished")[:-20]
    glued = torn + message("00000004", "00000002", "user", "lost with it")
    data = (
        HEADER
        + message("00000001", None, "user")
        + message("00000002", "00000001", "assistant", stopReason="stop")
        + glued
        + message("00000005", "00000004", "assistant", stopReason="stop")
        + message("00000006", "00000005", "user")
    )

    state = state_of(data)

    assert state.bad_lines == 1
    assert state.row("00000003") is None
    assert state.path() == [2, 3]


def test_version_1_ids_hold_across_reads_and_versions_are_read() -> None:
    """S1.8, S1.9, S1.12: made ids are stable; hookMessage is custom; a newer version is read."""
    old = line(type="session", id="s", timestamp="t", cwd="/w", branchedFrom="/p.jsonl")
    said = line(type="message", timestamp=_STAMP, message={"role": "user", "content": "hello"})
    first, second = state_of(old + said), state_of(old + said + said)
    assert [first.id(row) for row in first.path()] == ["00000000"]
    assert [second.id(row) for row in second.path()] == ["00000000", "00000001"]
    assert second.header is not None
    assert second.header.parent == "/p.jsonl"

    hook = message("00000001", None, "hookMessage")
    assert Kind.CUSTOM is state_of(HEADER.replace(b":3,", b":2,") + hook).kind(0)
    newer = HEADER.replace(b":3,", b":9,") + message("a", None, "user")
    assert state_of(newer).user_messages() == 1


def test_harness_leaf_moves_the_leaf() -> None:
    """formats.md 1.6: a `leaf` entry makes its target the leaf, and null means before the first."""
    base = small_session()
    back = line(
        type="leaf", id="00000009", parentId="00000006", timestamp=_STAMP, targetId="00000004"
    )
    assert state_of(base + back).leaf_id == "00000004"
    assert state_of(base + back).user_messages() == 1
    gone = line(type="leaf", id="0000000a", parentId="00000009", timestamp=_STAMP, targetId=None)
    assert state_of(base + back + gone).leaf_id is None
    assert state_of(base + back + gone).user_messages() == 0


def test_names_are_the_newest_and_can_be_cleared() -> None:
    """S1.43: the newest session_info decides, on whatever branch; an empty name clears."""
    info = line(
        type="session_info", id="0000000b", parentId="00000001", timestamp=_STAMP, name="A\nb"
    )
    clear = line(type="session_info", id="0000000c", parentId="00000001", timestamp=_STAMP, name="")
    assert state_of(small_session() + info).name == "A b"
    assert state_of(small_session() + info + clear).name is None


def test_a_line_too_long_to_hold_keeps_its_place_in_the_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F8: type, id and parent of an oversized line are taken from its ends; counts hold."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 5000)
    monkeypatch.setattr(base_module, "READ_MAX", 6000)
    monkeypatch.setattr(lines_module, "END_KEPT", 600)
    huge = message("00000002", "00000001", "user", "x" * 20_000)
    odd = (
        b'{"type":"custom","customType":"c","data":{"id":"inner","blob":"'
        + b"y" * 20_000
        + b'"},"id":"00000003","parentId":"00000002","timestamp":"t"}\n'
    )
    answer = message("00000004", "00000003", "assistant", "z" * 20_000, stopReason="stop")
    data = HEADER + message("00000001", None, "user") + huge + odd + answer
    cuts = list(range(0, len(data), 700))

    state = state_of(data, cuts)

    assert state.oversized == 3
    assert [state.id(r) for r in state.path()] == ["00000001", "00000002", "00000003", "00000004"]
    assert (state.user_messages(), state.turn) == (2, Turn.ENDED)
    assert list(state.lengths[1:]) == [0, 0, 0]
    assert state.encode() == state_of(data, list(range(0, len(data), 333))).encode()


def test_resume_command_quotes() -> None:
    """The resume command survives spaces and quotes."""
    assert resume_command("id", "/a b", "/x y.jsonl") == "cd '/a b' && pi --session '/x y.jsonl'"


def test_a_line_of_bad_utf8_is_read_with_replacement_characters() -> None:
    """F4: a byte that is no UTF-8 costs itself, not its line."""
    state = SessionState()
    head = b'{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/w"}\n'
    line = (
        b'{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"\xff"}}\n'
    )
    scan(state, head + line, 0)

    assert (state.user_messages(), state.bad_lines, state.first_user) == (1, 0, "\ufffd")


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("  spaced  ", "  spaced  "),
        ("a  b", "a  b"),
        ("  ", "  "),
        (" \x1b[31mred\x07 ", " red "),
        ("\x07", None),
        ("", None),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_label_keeps_its_spaces(stored: str, shown: str | None) -> None:
    """S1.30, X9: as pi keeps it, without what could act on a terminal, and bounded."""
    data = line(type="session", version=3, id="s", timestamp=_STAMP, cwd="/w")
    for number, label in enumerate(("before", stored)):
        data += line(
            type="label", id=f"{number}", parentId=None, timestamp=_STAMP, targetId="t", label=label
        )
    assert state_of(data).labels.get("t") == shown


def test_all_that_a_summary_needs_is_read() -> None:
    """S1.24, S1.25: thoughts, arguments, pictures, results and token counts, as they are stored."""
    given = {"path": "a", "edits": [{"oldText": "b"}]}
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "toolCall", "id": "c", "name": "edit", "arguments": given},
        {"type": "image", "data": ""},
    ]
    usage = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 0}

    def entry(**message: Any) -> Any:
        return read(json.dumps({"type": "message", "id": "x", "message": message}).encode(), "")

    answer = entry(role="assistant", content=blocks, usage=usage)
    assert (answer.thinking, answer.images, answer.tokens.total) == (("hm",), 1, 10)
    assert [call.arguments for call in answer.tools] == [given]
    counted = entry(role="assistant", content=[], usage=usage | {"totalTokens": 7})
    assert counted.tokens.total == 7

    parts = [{"type": "text", "text": "o"}, {"type": "image"}, {"type": "text", "text": "ut"}]
    result = entry(role="toolResult", toolCallId="c", toolName="edit", content=parts)
    assert (result.images, result.results) == (1, (ToolResult("c", "edit", "out"),))
    assert result.failed == entry(role="toolResult", toolCallId="c", isError="yes").failed == ()
    assert entry(role="toolResult", toolCallId="c", isError=True).failed == ("c",)
    assert entry(role="toolResult", isError=True).failed == ("",)  # it failed all the same
    assert entry(role="assistant", isError=True).failed == ()

    ran = entry(role="bashExecution", command="ls", output="o", exitCode=2, excludeFromContext=True)
    assert ran.ran == Command("ls", "o", exit_code=2, hidden=True)
    for odd in ({"thinking": 5}, {"arguments": 5}, "x", None, 5):
        assert entry(role="assistant", content=[odd], usage={"totalTokens": "x"}).id == "x"

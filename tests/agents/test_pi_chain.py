"""Lines of pi taken in as chains: what is gathered on its looks is what parsing each line gives."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents import pi
from indexerd.sessions.state import SessionState

_HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "", "cwd": "/w"}
_STOPS = ("stop", "toolUse", "error", "aborted", "length", "paused")
_LINE = st.tuples(
    st.integers(0, 30),  # its id, which may come again
    st.none() | st.integers(0, 30),  # its parent; none: the line before
    st.sampled_from(("user", "assistant", "toolResult", "bashExecution", "label")),
    st.sampled_from(_STOPS),
)


def _line(number: int, above: int, role: str, stop: str) -> dict[str, Any]:
    held = {
        "id": f"{number:08x}",
        "parentId": f"{above:08x}",
        "timestamp": "2026-01-01T00:00:00.000Z",
    }
    if role == "label":
        return {"type": "label", **held, "targetId": f"{above:08x}", "label": "here"}
    said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": f"words {number}"}]}
    if role == "toolResult":
        said = {"role": role, "toolCallId": "c", **said}
    if role == "assistant":
        said |= {"stopReason": stop}
    return {"type": "message", **held, "message": said | {"timestamp": 1_795_295_359_299}}


def _skimmed(lines: list[bytes], *, strict: bool, each: bool) -> SessionState:
    state = SessionState("f")
    state.strict = strict
    at = 0
    for block in lines if each else [b"".join(lines)]:
        pi.skim(state, block, at)
        at += len(block)
    state.strict = False
    return state


@given(st.lists(_LINE, max_size=40))
def test_a_chain_is_taken_in_as_its_lines_are_one_by_one(drawn: list[Any]) -> None:
    """F1: in one block or line by line, on looks or parsed, the state is the same."""
    told, before = [_HEADER], 99
    for number, above, role, stop in drawn:
        told.append(_line(number, before if above is None else above, role, stop))
        before = number
    lines = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told]
    ways = ((False, False), (False, True), (True, False))
    states = [_skimmed(lines, strict=strict, each=each) for strict, each in ways]
    first, *rest = [(one.encode(), one.index, one.user_messages()) for one in states]
    assert rest == [first, first]


def test_a_hole_is_no_part_of_a_message() -> None:
    """F5: NULs inside a line that begins and ends as a message does show that it is none."""
    told = [_HEADER, *(_line(number, number - 1, "user", "") for number in range(1, 5))]
    lines = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told]
    lines[3] = lines[3].replace(b"words", b"\0" * 5)
    state = _skimmed(lines, strict=False, each=False)
    assert (len(state), state.bad_lines, state.user_messages()) == (3, 1, 1)


def test_a_torn_line_whose_id_repeats_leaves_that_id_to_the_earlier_entry() -> None:
    """F5: another line is glued to it; it is no entry, and who stands below that id still is."""
    told = [_HEADER, *(_line(number, number - 1, "user", "") for number in (1, 2))]
    *lines, last = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in told]
    glued, after = (
        json.dumps(_line(number, number - 1, role, "stop"), separators=(",", ":")).encode()
        for number, role in ((4, "toolResult"), (5, "assistant"))
    )
    torn = json.dumps(_line(1, 2, "toolResult", ""), separators=(",", ":")).encode()[:200]
    state = _skimmed([*lines, last, torn + glued + b"\n", after + b"\n"], strict=False, each=False)
    assert (state.ids, state.bad_lines) == ([b"00000001", b"00000002", b"00000005"], 1)
    assert [state.parent(row) for row in range(3)] == [-1, 0, -1]


def test_two_torn_lines_one_after_the_other_are_no_entries() -> None:
    """F5: as on a full disk; what follows the first of them is no JSON either, and names nobody."""
    told = [_line(number, number - 1, "toolResult", "") for number in range(1, 7)]
    header, *lines = (json.dumps(one, separators=(",", ":")).encode() for one in [_HEADER, *told])
    torn = [lines[1][:200] + lines[2], lines[3][:200] + lines[4]]
    state = _skimmed(
        [one + b"\n" for one in (header, lines[0], *torn, lines[5])], strict=False, each=False
    )
    assert (state.ids, state.bad_lines) == ([b"00000001", b"00000006"], 2)

"""opencode's sessions: lines of any shape, in any pieces."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.agents import opencode
from indexerd.agents.opencode import resume_command, skim, skim_oversize
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Oversize
from indexerd.sources.opencode_lines import Message, brief, full, head_of
from tests.agents.opencode_records import (
    START,
    Line,
    answer,
    entry,
    joined,
    message,
    prompt,
    session,
    state_from,
    state_of,
    text,
    tool,
)

# -- lines of any shape, in any pieces -----------------------------------------------------------


def test_lines_that_are_no_records_are_counted_or_passed_over() -> None:
    """F4, F6: damage loses its own line only; what is no message takes an ordinal."""
    state = SessionState()
    data = joined([session()]) + b"{not json\n[]\n\n  \n" + b"[" * 50_000 + b"\n"
    skim(state, data + joined([{"type": "todo"}, session(id="ses_b"), prompt()]), 0)
    assert (state.bad_lines, len(state), list(state.ordinals)) == (3, 1, [1])
    assert state.header is not None
    assert state.header.session_id == "ses_a"
    skim_oversize(state, Oversize(9, 10, b"{", b"}\n"))
    assert state.oversized == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "role",
                    "time",
                    "created",
                    "completed",
                    "finish",
                    "error",
                    "summary",
                    "parts",
                ]
            )
            | st.sampled_from(
                ["type", "text", "tool", "state", "status", "input", "tokens", "parent"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(st.lists(VALUES, max_size=6), VALUES)
def test_nothing_that_a_line_holds_raises(values: list[Any], first: Any) -> None:
    """F4: wrong types read as absent, in the skim and in full."""
    lines = [one if isinstance(one, dict) else {"id": "m", "parts": one} for one in values]
    lines = [one | {"type": "message"} for one in lines]
    head = first if isinstance(first, dict) else {"title": first, "revert": first}
    state = state_from({"id": "ses_a"} | head | {"type": "session"}, *lines)
    assert len(state) in (0, len(lines))
    odd = [{"type": kind, "tool": first, "state": {"status": first}} for kind in ("tool", first)]
    for role in ("user", "assistant", "compaction", "idle", first):
        state_of(message("user", odd) | {"role": role})
        for one in (*lines, {"parts": odd}):
            entry(one | {"role": role})


def long_session() -> list[Line]:
    """A session in which everything happens."""
    note = message("user", [text("The following tool was executed by the user", synthetic=True)])
    marker = message("user", [{"type": "compaction", "auto": True, "overflow": True}])
    busy = answer(finish=None, time={"created": START})
    return [
        prompt("one"),
        answer(finish="tool-calls"),
        answer(),
        note,
        message("assistant", [tool("bash", command="ls")], parentID=note["id"], finish=None),
        prompt("two"),
        marker,
        answer("S", summary=True, parentID=marker["id"]),
        prompt("two"),
        busy,
        message("idle", outcome="interrupted"),
        prompt("three"),
        busy,
    ]


@settings(max_examples=80)
@given(st.sets(st.integers(0, 14)), st.integers(-1, 12), st.booleans())
def test_any_split_gives_the_same_state(cuts: set[int], revert: int, within: bool) -> None:
    """F1: however the lines are dealt out, and with the ledger in between."""
    lines = long_session()
    point = {"messageID": lines[revert]["id"], "partID": "p" if within else None}
    pieces = [joined([one]) for one in (session(revert=point if revert >= 0 else None), *lines)]
    whole = SessionState("f")
    skim(whole, b"".join(pieces), 0)
    state, offset = SessionState("f"), 0
    borders = [0, *sorted(one for one in cuts if one < len(pieces)), len(pieces)]
    for start, stop in itertools.pairwise(borders):
        data = b"".join(pieces[start:stop])
        skim(state, data, offset)
        offset += len(data)
        state = SessionState.decode(state.encode(), "f")
    assert state.encode() == whole.encode()
    assert whole.user_messages() <= whole.users == 3


def test_a_resume_command_survives_any_path() -> None:
    """S: quotes and spaces in a directory do no harm."""
    assert resume_command("ses_a", "/a b", "/x") == "cd '/a b' && opencode --session ses_a"
    assert resume_command("ses_a", "", "/x") == "opencode --session ses_a"
    assert opencode.base(b"") is None  # type: ignore[func-returns-value]  # that is what it says


# -- as the client wrote it ----------------------------------------------------------------------


def test_both_forms_of_a_message_say_the_same_kind() -> None:
    """Two reads: what a skim takes a message for, a reader takes it for, too."""
    for line in long_session():
        data = json.dumps({key: one for key, one in line.items() if key != "parts"}).encode()
        stored = Message(line["id"], START, data)
        parts = [json.dumps(one).encode() for one in line["parts"]]
        short = json.loads(brief(stored, head_of(stored), parts))
        whole = json.loads(full(stored, parts, child=False))
        assert entry(short).kind is entry(whole).kind
        assert state_of(short).codes == state_of(whole).codes

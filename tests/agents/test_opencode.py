"""opencode's sessions: which messages are human, where the history ends, what was done."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.agents import Adapter, opencode
from indexerd.agents.opencode import preview, read, resume_command, skim, skim_oversize
from indexerd.core.deeds import Deeds
from indexerd.core.lines import Block, Oversize
from indexerd.core.session import NOWHERE, SessionState
from indexerd.core.times import iso_of_ms
from indexerd.events import Entry, Kind, Tokens, ToolCall, Turn
from indexerd.io import opencode_db, opencode_tree
from indexerd.io.opencode_lines import Message, brief, full, head_of
from indexerd.io.source import Source

SHARED = Path(__file__).parents[3] / "shared" / "fixtures"
REAL = SHARED / "real" / "opencode"
PUBLIC = SHARED / "public" / "opencode"
ADAPTER: Adapter = opencode
START = 1_795_000_000_000
DEFAULT = "New session - 2026-03-01T09:01:40.000Z"

Line = dict[str, Any]


def session(**more: Any) -> Line:
    """A session's line."""
    held = {"type": "session", "schema": 1, "id": "ses_a", "title": "A title", "directory": "/w"}
    return held | {"time": {"created": START}} | more


_numbers = itertools.count(1)


def message(role: str, parts: list[Line] | None = None, **more: Any) -> Line:
    """A message's line; an answer is finished unless it says otherwise."""
    number = next(_numbers)
    time = {"created": START + number}
    held: Line = {"type": "message", "id": f"msg_{number:06d}", "role": role, "time": time}
    if role == "assistant":
        held |= {"finish": "stop", "time": time | {"completed": START + number}}
    return held | {"parts": parts or []} | more


def text(words: str, **more: Any) -> Line:
    """A text part."""
    return {"type": "text", "text": words, **more}


def prompt(words: str = "hello", **more: Any) -> Line:
    """A human's message."""
    return message("user", [text(words)], **more)


def answer(words: str = "hi", **more: Any) -> Line:
    """A finished answer."""
    return message("assistant", [text(words)], **more)


def tool(name: str, status: str = "completed", **given: Any) -> Line:
    """A tool part."""
    state = {"status": status, "input": given, "output": "o"}
    return {"type": "tool", "tool": name, "callID": f"call_{name}", "state": state}


def joined(lines: list[Line]) -> bytes:
    """Lines as a skim gets them."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def state_of(*lines: Line) -> SessionState:
    """The state of a session of these lines."""
    return state_from(session(), *lines)


def state_from(first: Line, *lines: Line) -> SessionState:
    """The same, with a first line of one's own."""
    state = SessionState()
    skim(state, joined([first, *lines]), 0)
    return state


def kinds(state: SessionState) -> list[Kind]:
    """What each row is."""
    return [state.kind(row) for row in range(len(state))]


def entry(line: Line) -> Entry:
    """A line read in full."""
    return read(json.dumps(line).encode(), "")


# -- the header ----------------------------------------------------------------------------------


def test_the_first_line_says_what_the_session_is() -> None:
    """S3.9, S3.10: id, directory, times, parent, archive; a fork of version 2 names its origin."""
    state = state_of()
    assert state.header is not None
    assert (state.header.session_id, state.header.cwd) == ("ses_a", "/w")
    assert (state.header.created_at, state.born_ms) == (iso_of_ms(START), START)
    assert (state.header.version, state.header.parent_id, state.header.subagent) == (1, None, False)
    assert (state.name, state.archived, state.leaf) == ("A title", False, NOWHERE)

    child = state_from(session(parentID="ses_0", time={"created": START, "archived": 5}))
    assert child.header is not None
    assert (child.header.parent_id, child.header.subagent, child.archived) == ("ses_0", True, True)
    fork = state_from(session(forkID="ses_1", schema=2))
    assert fork.header is not None
    assert (fork.header.version, fork.header.parent_id) == (2, "ses_1")
    assert not fork.header.subagent


@pytest.mark.parametrize(
    ("title", "name", "origin"),
    [
        (DEFAULT, None, None),
        ("Child session - 2026-03-01T09:01:40.000Z", None, None),
        (f"{DEFAULT} (fork #1)", None, DEFAULT),
        ("New session - a better name", "New session - a better name", None),
        ("Cache (fork #1)", "Cache (fork #1)", "Cache"),
        ("Cache (fork #2)", "Cache (fork #2)", "Cache (fork #1)"),
        ("", None, None),
        (None, None, None),
        ("two\nlines \x1b[31mred", "two lines red", None),
    ],
)
def test_titles(title: str | None, name: str | None, origin: str | None) -> None:
    """formats.md 4.7: a default title is none; a fork's says what it was forked from."""
    state = state_from(session(title=title))
    assert (state.name, state.notes.get("fork_of")) == (name, origin)


@pytest.mark.parametrize("first", [prompt(), {"type": "session"}, {"type": "session", "id": 7}])
def test_what_does_not_begin_with_a_session_is_none(first: Line) -> None:
    """S1.3: no header, no session, whatever follows."""
    state = state_from(first, session(), prompt())
    assert state.header is None
    assert state.foreign


# -- which messages are human --------------------------------------------------------------------

USERS: list[tuple[str, list[Line], Kind]] = [
    ("text", [text("hello")], Kind.USER),
    ("text and what was attached", [text("a"), text("Called the Read tool", synthetic=True)],
     Kind.USER),
    ("an image alone", [{"type": "file"}, text("Called the Read tool", synthetic=True)], Kind.USER),
    ("an agent alone", [{"type": "agent"}], Kind.USER),
    ("blank", [text(" \n")], Kind.TOOL),
    ("synthetic", [text("Continue if you have next steps", synthetic=True)], Kind.TOOL),
    ("ignored", [text("not for the model", ignored=True)], Kind.TOOL),
    ("a command as a task", [{"type": "subtask", "prompt": "look"}], Kind.TOOL),
    ("compaction", [{"type": "compaction", "auto": True}], Kind.OTHER),
    ("shell", [text("The following tool was executed by the user", synthetic=True)], Kind.CUSTOM),
    ("nothing yet", [], Kind.TOOL),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "kind"), [one[1:] for one in USERS], ids=[x[0] for x in USERS])
def test_half_of_what_has_the_role_of_a_user_was_typed_by_nobody(
    parts: list[Line], kind: Kind
) -> None:
    """formats.md 4.4: one part that a human made, and neither synthetic nor ignored."""
    state = state_of(message("user", parts))
    assert kinds(state) == [kind]
    assert state.user_messages() == (1 if kind is Kind.USER else 0)
    in_child = state_from(session(parentID="ses_0"), message("user", parts))
    assert in_child.user_messages() == 0
    held = entry(message("user", parts))
    assert (held.kind is Kind.USER) == (kind is Kind.USER)
    assert entry(message("user", parts, child=True)).kind is not Kind.USER


def test_a_sub_agent_has_no_human() -> None:
    """S3.10: its prompts are its parent's; its answers and its turn are its own."""
    lines = [prompt("look"), answer("found")]
    state = state_from(session(parentID="ses_0"), *lines)
    assert (state.users, state.first_user, state.assistants) == (0, "", 1)
    assert state.turn is Turn.ENDED
    assert state_from(session(parentID="ses_0"), lines[0]).turn is Turn.OPEN


def test_a_prompt_that_comes_again_after_an_overflow_counts_once() -> None:
    """formats.md 4.4: the copy has the same text, and a note in the place of each picture."""
    asked = message("user", [text("do it"), {"type": "file"}])
    marker = message("user", [{"type": "compaction", "auto": True, "overflow": True}])
    summary = answer("So far.", summary=True, parentID=marker["id"])
    copy = message("user", [text("do it"), text("[Attached image/png: a.png]")])
    state = state_of(asked, marker, summary, copy, answer())
    assert state.user_messages() == 1
    assert kinds(state)[3] is Kind.TOOL
    assert state_of(asked, marker, summary, copy).turn is Turn.OPEN

    other = state_of(asked, marker, summary, prompt("something else"), answer())
    assert other.user_messages() == 2
    by_hand = message("user", [{"type": "compaction", "auto": False}])
    said_twice = state_of(prompt("go on"), answer(), by_hand, summary, prompt("go on"))
    assert said_twice.user_messages() == 2
    later = state_of(asked, marker, summary, copy, answer(), prompt("do it"))
    assert later.user_messages() == 2


def test_the_first_prompt_is_shown_without_secrets() -> None:
    """S0: a preview is one line, cleaned and redacted; quotes that the client added stay."""
    state = state_of(message("user", [text("Continue", synthetic=True)]), prompt('"fix it"\nnow'))
    assert state.first_user == '"fix it" now'
    secret = "sk-ant-api03-" + "A1b2" * 20
    assert secret not in state_of(prompt(f"the key is {secret}")).first_user
    assert preview("a\nb" * 200) == state_of(prompt("a\nb" * 200)).first_user


def test_a_command_that_the_user_ran_is_no_answer() -> None:
    """formats-observed.md: a note of role user, and an answer that no model gave."""
    note = message("user", [text("The following tool was executed by the user", synthetic=True)])
    ran = message("assistant", [tool("bash", command="ls")], parentID=note["id"], finish=None)
    state = state_of(prompt(), answer(), note, ran)
    assert kinds(state) == [Kind.USER, Kind.ASSISTANT, Kind.CUSTOM, Kind.BASH]
    assert (state.turn, state.user_messages(), state.assistants) == (Turn.ENDED, 1, 1)
    held = entry(ran | {"parent": note["parts"]})
    assert (held.kind, held.texts, held.tools) == (Kind.BASH, ("$ ls\no",), ())


# -- where the history ends ----------------------------------------------------------------------


def test_each_message_stands_below_the_one_before() -> None:
    """formats.md 4.5: the history is linear."""
    lines = [prompt(), answer(), prompt(), answer()]
    state = state_of(*lines)
    assert state.path() == [0, 1, 2, 3]
    assert state.leaf_id == lines[-1]["id"]
    assert state.tips() == [3]


def test_a_revert_moves_the_leaf_before_its_message() -> None:
    """S3.9, formats.md 4.5: what is hidden is there still, and does not count."""
    lines = [prompt("one"), answer(), prompt("two"), answer(), prompt("three")]
    for at, leaf, users in ((2, 1, 1), (0, NOWHERE, 0), (1, 0, 1), (4, 3, 2)):
        state = state_from(session(revert={"messageID": lines[at]["id"]}), *lines)
        assert (state.leaf, state.user_messages(), state.users) == (leaf, users, 3)
        assert len(state) == 5
        assert [state.parent(row) for row in range(5)] == [-1, 0, 1, 2, 3]
    within = session(revert={"messageID": lines[3]["id"], "partID": "prt_9"})
    assert state_from(within, *lines).leaf == 3
    gone = state_from(session(revert={"messageID": "msg_gone"}), *lines)
    assert (gone.leaf, gone.user_messages()) == (4, 3)
    assert state_from(session(revert={"messageID": lines[2]["id"]}), *lines).turn is Turn.ENDED


TURNS: list[tuple[str, Line, Turn, int]] = [
    ("finished", answer(), Turn.ENDED, 0),
    ("without a finish", answer(finish=None), Turn.ENDED, 0),
    ("without a time", answer(time={"created": START}), Turn.ENDED, 0),
    ("for its tools", answer(finish="tool-calls"), Turn.OPEN, 0),
    ("at work", answer(finish=None, time={"created": START}), Turn.OPEN, 1),
    ("failed", answer(error=True, finish=None, time={"created": START}), Turn.FAILED, 0),
    ("aborted", answer(error={"name": "MessageAbortedError"}), Turn.FAILED, 0),
    ("tool pending", message("assistant", [tool("bash", "pending")]), Turn.OPEN, 0),
    ("tool running", message("assistant", [tool("bash", "running")]), Turn.OPEN, 0),
    ("tool failed", message("assistant", [tool("bash", "error")]), Turn.ENDED, 0),
    ("cut off", answer(finish="length"), Turn.ENDED, 0),
    ("for no reason", answer(finish="unknown"), Turn.ENDED, 0),
]


@pytest.mark.parametrize(
    ("last", "turn", "unsettled"), [one[1:] for one in TURNS], ids=[one[0] for one in TURNS]
)
def test_turns(last: Line, turn: Turn, unsettled: int) -> None:
    """S0.1: finished, and not for its tools' sake: ended; an error: failed; else open."""
    state = state_of(prompt(), last)
    assert (state.turn, state.unsettled) == (turn, unsettled)
    assert state_of(prompt(), last, prompt()).turn is Turn.OPEN


def test_what_may_still_change_is_unsettled() -> None:
    """Rows are rewritten in place: from the first unfinished answer on, texts may change."""
    busy = answer(finish=None, time={"created": START})
    assert state_of(prompt(), answer(), busy, prompt("queued")).unsettled == 2
    assert state_of(prompt(), busy, prompt(), answer()).unsettled == 0  # one of a process that died
    assert state_of(prompt(), busy, prompt(), busy, prompt()).unsettled == 4
    assert state_of(message("user", [])).unsettled == 1
    compacting = answer(summary=True, finish=None, time={"created": START})
    assert state_of(prompt(), answer(), compacting).unsettled == 1


def test_activity_is_the_newest_word() -> None:
    """The newest message of a human or a model; a note of the machine is no activity."""
    note = message("user", [text("Continue", synthetic=True)], time={"created": START + 10**9})
    done = answer(time={"created": START + 5, "completed": START + 10**8})
    assert state_of(prompt(), done, note).activity_ms == START + 10**8
    assert state_of().activity_ms == 0


# -- compactions ---------------------------------------------------------------------------------


def test_a_summary_is_a_compaction_once_it_is_finished() -> None:
    """S3.10, formats.md 4.6: unfinished or failed, it does not cut."""
    marker = message("user", [{"type": "compaction", "auto": False}])
    summary = answer("## Goal\n…", summary=True, parentID=marker["id"])
    state = state_of(prompt(), answer(), marker, summary)
    assert kinds(state)[2:] == [Kind.OTHER, Kind.COMPACTION]
    assert (state.compactions, state.turn, state.user_messages()) == (1, Turn.ENDED, 1)
    for more in ({"error": True}, {"finish": None, "time": {"created": START}}):
        assert state_of(prompt(), answer(), marker, summary | more).compactions == 0

    held = entry(summary | {"parent": [{"type": "compaction", "tail_start_id": "msg_000001"}]})
    assert (held.kind, held.texts) == (Kind.COMPACTION, ("## Goal\n…",))
    assert held.details == {"kept": "msg_000001"}
    assert entry(summary).details == {"kept": None}
    assert (entry(marker).kind, entry(marker).type) == (Kind.OTHER, "compaction")


# -- what was done -------------------------------------------------------------------------------

PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-x
*** Add File: new.py
+y
*** Delete File: old.py
*** End Patch"""

TOOLS: list[tuple[Line, tuple[str, ...], tuple[str, ...], str]] = [
    (tool("read", filePath="/w/a"), ("/w/a",), (), "/w/a"),
    (tool("read", path="/w/a"), ("/w/a",), (), "/w/a"),
    (tool("write", filePath="/w/a", content="c"), (), ("/w/a",), "/w/a"),
    (tool("edit", path="/w/a"), (), ("/w/a",), "/w/a"),
    (tool("multiedit", filePath="/w/a"), (), ("/w/a",), "/w/a"),
    (tool("apply_patch", patchText=PATCH), (), ("src/a.py", "src/b.py", "new.py", "old.py"),
     "src/a.py, src/b.py, new.py, old.py"),
    (tool("bash", command="ls", description="list"), (), (), "ls"),
    (tool("grep", pattern="x", path="/w"), (), (), "x"),
    (tool("read", "error", filePath="/w/a"), (), (), "/w/a"),
    (tool("write", "running", filePath="/w/a"), (), (), "/w/a"),
    (tool("invalid", tool="edit", filePath="/w/a"), (), (), "/w/a"),
    (tool("edit", filePath=["/w/a"]), (), (), ""),
    (tool("write") | {"state": {"status": "pending", "input": '{"fi'}}, (), (), ""),
]  # fmt: skip


@pytest.mark.parametrize(("part", "reads", "writes", "detail"), TOOLS)
def test_tools_and_the_files_they_touched(
    part: Line, reads: tuple[str, ...], writes: tuple[str, ...], detail: str
) -> None:
    """formats.md 4.7: every call counts; one that failed did nothing to any file."""
    patch = {"type": "patch", "files": ["/w/changed-by-a-shell-command"]}
    held = entry(message("assistant", [text("t"), part, patch]))
    call = part.get("callID", "")
    assert held.tools == (ToolCall(part["tool"], detail, call, reads, writes),)


def test_tokens_and_model() -> None:
    """formats.md 4.7: of the message, not of its steps; a cost only where there is one."""
    counted = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 7, "write": 3}}
    step = {"type": "step-finish", "tokens": counted}
    paid = answer(modelID="m-1", providerID="p", tokens=counted, cost=0.25)
    held = entry(paid | {"parts": [text("hi"), step]})
    assert held.tokens == Tokens(10, 5, 7, 3, 0.25, total=25)
    assert (held.model, held.details) == ("m-1", {"provider": "p", "stopReason": "stop"})
    apart = entry(answer(tokens=counted | {"total": 27}, cost={"usd": 1}))
    assert apart.tokens == Tokens(10, 7, 7, 3, None, total=27)
    none = {"input": 0, "output": 0, "cache": {"read": 0, "write": 0}}
    assert entry(answer(tokens=none, cost=0)).tokens is None
    assert entry(prompt(modelID="m-1")).model is None


def test_texts_are_what_was_said() -> None:
    """S0.12: a human's words without what was put beside them, an answer without its thoughts."""
    parts = [
        {"type": "reasoning", "text": "hm"},
        text("one"),
        tool("read", filePath="/a"),
        text("put beside", synthetic=True),
        text(" "),
        text("two \ud83d"),
    ]
    for role in ("user", "assistant"):
        held = entry(message(role, parts))
        assert held.texts == ("one", "two \ufffd")
        assert (held.type, held.role) == ("message", role)
    quoted = entry(prompt('"a b"'))
    assert quoted.texts == ('"a b"',)
    assert quoted.timestamp.startswith("2026-11-")
    assert entry(prompt(time={}, at=START)).timestamp == iso_of_ms(START)
    failed = entry(answer(error={"name": "E", "message": "went wrong"}))
    assert failed.details["errorMessage"] == "went wrong"
    for bad in (b"", b"[]", b"{"):
        with pytest.raises(ValueError):
            read(bad, "msg_1")


# -- version 2 -----------------------------------------------------------------------------------


def test_the_rows_of_version_2() -> None:
    """formats.md 4.8: only `user` is human; `idle` says that the agent stopped."""
    open_answer = answer(finish="tool-calls")
    lines = [
        message("user", [text("prompt")]),
        open_answer,
        message("synthetic", [text("injected", synthetic=True)]),
        message("system", [text("rules")]),
        message("shell", command="ls", output="a"),
        message("model-switched", modelID="m-2", providerID="p"),
        message("compaction", [text("S")], status="completed", recent="R"),
        message("compaction", [text("S")], status="running"),
        message("new-in-2.1"),
    ]
    state = state_from(session(schema=2), *lines)
    assert kinds(state) == [
        Kind.USER,
        Kind.ASSISTANT,
        Kind.CUSTOM,
        Kind.SYSTEM,
        Kind.BASH,
        Kind.SETTING,
        Kind.COMPACTION,
        Kind.OTHER,
        Kind.OTHER,
    ]
    assert state.turn is Turn.OPEN
    for outcome, turn in (("succeeded", Turn.ENDED), ("interrupted", Turn.FAILED)):
        idle = message("idle", outcome=outcome)
        assert state_from(session(schema=2), *lines[:2], idle).turn is turn
        busy = answer(finish=None, time={"created": START})
        stopped = state_from(session(schema=2), lines[0], busy, idle)
        assert (stopped.turn, stopped.unsettled) == (turn, 0)
        again = [*lines[:2], message("user", [text("more")]), idle]
        assert state_from(session(schema=2), *again).turn is Turn.OPEN
    assert entry(lines[4]).texts == ("$ ls\na",)
    assert (entry(lines[5]).model, entry(lines[5]).details["modelId"]) == ("m-2", "m-2")
    assert entry(lines[6]).texts == ("S",)
    assert entry(lines[6]).details["retained"] == [{"role": "user", "text": "R"}]
    assert entry(lines[2]).type == "synthetic"


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


def taken(source: Source, path: str) -> tuple[SessionState, Callable[[int], Entry]]:
    """A session's state out of its store, and its entries by row."""
    state = SessionState(path)
    for one in source.tail().read(path).lines:
        assert isinstance(one, Block)
        skim(state, one.data, one.offset)

    def of_row(row: int) -> Entry:
        with source.lines(path) as lines:
            return read(lines.at(state.offsets[row], state.lengths[row]), state.id(row))

    return state, of_row


@pytest.mark.shared
def test_real_sessions_are_what_was_sent(tmp_path: Path) -> None:
    """S3.9: prompts on the path, names, parents and files equal what the driver sent."""
    if not REAL.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    for file in REAL.glob("opencode.db*"):
        shutil.copy(file, tmp_path)
    rows = json.loads((REAL.parent / "truth.json").read_text())
    truth = {row["session_id"]: row for row in rows if row["agent"] == "opencode"}
    compared = 0
    for found in opencode_db.Database(str(tmp_path / "opencode.db")).sessions():
        state, entry_of = taken(opencode_db, found.path)
        assert state.header is not None
        row = truth.pop(state.header.session_id, None)
        path = [(at, entry_of(at)) for at in state.path()]
        assert all(one.kind is state.kind(at) or state.kind(at) is Kind.TOOL for at, one in path)
        if row is None:
            assert (state.header.subagent, state.user_messages()) == (True, 0)
            continue
        prompts = [one.text for at, one in path if state.kind(at) is Kind.USER]
        assert [one.strip('"') for one in prompts] == row["user_messages"]
        assert row["n_user"] == state.user_messages()
        assert row.get("name") in (None, state.name)
        assert state.archived == (row["label"] == "archived")
        assert state.compactions == row.get("compactions", 0)
        assert state.turn is (Turn.FAILED if row["label"] == "interrupted" else Turn.ENDED)
        assert state.unsettled == 0
        deeds = Deeds()
        for at, one in path:
            if state.kind(at) in (Kind.USER, Kind.ASSISTANT):
                deeds.add(one, state.header.cwd)
        facts = deeds.facts()
        written = [*row["files_edited"], *row["files_written"]]
        changed = {f"{state.header.cwd}/{name}" for name in written}
        assert set(facts.files_modified) == changed
        assert sum(dict(facts.tools_used).values()) == row["n_tool_calls"]
        seen = {f"{state.header.cwd}/{name}" for name in row["files_read"]} - changed
        assert set(facts.files_read) == {name for name in seen if "NOPE" not in name}
        if row["label"] == "fork_before_user5":
            assert (state.notes["fork_of"], state.header.parent_id) == (
                "Forecast cache design",
                None,
            )
        compared += 1
    assert compared == 12
    assert [row["label"] for row in truth.values()] == ["deleted"]


@pytest.mark.shared
def test_public_sessions_have_as_many_humans(tmp_path: Path) -> None:
    """The public collection: human messages on the current path, by its own manifest."""
    if not PUBLIC.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    counted: dict[str, int] = {}
    for version in ("v1", "v2"):
        copy = shutil.copytree(PUBLIC / "synthetic" / version, tmp_path / version)
        for found in opencode_db.Database(f"{copy}/opencode.db").sessions():
            state, _ = taken(opencode_db, found.path)
            counted[f"{version} {found.path[-2:]}"] = state.user_messages()
    for name in ("storage_v2", "storage_legacy"):
        copy = shutil.copytree(PUBLIC / "agent-sessions" / name, tmp_path / name)
        for found in opencode_tree.Tree(str(copy)).sessions():
            state, _ = taken(opencode_tree, found.path)
            assert state.header is not None
            counted[state.header.session_id] = state.user_messages()
    assert counted == {
        **{f"v1 0{n}": count for n, count in enumerate((2, 0, 1, 1, 2), 1)},
        "v2 AA": 2,
        "ses_s_stage0_small": 1,
        "ses_s_stage0_large": 2,
        "ses_s_stage0_drift": 1,
    }


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

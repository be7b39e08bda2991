"""opencode's sessions: which messages are human, where the history ends, what was done."""

from __future__ import annotations

import pytest

from indexerd.agents import Adapter, opencode
from indexerd.agents.opencode import preview
from indexerd.events import Kind, Turn
from indexerd.sessions.state import NOWHERE
from indexerd.times import iso_of_ms
from tests.agents.opencode_records import (
    START,
    Line,
    answer,
    entry,
    kinds,
    message,
    prompt,
    session,
    state_from,
    state_of,
    text,
    tool,
)

ADAPTER: Adapter = opencode
DEFAULT = "New session - 2026-03-01T09:01:40.000Z"


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

"""Claude Code's files: any split, the header, titles, odd bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents.claude import preview, read, resume_command
from indexerd.events import Kind, Turn
from indexerd.sessions.state import SessionState
from indexerd.sources import lines as lines_module
from tests.agents.claude_files import (
    FILE,
    MISSING,
    answer,
    answers,
    attachment,
    bare,
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


def small_session() -> bytes:
    """Two turns, the first with a tool and a queued prompt, a compaction, titles."""
    return b"".join(
        [
            bare(type="custom-title", customTitle="Fïrst", sessionId="s1"),
            bare(type="queue-operation", operation="enqueue", timestamp="2026-01-01T00:00:00Z"),
            user("u1", None, "first ünï"),
            call("a1", "u1", "t1", name="Read", file_path="/w/a.py"),
            result("r1", "a1", "t1"),
            attachment("q1", "r1", "queued_command", prompt="and that"),
            answer("a2", "q1", "done"),
            b"{torn\n",
            summary("c1", "a2"),
            user("u2", "c1", "second"),
            answer("a3", "u2", stop=None),
            bare(type="ai-title", aiTitle="later"),
        ]
    )


SMALL = small_session()


@given(st.lists(st.integers(0, len(SMALL)), max_size=8))
def test_any_split_gives_the_same_state(cuts: list[int]) -> None:
    """F1: each line counts once, even if it was cut inside a character."""
    whole = state_of(SMALL)
    assert state_of(SMALL, cuts=cuts, asleep=True).encode() == whole.encode()
    assert (whole.user_messages(), whole.bad_lines, whole.name) == (3, 1, "Fïrst")


# -- the header ----------------------------------------------------------------------------------


def test_the_file_names_the_session_not_its_lines() -> None:
    """formats.md 2.1: copied lines keep the old session's id; the file's stem is its own."""
    state = state_of(user("u1", None, "hi", sessionId="old"), file="/p/-w/new.jsonl")
    assert state.header is not None
    assert (state.header.session_id, state.header.version) == ("new", 1)
    assert state.header.parent is None


def test_bookkeeping_alone_makes_no_session_but_counts() -> None:
    """What stands before the first line of a conversation keeps its ordinals, title and time."""
    early = bare(type="mode", mode="normal") + bare(
        type="queue-operation", timestamp="2025-01-01T00:00:00.000Z"
    )
    early += bare(type="custom-title", customTitle="Named")
    assert state_of(early).header is None
    state = state_of(early + user("u1", None, "hi", cwd="") + answer("a1", "u1"))
    assert state.header is not None
    assert state.header.created_at == "2025-01-01T00:00:00.000Z"
    assert state.header.cwd == "/w"  # the first that is there
    assert (list(state.ordinals), state.name) == ([3, 4], "Named")


def test_files_of_other_programs_are_no_sessions() -> None:
    """S1.3: lines without a conversation's fields, an array, a document of many lines."""
    other = bare(provider="claude", session={}, event={}) + bare(type="message", message={})
    other += b'{"loglines": [\n{"type":"user",\n' + bare(type="session", id="x", version=3)
    state = state_of(other)
    assert state.header is None
    assert (len(state), state.bad_lines) == (0, 2)


@pytest.mark.parametrize(
    ("file", "parent"),
    [
        ("/p/-w/1234/subagents/agent-a1.jsonl", "1234"),
        ("/p/-w/1234/subagents/workflows/wf/agent-a1.jsonl", "1234"),
        ("/p/-w/agent-a1.jsonl", "s1"),
        ("/p/-w/5678.jsonl", "s1"),
    ],
)
def test_a_sub_agents_file_names_its_parent_and_has_no_human(file: str, parent: str) -> None:
    """formats.md 2.3, 2.5: its first prompt is the parent's; its path is followed all the same."""
    data = user("u1", None, "do it", isSidechain=True)
    data += call("a1", "u1", "t1", name="Edit", file_path="/w/x").replace(b"false", b"true", 1)
    data += result("r1", "a1", "t1").replace(b"false", b"true", 1)
    asked = state_of(data[: data.index(b"\n") + 1], file=file)
    data += answer("a2", "r1", "did it", isSidechain=True)
    state = state_of(data, file=file)
    assert state.header is not None
    assert (state.header.subagent, state.header.parent_id) == (True, parent)
    assert (state.users, state.first_user, asked.turn) == (0, "", Turn.OPEN)
    assert (answers(data, state), state.turn) == (["did it"], Turn.ENDED)


def test_a_file_that_seemed_a_sub_agents_is_its_own_once_it_speaks_for_itself() -> None:
    """Sidechain lines may come first; then nothing of theirs counts."""
    side = user("x1", None, "helper", isSidechain=True) + answer("x2", "x1", isSidechain=True)
    state = state_of(side + user("u1", MISSING, "hi") + answer("a1", "u1"))
    assert [state.id(row) for row in state.path()] == ["u1", "a1"]
    assert state.header is not None
    assert (state.header.subagent, state.header.parent_id) == (False, None)
    assert (state.messages, state.assistants, state.user_messages()) == (2, 1, 1)
    assert state.notes["first"] == "u1"


def test_a_copy_is_younger_than_its_origin() -> None:
    """S1.16: by `requestSessionId`, by the lines' session id, by the background's mark."""
    early, late = "2026-03-01T09:00:00.000Z", "2026-03-01T10:00:00.000Z"
    start = user("u1", None, "hi", timestamp=early)
    origin = state_of(start + answer("a1", "u1", timestamp=late))
    old = start + answer("a1", "u1", timestamp=late)
    copies = [
        start + answer("a1", "u1", timestamp=late, requestSessionId="s0"),
        old.replace(b'"s1"', b'"s0"'),
        user("u1", None, "hi", timestamp=early, sessionKind="bg"),
        bare(type="queue-operation", timestamp=late) + start,
    ]
    for data in copies:
        copy = state_of(data + user("u2", "u1", "more"))
        assert copy.born_ms > origin.born_ms
        assert copy.notes["first"] == origin.notes["first"] == "u1"


# -- titles --------------------------------------------------------------------------------------

BASE = user("u1", None, "hi") + answer("a1", "u1")


def test_the_users_title_wins_over_any_later_one() -> None:
    """formats.md 2.6: newest of its kind, and the best kind; a blank one clears its own kind."""
    custom = [bare(type="custom-title", customTitle=name) for name in ("one", "t\nwo", " ")]
    ai = bare(type="ai-title", aiTitle="made")
    agent = bare(type="agent-name", agentName="agent")
    assert state_of(BASE + agent).name == "agent"
    assert state_of(BASE + agent + ai).name == "made"
    assert state_of(BASE + custom[0] + custom[1] + ai + agent).name == "t wo"
    assert state_of(BASE + custom[0] + ai + custom[2]).name == "made"
    assert state_of(BASE + ai + bare(type="ai-title", aiTitle=7)).name == "made"


def test_a_summary_names_only_the_session_whose_message_it_names() -> None:
    """formats.md 2.5: most summaries describe another session, wherever they stand."""
    own, foreign = (bare(type="summary", summary=f"of {x}", leafUuid=x) for x in ("a1", "zz"))
    assert state_of(foreign + BASE + foreign).name is None
    assert state_of(BASE + own).name == "of a1"
    assert state_of(foreign + own + BASE).name == "of a1"  # it stood above


def test_rename_is_heard_where_nothing_else_names() -> None:
    """formats.md 2.6: the argument of /rename in a local command."""
    told = "<command-name>/rename</command-name><command-args>Kiwi</command-args>"
    data = BASE + line("system", "y1", "a1", subtype="local_command", content=told)
    assert state_of(data).name == "Kiwi"
    assert state_of(data + bare(type="agent-name", agentName="better")).name == "better"
    other = told.replace("rename", "model")
    assert state_of(BASE + line("system", "y1", "a1", content=other)).name is None


# -- odd bytes -----------------------------------------------------------------------------------


def test_damage_loses_its_own_line_only() -> None:
    """F3, F4, F5, F6, F7: what is no object is counted; line ends and half emojis do no harm."""
    bad = [b"{torn", b"[" * 100_000, b"null", b"[1]", b'"x"', b"42", b"{} {}", b"\0" * 50]
    data = b"\xef\xbb\xbf" + user("u1", None, "cut \ud83d").replace(b"\n", b"\r\n")
    data += b"\n".join(bad) + b"\n \n" + answer("a1", "u1", "line\u2028sep")
    state = state_of(data)
    assert (state.bad_lines, len(state)) == (len(bad), 2)
    assert (state.first_user, state.turn) == ("cut \ufffd", Turn.ENDED)
    assert list(state.ordinals) == [0, 1]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    """F4: the line stays."""
    data = user("u1", None, "caf?").replace(b"caf?", b"caf\xff")
    assert state_of(data).first_user == "caf\ufffd"


def test_fields_of_another_type_read_as_absent() -> None:
    """The line stays in the tree, whatever its values are."""
    data = BASE + line("user", "u2", "a1", message="error")
    data += line("user", "u3", "a1", message={"content": 5}, isMeta="no", gitBranch=7)
    data += user("u4", "a1", ["bare words", 3, {"type": "text", "text": ["x"]}], origin="human")
    data += line("assistant", "a2", "u4", message={"stop_reason": 4, "id": [], "content": {}})
    data += attachment("q1", "a2", "queued_command", prompt={"a": 1}, commandMode=[])
    data += line("system", "y1", 7, subtype={}, compactMetadata="x")  # type: ignore[arg-type] # odd
    state = state_of(data)
    assert (state.bad_lines, len(state)) == (0, 8)
    assert prompts(data, state) == ["hi", "bare words"]
    assert state.turn is Turn.OPEN
    assert state.path()[-1] == state.row("a2")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda some: (
        st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=5), some, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *("type", "uuid", "parentUuid", "message", "attachment", "timestamp", "sessionId"),
        *("isSidechain", "isMeta", "origin", "subtype", "compactMetadata", "logicalParentUuid"),
        *("toolUseResult", "leafUuid", "summary", "customTitle"),
    ]
)
WORDS = st.sampled_from(
    ["user", "assistant", "system", "attachment", "u1", "u2", "u3", "compact_boundary", "summary"]
)
MESSAGE = st.fixed_dictionaries({"content": JSON}, optional={"id": WORDS, "stop_reason": JSON})
ODD = st.dictionaries(KEYS, WORDS | MESSAGE | JSON, max_size=8)


@given(st.lists(ODD | st.binary(max_size=60), max_size=12))
def test_nothing_in_a_file_raises(odd: list[Any]) -> None:
    """F4: whatever the lines hold, the state can be stored, walked and read."""
    rows = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in odd]
    data = BASE + b"\n".join(rows) + b"\n"
    state = state_of(data)
    assert SessionState.decode(state.encode()).encode() == state.encode()
    assert not state.cycles()
    entries(data, state)


def test_a_line_too_long_to_hold_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: of a picture, a result and an answer the ends tell enough; an id may be lost."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 5000)
    monkeypatch.setattr(lines_module, "END_KEPT", 700)
    picture = [{"type": "text", "text": "Look"}, {"type": "image", "source": {"data": "x" * 9000}}]
    block = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "y" * 9000}
    data = user("u1", None, picture) + call("a1", "u1", "t1")
    both = line("user", None, "a1", message={"role": "user", "content": [block]})
    data += both[:-2] + b',"uuid":"r1","toolUseResult":{"stdout":"' + b"z" * 9000 + b'"}}\n'
    data += answer("a2", "r1", "w" * 9000) + user("u2", "a2", "next")
    state = state_of(data, cuts=range(0, len(data), 333))
    assert state.oversized == 0
    assert prompts(data, state) == ["Look", "next"]
    assert answers(data, state) == ["w" * 9000]
    assert [state.kind(row) for row in state.path()] == [
        *(Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.ASSISTANT, Kind.USER)
    ]
    assert state.id(state.path()[2]) != "r1"  # it stood between two long values
    assert (state.user_messages(), state.first_user, state.bad_lines) == (2, "Look", 0)
    asleep = state_of(data, cuts=range(0, len(data), 901), asleep=True)
    assert asleep.encode() == state.encode()
    monkeypatch.setattr(lines_module, "READ_MAX", 6000)
    unread = state_of(data)
    assert (unread.oversized, [bool(one) for one in unread.lengths].count(False)) == (3, 3)
    assert unread.ids == state.ids


def test_ids_of_a_line_too_long_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: what a tool's result holds may look like the line's fields."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 5000)
    monkeypatch.setattr(lines_module, "END_KEPT", 700)
    gave = result("r1", "a1", "t1")
    inner = b'"toolUseResult":{"log":"' + b"z" * 9000 + b'","uuid":"inner","parentUuid":"x"'
    head, _, tail = gave.partition(b'"message"')
    gave = head + b'"message"' + tail.replace(b'"toolUseResult":{"stdout":"r"', inner)
    data = user("u1", None, "hi") + call("a1", "u1", "t1")
    data += gave.replace(b'"type":"user"', b'"type":"user","uuid":"r1"', 1).replace(
        b',"uuid":"r1","message"', b',"message"'
    )
    state = state_of(data + answer("a2", "r1"))
    assert [state.id(row) for row in state.path()] == ["u1", "a1", "r1", "a2"]


def test_a_prompt_of_many_megabytes_is_read_in_full() -> None:
    """F8: its place is kept with its length, and its text without the picture; so of a summary."""
    source = {"type": "base64", "media_type": "image/png", "data": "A" * (9 << 20)}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    before = user("u0", None, "hi")
    huge = user("u1", "u0", content)
    data = before + huge + answer("a1", "u1", "A cat.")
    data += boundary("b1", "a1") + summary("s1", "b1", "cat " * (9 << 18))
    state = state_of(data, cuts=range(0, len(data), 1 << 20))
    row = state.row("u1")
    assert row is not None
    assert (state.offsets[row], state.lengths[row]) == (len(before), len(huge) - 1)
    assert (state.oversized, prompts(data, state)) == (0, ["hi", "What is it?"])
    assert len(entries(data, state, Kind.COMPACTION)[0].text) > 9 << 20


def test_reading_refuses_what_is_no_entry() -> None:
    """The only error there is."""
    for data in (b"", b"{torn", b"[1]", b"null"):
        with pytest.raises(ValueError, match="not an object"):
            read(data, "x")


# -- for the user --------------------------------------------------------------------------------


def test_preview_is_one_line_without_what_was_put_around() -> None:
    """S0.46: reminders and an editor's notes are nobody's words; secrets are not shown."""
    notes = "<system-reminder>a\nb</system-reminder>\n<ide_opened_file>c</ide_opened_file>"
    assert preview(f"{notes}\nfix\nit <system-reminder>d</system-reminder>") == "fix it"
    assert preview("<system-reminder>alone</system-reminder>") != ""
    assert "sk-ant" not in preview("use sk-ant-api03-" + "a1B2" * 24)
    assert len(preview("word " * 500)) <= 200


def test_resume_command_quotes_and_names_the_parent_of_a_sub_agent() -> None:
    """The command survives spaces; a sub-agent's session cannot be resumed, its parent's can."""
    assert resume_command("s 1", "/a b", FILE) == "cd '/a b' && claude --resume 's 1'"
    assert resume_command("s1", "", FILE) == "claude --resume s1"
    child = "/p/-w/1234/subagents/agent-a1.jsonl"
    assert resume_command("agent-a1", "/w", child) == "cd /w && claude --resume 1234"

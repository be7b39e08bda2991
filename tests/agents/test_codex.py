"""Codex's rollouts, rule by rule: whose they are, who said what, which turn it was."""

from __future__ import annotations

from typing import Any

import pytest

from indexerd.agents import codex
from indexerd.events import Base, Kind, Turn
from tests.agents.codex_files import (
    FILE,
    OTHER,
    STAMP,
    THREAD,
    answer,
    call,
    done,
    entries,
    event,
    item,
    line,
    meta,
    output,
    said,
    state_of,
    talk,
    texts,
    turn,
    user,
)

ENVIRONMENT = "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"


# -- whose file it is --------------------------------------------------------------------------


def test_the_first_meta_is_the_files_identity() -> None:
    """S3.3: id, directory, branch and time come from it; later ones bring news, or are copies."""
    news = meta(cwd="/moved", git={"branch": "b2"})
    state = state_of(meta(git={"branch": "b1"}), meta(OTHER, cwd="/no"), talk("t", "hi"), news)
    header = state.header
    assert header is not None
    assert (header.session_id, header.cwd, header.created_at) == (THREAD, "/moved", STAMP)
    assert (state.git_branch, header.parent_id, header.subagent) == ("b2", OTHER, False)
    assert (len(state), state.seen) == (4, 6)  # both events that double something take an ordinal


def test_forks_and_helpers_name_where_they_come_from() -> None:
    """S3.18: forked_from_id, or the thread that spawned it; who asks is told by the source."""
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": OTHER, "depth": 1}}}
    cases: list[tuple[dict[str, Any], str | None, bool]] = [
        ({"forked_from_id": OTHER, "source": "cli"}, OTHER, False),
        ({"source": spawn, "session_id": OTHER}, OTHER, True),
        ({"source": "vscode", "thread_source": "user"}, None, False),
        ({"source": "cli", "thread_source": "memory_consolidation"}, None, True),
        ({"source": {"subagent": "review"}}, None, True),
        ({"source": {"custom": "mine"}}, None, False),
        ({"source": 5, "thread_source": 5, "git": 5, "history_base": 5}, None, False),
    ]
    for fields, parent, helper in cases:
        state = state_of(meta(**fields), talk("t", "hi"))
        assert state.header is not None
        assert (state.header.session_id, state.header.parent_id) == (THREAD, parent)
        assert state.header.subagent is helper
        assert state.user_messages() == (0 if helper else 1)
        assert state.first_user == "hi"


def test_a_bare_file_is_known_by_its_first_line_or_its_name() -> None:
    """formats.md 3.1: the oldest files have no envelope; their directory is in a message."""
    bare = (
        line(record_type="state"),
        line(
            type="message",
            role="user",
            content=[{"type": "input_text", "text": text} for text in (CONTEXT[1], ENVIRONMENT)],
        ),
        line(type="message", role="user", content=[{"type": "input_text", "text": "old"}]),
        line(type="message", role="assistant", content=[{"type": "output_text", "text": "ok"}]),
    )
    first = line(id=OTHER, timestamp=STAMP, instructions=None)
    for begun, thread in ((first, OTHER), (b"", THREAD)):
        state = state_of(begun, *bare)
        assert state.header is not None
        assert (state.header.session_id, state.header.cwd) == (thread, "/w")
        assert (state.user_messages(), state.turn, state.leaf_id) == (1, Turn.ENDED, "L3")
    unknown = state_of(*bare, file="/x/notes.jsonl")
    assert unknown.foreign
    assert unknown.header is None
    segment = f"/x/rollout-2026-03-01T09-00-00-{THREAD}_{OTHER}.jsonl"
    named = state_of(*bare, file=segment).header
    assert named is not None
    assert named.session_id == THREAD


def test_history_in_another_file_is_named_by_the_first_line() -> None:
    """formats-observed.md: a fork of the newest dialect only points at what it shares."""
    held = {"thread_id": OTHER, "end_ordinal_exclusive": 5, "end_byte_offset": 700}
    assert codex.base(meta(history_base=held).rstrip(b"\n")) == Base(OTHER, 700)
    for wrong in (None, {}, held | {"end_byte_offset": True}, held | {"thread_id": 1}):
        assert codex.base(meta(history_base=wrong)) is None
    assert codex.base(talk("t", "hi").partition(b"\n")[0]) is None
    assert codex.base(b"{not json") is None


def test_borrowed_history_comes_first_and_the_chain_goes_on() -> None:
    """S3.6: rows of the base keep their ids and marks; name, branch and identity are the fork's."""
    renamed = event("thread_name_updated", thread_id=OTHER, thread_name="parent's")
    state = state_of(meta(OTHER, git={"branch": "old"}), talk("t1", "one"), renamed)
    assert state.name == "parent's"
    base_ids = list(state.ids)
    state.borrowed("/base.jsonl")
    state_of(meta(forked_from_id=OTHER), talk("t2", "two"), state=state)
    assert state.header is not None
    assert (state.header.session_id, state.header.parent_id) == (THREAD, OTHER)
    assert [state.name, state.git_branch] == [None, ""]
    assert state.ids[: len(base_ids)] == base_ids
    assert len(set(state.ids)) == len(state.ids) == len(state.path())
    assert (state.user_messages(), state.new_user_messages("t1"), state.leaf_id) == (2, 1, "t2")
    assert (state.file_of(0), state.file_of(len(base_ids))) == ("/base.jsonl", FILE)


# -- who said what -----------------------------------------------------------------------------


def test_each_message_counts_once() -> None:
    """S3.4: what is stored as an item and as an event is one row, whichever came first."""
    twice = event("agent_message", message="a")
    for lines in (
        (user("q"), said("q"), answer("a"), twice),
        (said("q"), user("q"), twice, answer("a")),
        (
            user("q"),
            done("UserMessage", id="i", content=[{"type": "Text", "text": "q"}]),
            done("AgentMessage", content=[{"type": "Text", "text": "a"}]),
            answer("a"),
        ),
    ):
        state = state_of(meta(), *lines)
        assert texts(state, meta() + b"".join(lines)) == ["q"]
        assert (state.users, state.assistants, state.messages, len(state)) == (1, 1, 2, 2)


def test_an_event_decides_for_its_turn() -> None:
    """S3.4: where one tells of a message, an item counts only if one confirms it; else all do."""
    items = user("once"), answer("a"), user("handed in by a program"), user("by hand")
    data = meta() + b"".join(items)
    assert texts(state_of(data), data) == ["once", "handed in by a program", "by hand"]
    data += (
        said("by hand")
        + answer("b")
        + user("again by a program")
        + done("UserMessage", content=[{"type": "Text", "text": "only an event"}])
    )
    state = state_of(data, cuts=range(0, len(data), 50), stored=True)
    assert texts(state, data) == ["once", "by hand", "only an event"]
    assert (state.first_user, state.users) == ("once", 3)
    assert state.encode() == state_of(data).encode()


def test_an_item_that_no_event_tells_of_counts_once_it_is_answered() -> None:
    """S3.4: of its turn the newest does, unless it is all in a tag, as programs write."""
    tagged = user("<news>\nby a program\n</news>")
    for inside, count in (
        ((user("by hand"), answer("b")), 2),
        ((user("by hand"), call(), output("ok"), answer("b")), 2),
        ((user("of a kind to come"), user("by hand"), answer("b")), 2),
        ((said("by hand"), user("of a kind to come"), answer("b")), 2),
        ((user("by hand"), said("by hand"), user("of a kind to come"), answer("b")), 2),
        ((tagged, answer("b")), 1),
        ((user("unanswered"),), 1),
    ):
        lines = (meta(), talk("t1", "first"), turn("t2", *inside))
        state = state_of(*lines)
        assert state.user_messages() == count
        assert texts(state, b"".join(lines)) == ["first", "by hand"][:count]


CONTEXT = [
    ENVIRONMENT,
    "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nbe brief\n</INSTRUCTIONS>",
    "<user_instructions>be kind</user_instructions>",
    "<skill>\n<name>x</name>\n</skill>",
    "<skill>one</skill> and <skill>another</skill>",
    "  <user_shell_command>\n<command>ls</command>\n</user_shell_command>\n",
    "<turn_aborted>\nThe user interrupted\n</turn_aborted>",
    "<SUBAGENT_NOTIFICATION>{}</subagent_notification>",
    "<recommended_plugins>x</recommended_plugins>",
    '<hook_prompt hook_run_id="1">go on</hook_prompt>',
    '<codex_internal_context source="goal">x</codex_internal_context>',
    "<goal_context>x</goal_context>",
    "<extension_context>x</extension_context>",
    "<external_mail>x</external_mail>",
    "Warning: The maximum number of unified exec processes you can keep open is 60",
    "Warning: apply_patch was requested via x. Use the apply_patch tool instead of exec_command.",
    "Warning: Your account was flagged for potentially high-risk cyber activity and",
    "Another language model started to solve this problem and left a summary.\nHANDOFF",
]


ABORTED = next(text for text in CONTEXT if text.startswith("<turn_aborted>"))


@pytest.mark.parametrize("text", CONTEXT)
def test_context_is_no_human_message(text: str) -> None:
    """formats.md 3.7: what codex adds under the user's role; one such block is enough."""
    for blocks in ((text,), ("a real question", text)):
        state = state_of(meta(), user("first"), user(*blocks))
        assert (state.user_messages(), state.kind(1)) == (1, Kind.OTHER)
    for near in (f"see: {text}", text.strip()[:-3] if text.strip()[0] == "<" else f"> {text}"):
        assert state_of(meta(), user("first"), user(near)).user_messages() == 2


def test_a_prompt_behind_context_is_found() -> None:
    """formats.md 3.7: in the first message a prompt may stand behind, or beside, the context."""
    for blocks in ((ENVIRONMENT, CONTEXT[1], "do it"), (f"{ENVIRONMENT}\n\n{CONTEXT[1]}do it",)):
        data = meta() + user(*blocks)
        assert texts(state_of(data), data) == ["do it"]
        assert state_of(data).first_user == "do it"


def test_an_editors_frame_and_images_are_taken_off() -> None:
    """formats.md 3.7: the request behind its mark is what was said; an image alone is one."""
    framed = (
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\n fix\n"
    )
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    tags = [{"type": "input_text", "text": one} for one in ("<image name=[Image #1]>", "</image>")]
    pictured = item("message", role="user", content=[tags[0], image, tags[1]])
    assert texts(state_of(meta(), pictured), meta() + pictured) == ["[Image]"]
    data = meta() + user(framed) + said(framed) + pictured
    data += event("user_message", message="", images=["data:image/png;base64,AAAA"])
    state = state_of(data)
    assert texts(state, data) == ["fix", "[Image]"]
    assert state.first_user == codex.preview(framed) == "fix"


def test_a_prompt_that_codex_repeats_after_an_interruption_counts_once() -> None:
    """formats.md 3.7: the first prompt may come again, verbatim; another one is a new one."""
    lines = (meta(), user("start"), user(ABORTED), user("start"), answer("a"))
    assert state_of(*lines).user_messages() == 1
    assert state_of(*lines, user("start")).user_messages() == 2
    assert state_of(meta(), user("start"), user(ABORTED), user("go on")).user_messages() == 2


def test_names_tokens_and_activity_are_the_newest() -> None:
    """S3.3, S3.11: codex's own name, its running sum of tokens, the time of the last message."""
    usage = {"input_tokens": 30, "cached_input_tokens": 20, "output_tokens": 5}
    late = line(
        "response_item",
        {"type": "message", "role": "user", "content": "x"},
        timestamp="2026-03-02T00:00:00.000Z",
    )
    state = state_of(
        meta(),
        late,
        user("y"),
        event("thread_name_updated", thread_id=THREAD, thread_name="A\nname"),
        event("thread_name_updated", thread_id=OTHER, thread_name="of a parent"),
        event("token_count", info={"total_token_usage": usage}),
        event("token_count", info=None),
    )
    assert state.name == "A name"
    assert state.notes["tokens"] == {"input": 30, "cached": 20, "output": 5}
    assert state.activity_ms == 1_772_409_600_000


# -- compactions, reading ------------------------------------------------------------------------


def test_a_compaction_is_its_summary_and_what_it_keeps() -> None:
    """S3.5: the prefix goes, the history it brings is not counted, and is kept as it is."""
    prefix = CONTEXT[-1].partition("\n")[0]
    told = [("user", "q"), ("user", ENVIRONMENT), ("assistant", "a"), ("user", f"{prefix}\nSUM")]
    kept = [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        for role, text in told
    ]
    lines = (
        meta(),
        turn("t1", user("q"), said("q"), answer("a")),
        turn("t2", answer("SUM"), line("compacted", {"message": f"{prefix}\nSUM"})),
        line("compacted", {"message": "", "replacement_history": [*kept, 5, None]}),
    )
    state = state_of(*lines)
    assert (state.user_messages(), state.assistants, state.messages) == (1, 1, 2)
    first, second = [one for one in entries(state, b"".join(lines)) if one.kind is Kind.COMPACTION]
    assert first.texts == ("SUM",)
    assert "retained" not in first.details
    assert second.texts == ()
    assert second.details["retained"] == [
        {"role": "user", "text": "q", "human": True},
        {"role": "user", "text": ENVIRONMENT},
        {"role": "assistant", "text": "a"},
        {"role": "user", "text": f"{prefix}\nSUM"},
    ]
    own = codex.read(
        line("compacted", {"message": f"{prefix}\nSUM", "replacement_history": kept}), ""
    )
    assert own.details["retained"] == second.details["retained"]


def test_a_marked_summary_is_no_answer() -> None:
    """formats-observed.md: the newest dialect marks the answer that is a compaction's summary."""
    answered = line(
        "response_item",
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "S"}]},
        metadata={"compaction_output": True},
    )
    assert state_of(meta(), user("q"), answered).assistants == 0


def test_resume_command_quotes() -> None:
    """S3.13: the resume command survives spaces and quotes."""
    assert codex.resume_command("abc", "/a b", "/x.jsonl") == "cd '/a b' && codex resume abc"
    assert codex.resume_command("abc", "", "") == "codex resume abc"

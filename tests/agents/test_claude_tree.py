"""The tree of Claude Code's lines: branches, parallel tools, compaction and repeated lines."""

from indexerd.entries import Compaction, Kind, Turn
from indexerd.sessions.context import context_entries
from indexerd.sessions.state import SessionState
from tests.agents.claude_files import (
    MISSING,
    answer,
    answers,
    attachment,
    boundary,
    call,
    entries,
    line,
    prompts,
    queued,
    result,
    state_of,
    summary,
    user,
)


def path(state: SessionState) -> list[str]:
    return [state.ids[row] for row in state.path()]


def test_bookkeeping_lines_do_not_move_the_leaf() -> None:
    """The leaf stays while only attachments, system lines and commands are added."""
    data = user("u1", None, "one") + attachment("e1", "u1", "environment") + answer("a1", "e1")
    assert path(state_of(data)) == ["u1", "e1", "a1"]
    for more in (
        attachment("s1", "a1", "prompt_snapshot"),
        line("system", "s2", "s1", subtype="turn_duration"),
        user("s3", "s2", "<command-name>/model</command-name>"),
        user("s4", "s3", "<local-command-stdout>Set</local-command-stdout>"),
        line("progress", "s5", "s4", data={}),
        line("last-prompt", None, MISSING, leafUuid="s5"),
    ):
        data += more
        state = state_of(data)
        assert (state.leaf_id, state.turn) == ("a1", Turn.ENDED)
    state = state_of(data + user("u2", "s5", "two"))
    assert path(state) == ["u1", "e1", "a1", "s1", "s2", "s3", "s4", "u2"]
    assert state.new_user_messages("a1") == 1
    assert len(state.tips()) == 1


PARALLEL = [
    answer("k1", "u1", "I look.", stop="tool_use", message="m"),
    call("k2", "k1", "t1", message="m"),
    call("k3", "k2", "t2", message="m"),
]


def test_a_result_between_lines_of_an_answer() -> None:
    """The next line may name any sibling: texts and results stay on the path."""
    last = answer("k4", "k2", "And more.", stop="tool_use", message="m")
    for named in ("r1", "r2", "k4"):
        data = user("u1", None, "one") + b"".join(PARALLEL[:2]) + result("r1", "k2", "t1")
        data += PARALLEL[2] + last + result("r2", "k3", "t2") + answer("a2", named, "seen")
        state = state_of(data + user("u2", "a2", "two"))
        assert answers(data) == ["I look.", "And more.", "seen"]
        assert path(state) == ["u1", "k1", "k2", "r1", "k3", "k4", "r2", "a2", "u2"]


def test_a_prompt_after_parallel_results_keeps_queued_ones() -> None:
    """A prompt below an entry of the newest turn is not a rewind."""
    data = user("u1", None, "one") + b"".join(PARALLEL) + result("r1", "k2", "t1")
    data += queued("q1", "r1", "and this") + result("r2", "k3", "t2")
    data += user("u2", "r1", "two")
    assert prompts(data) == ["one", "and this", "two"]
    data += answer("a2", "u2") + user("u3", "r1", "instead of two")
    assert prompts(data)[-1] == "instead of two"
    assert "two" not in prompts(data)


def test_a_skills_text_within_a_turn_begins_none() -> None:
    """A prompt below progress of the turn's first call goes on, as below the call itself."""
    data = user("u1", None, "one") + call("k1", "u1", "t1", name="Agent")
    data += line("progress", "p1", "k1", data={}) + result("r1", "k1", "t1")
    data += call("k2", "r1", "t2", name="Skill") + result("r2", "k2", "t2")
    data += user("s1", "r2", "# How to draw", isMeta=True, sourceToolUseID="t2")
    data += answer("a1", "s1") + line("progress", "p2", "p1", data={})
    state = state_of(data + user("u2", "p2", "two"))
    assert path(state) == ["u1", "k1", "r1", "k2", "r2", "s1", "a1", "u2"]


def test_an_answer_may_stand_before_the_summary_that_it_names() -> None:
    """Some name the row before the boundary instead."""
    for named, shown in (("c1", ["b1", "a2", "c1", "a3"]), ("a1", ["a2", "c1", "a3"])):
        data = user("u1", None, "one") + answer("a1", "u1") + boundary("b1", "a1")
        data += answer("a2", named, "Hm.", message="m") + summary("c1", "b1")
        data += answer("a3", "a2", "Done.", message="m")
        state = state_of(data)
        assert path(state) == ["u1", "a1", *shown]
        assert state.compactions == 1


def test_a_reply_to_a_question_is_activity() -> None:
    data = user("u1", None, "one") + call("k1", "u1", "t1", name="AskUserQuestion")
    before = state_of(data).activity_ms
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "blue"}
    asked = {"questions": [{"question": "Which?"}], "answers": {"Which?": "blue"}}
    data += user("r1", "k1", [block], toolUseResult=asked)
    assert state_of(data).activity_ms > before


def test_a_session_is_as_old_as_its_first_message() -> None:
    """Resumed, it may begin with newer lines of the queue."""
    first = user("u1", None, "one")
    data = line("queue-operation", None, MISSING, operation="enqueue") + first
    header = state_of(data).header
    assert header
    assert f'"timestamp":"{header.created_at}"'.encode() in first


def test_missing_parents_do_not_cut_the_path() -> None:
    """formats.md 2.4: progress lines get lost; a missing parent means the last leaf.

    S1.13, S0.9: after a rewind only the new prompt is on the path and counted.
    """
    data = user("u1", None, "one") + answer("a1", "lost1", "first")
    data += user("u2", "lost2", "two") + answer("a2", "u2")
    assert prompts(data) == ["one", "two"]
    data += user("u3", "lost2", "instead of two")
    state = state_of(data)
    assert prompts(data) == ["one", "instead of two"]
    assert answers(data) == ["first"]
    assert state.abandoned("a2")
    assert (state.new_user_messages("a1"), state.new_user_messages("a2")) == (1, 2)


def test_a_file_without_parents_is_read_in_order() -> None:
    """Older and foreign writers omit parents, or write null; ids may be missing, too."""
    for parent in (None, MISSING):
        data = user("u1", parent, "one") + answer("a1", parent)
        data += user("c1", parent, "<command-name>/model</command-name>")
        data += user("u2", parent, "two")
        state = state_of(data)
        assert path(state) == ["u1", "a1", "c1", "u2"]
        plain = state_of(data.replace(b'"uuid"', b'"was"'))
        assert (path(plain), plain.first) == (["L0", "L1", "L2", "L3"], "")


def test_inline_sub_agents_are_rows_off_the_path() -> None:
    """formats.md 2.1: before 2.0 they were in the parent's file; none of it counts."""
    data = user("u1", None, "one") + call("k1", "u1", "t1", name="Task")
    data += user("x1", None, "helper", isSidechain=True)
    data += answer("x2", "x1", "helped", isSidechain=True)
    data += result("r1", "k1", "t1") + answer("a1", "r1")
    state = state_of(data)
    assert path(state) == ["u1", "k1", "r1", "a1"]
    assert (len(state), state.messages, state.user_messages()) == (6, 4, 1)
    before = state_of(data[: data.index(b'"r1"')].rpartition(b"\n")[0] + b"\n")
    assert before.leaf_id == "k1"
    astray = data + answer("a2", "x2", "on from the helper's line")
    assert path(state_of(astray))[-2:] == ["a1", "a2"]


def test_a_prompt_recorded_twice_counts_once() -> None:
    """formats.md 2.3: as a queued command and as a user line, in either order."""
    start = user("u1", None, "one") + call("k1", "u1", "t1") + result("r1", "k1", "t1")
    waiting = queued("q1", "r1", "go on", timestamp="2025-05-05T00:00:00Z")
    sent = [
        user("u2", "q1", "go on", promptSource="queued"),
        user("u2", "q1", "go on"),  # in the same turn
        user("u2", "q1", "go on", timestamp="2025-05-05T00:00:00Z"),
    ]
    for again in sent:
        state = state_of(start + waiting + again + answer("a1", "u2"))
        assert state.user_messages() == 2
    for again in (sent[0], sent[2]):  # a turn later
        data = start + waiting + answer("a1", "q1") + again
        assert state_of(data).user_messages() == 2
        once_more = user("u9", "u2", "go on", promptSource="queued")
        assert state_of(data + once_more).user_messages() == 3
    first = user("u2", "r1", "go on", promptSource="queued") + queued("q1", "u2", "go on")
    assert state_of(start + first).user_messages() == 2
    typed_twice = user("u2", "r1", "go on") + queued(
        "q1", "u2", "go on"
    )  # the first one was not queued
    assert state_of(start + typed_twice).user_messages() == 3


TALK = user("u1", None, "one") + answer("a1", "u1", "A1") + user("u2", "a1", "two")
TALK += answer("a2", "u2", "A2")


def test_a_compaction_continues_the_path() -> None:
    """Its boundary follows the last message, and its summary names the first kept one."""
    segment = {"headUuid": "u2", "anchorUuid": "c1", "tailUuid": "a2"}
    data = TALK + boundary("b1", "a2", preservedSegment=segment) + summary("c1", "b1")
    state = state_of(data)
    assert (state.leaf_id, state.kind(state.leaf), state.turn) == (
        *("c1", Kind.COMPACTION),
        Turn.ENDED,
    )
    data += user("u3", "c1", "three")
    state = state_of(data)
    assert prompts(data) == ["one", "two", "three"]
    (compaction,) = entries(data, Kind.COMPACTION)
    assert (compaction.id, compaction.compaction) == ("c1", Compaction(kept="u2", tokens_before=9))
    assert compaction.text.endswith("It was about X.")
    assert state.new_user_messages("a2") == 1


def test_a_compaction_goes_on_after_a_prompt_was_taken_back() -> None:
    """It follows the path's end, or the abandoned branch if its boundary names that."""
    lost = user("u3", "a2", "three")
    again = user("v3", "a2", "three") + answer("a3", "v3", "A3")
    answered = lost + answer("x3", "u3", "X3")
    late = b"".join(user(f"w{n}", f"w{n - 1}" if n else "a3", f"w{n}") for n in range(3))
    for began, then, named, counted in (
        *((lost, b"", "a3", 4), (answered, b"", "a3", 4), (answered, b"", "x3", 4)),
        *((answered, late, "w2", 7), (answered, late, "x3", 4), (answered, late, None, 7)),
        (answered, late + line("system", "s1", "w2", subtype="turn_duration"), "s1", 7),
    ):
        end = boundary("b1", named) + summary("c1", "b1") + user("u4", "c1", "four")
        state = state_of(TALK + began + again + then + end)
        assert (state.user_messages(), state.leaf_id) == (counted, "u4")


def test_a_notice_takes_no_prompt_back() -> None:
    """A task's end that names an earlier answer goes to the path's end."""
    notice = user("n1", "a1", "<task-notification>\n<task-id>b8</task-id>\n</task-notification>")
    data = TALK + notice + answer("a3", "n1", "A3")
    assert (prompts(data), answers(data)) == (["one", "two"], ["A1", "A2", "A3"])


def test_an_answer_may_hold_the_result_of_a_tool() -> None:
    """Some providers search the web themselves, within an answer."""
    found = {"type": "tool_result", "tool_use_id": "t1", "content": "A page"}
    data = user("u1", None, "go") + answer("a1", "u1", [found, {"type": "text", "text": "Seen."}])
    (entry,) = entries(data, Kind.ASSISTANT)
    assert (entry.role, entry.text) == ("assistant", "Seen.")
    assert [each.text for each in entry.results] == ["A page"]


def test_a_compaction_that_names_bookkeeping_written_before_its_answer() -> None:
    """A hook's line may stand before the answer that it names: the answer stays on the path."""
    early = line("system", "s1", "a3", subtype="stop_hook_summary")
    data = TALK + user("u3", "a2", "three") + early + answer("a3", "u3", "A3")
    data += boundary("b1", "s1") + summary("c1", "b1") + user("u4", "c1", "four")
    assert prompts(data) == ["one", "two", "three", "four"]
    assert answers(data) == ["A1", "A2", "A3"]


def test_a_new_context_continues_the_path() -> None:
    """Old versions write no boundary; a plan may be carried out in a new context."""
    data = TALK + summary("c1", None) + user("u3", "c1", "three") + answer("a3", "u3", "A3")
    state = state_of(data)
    assert prompts(data) == ["one", "two", "three"]
    assert state.kind(state.path()[4]) is Kind.COMPACTION
    plan = user("p1", None, "Implement the following plan:\n\n# Retry", planContent="# Retry")
    data += plan + answer("a4", "p1", "A4")
    state = state_of(data)
    assert answers(data) == ["A1", "A2", "A3", "A4"]
    by_id = {entry.id: entry for entry in entries(data, *Kind)}
    context = context_entries(state, lambda row: by_id[state.ids[row]])
    assert [each.entry.id for each in context] == ["p1", "a4"]


def test_messages_logged_again_after_a_compaction_count_once() -> None:
    """formats.md 2.4: the same ids with new parents, or new ids with the same times."""
    kept = {"headUuid": "u2", "tailUuid": "a2"}
    data = TALK + boundary("b1", "a2", preservedSegment=kept) + summary("c1", "b1")
    at = TALK.split(b"\n")[2].partition(b'"timestamp":"')[2][:24].decode()
    for again in (
        user("u2", "c1", "two", timestamp=at) + answer("a2", "u2", "A2"),
        user("v2", "c1", "two", timestamp=at) + answer("v3", "v2", "A3"),
    ):
        last = "a2" if b'"a2"' in again else "v3"
        whole = data + again + user("u3", last, "three") + answer("a3", "u3", "A3")
        state = state_of(whole)
        assert prompts(whole) == ["one", "two", "three"]
        assert state.user_messages() == 3
        assert state.path()[-3] > state.row("c1")  # type: ignore[operator]  # the copy
    assert answers(whole)[:2] == ["A1", "A2"]


def test_a_kept_message_that_is_logged_only_below_its_summary() -> None:
    """A boundary may name a message below its own summary: no cycle."""
    kept = {"uuids": ["a1", "u2", "a2"], "anchorUuid": "c1"}
    early = TALK[: TALK.index(b'"a2"')].rpartition(b"\n")[0] + b"\n"
    data = early + boundary("b1", "a2", preservedMessages=kept) + summary("c1", "b1")
    data += answer("a2", "c1", "A2") + user("u3", "a2", "three")
    state = state_of(data)
    assert path(state) == ["u1", "a1", "u2", "b1", "c1", "a2", "u3"]
    assert not state.cycles


def test_a_repeated_line_is_read_once_in_its_newest_form() -> None:
    """formats.md 2.4: the same id in the same place; a broken first copy is ignored."""
    data = user("u1", None, "one") + line("user", "u2", "u1", message="error")
    data += user("u2", "u1", "two")
    assert state_of(data).leaf_id == "u2"
    data += answer("a1", "u2") + answer("a1", "u2")
    state = state_of(data)
    assert (prompts(data), state.messages, len(state)) == (["one", "two"], 3, 3)
    assert list(state.ordinals) == [0, 1, 3]


def test_a_plugin_that_observes_a_session_is_no_person() -> None:
    """claude-mem's sessions are sub-agents', called by the request that they are about."""
    asked = "<ide_opened_file>x</ide_opened_file>\nFix the login"
    seen = f"<observed_from_primary_session>\n  <user_request>{asked}</user_request>\n"
    data = user("u1", None, f"Hello memory agent.\n\n{seen}</observed_from_primary_session>")
    folder = "/home/u/.claude/projects/-home-u--claude-mem-observer-sessions"
    state = state_of(data + answer("a1", "u1"), file=f"{folder}/s1.jsonl")
    assert state.header is not None
    assert state.header.subagent
    assert (state.user_messages(), state.first_prompt) == (0, "Fix the login")

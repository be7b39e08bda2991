"""Codex turns: open, ended, failed or rolled back, and the leaf that results."""

import pytest

from indexerd.entries import Kind, Turn
from indexerd.sessions.facts import file_lists
from tests.agents.codex_files import (
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


def turns(*lines: bytes) -> list[Turn]:
    data = b"".join(lines)
    ends = [n + 1 for n, byte in enumerate(data) if byte == ord("\n")]
    return [state_of(data[:end]).turn for end in ends]


def test_a_turn_ends_with_its_event() -> None:
    """S0.1: an answer between tool calls leaves it open; the next prompt opens it again."""
    first = turn("t1", user("q"), answer("wait"), call(), output("ok"), answer("done"))
    second = event("task_started", turn_id="t2"), user("more"), answer("I will")
    assert turns(meta(), first, *second) == [*[Turn.OPEN] * 8, *[Turn.ENDED] * 2, *[Turn.OPEN] * 2]


@pytest.mark.parametrize(
    ("inside", "end", "how"),
    [
        ((user("q"), answer("a")), event("turn_aborted", turn_id="t"), Turn.FAILED),
        ((user("q"), call(), output("aborted by user")), event("turn_aborted"), Turn.FAILED),
        ((user("q"),), event("error", message="no"), Turn.FAILED),
        ((user("q"), event("error")), event("task_complete", turn_id="t"), Turn.FAILED),
        ((user("q"),), event("turn_complete", turn_id="t", error={"message": "x"}), Turn.FAILED),
        ((user("q"), call(), output("x")), event("task_complete", turn_id="t"), Turn.ENDED),
    ],
)
def test_a_turn_can_end_without_an_answer(inside: tuple[bytes], end: bytes, how: Turn) -> None:
    """S0.1, S0.2, S0.5: an abort or error fails it; an end without text is no answer."""
    data = meta() + event("turn_started", turn_id="t") + b"".join(inside)
    assert state_of(data).turn in (Turn.OPEN, how)
    state = state_of(data + end)
    assert state.turn is how
    assert state.leaf_id == "t"
    context, begun = line("turn_context", {"turn_id": "t"}), event("task_started", turn_id="t")
    assert state_of(meta(), context, *inside[:1], begun, *inside[1:], end).turn is how
    answers = sum(b'"assistant"' in line for line in inside)
    assert (state.answered, state.messages) == (answers > 0, 1 + answers)


def test_an_old_answer_ends_its_turn_unless_a_call_waits() -> None:
    """formats.md 3.1: in files without turn events an answer ends the turn."""
    assert turns(meta(), user("q"), answer("a"), call("c1"), output("r"), answer("b"))[2:] == [
        Turn.ENDED,
        Turn.OPEN,
        Turn.OPEN,
        Turn.ENDED,
    ]
    back = user("r"), call(), event("thread_rolled_back", num_turns=1)
    assert state_of(meta(), user("q"), answer("a"), *back).turn is Turn.ENDED
    waiting = state_of(meta(), user("q"), call("c1"), answer("while it runs"))
    assert waiting.turn is Turn.OPEN
    assert state_of(meta(), user("q"), answer("so far", phase="commentary")).turn is Turn.OPEN
    assert state_of(meta(), user("q"), item("web_search_call"), answer("a")).turn is Turn.ENDED


def test_the_leaf_is_the_newest_turn() -> None:
    """S3.6: its id, also while it is open; new messages are those of later turns."""
    begun = event("task_started", turn_id="t3") + user("three")
    state = state_of(meta(), talk("t1", "one"), talk("t2", "two"), begun, said("three"))
    assert state.leaf_id == "t3"
    assert [state.new_user_messages(name) for name in ("t1", "t2", "t3", "t9")] == [2, 1, 0, 3]
    steered = state_of(meta(), talk("t1", "one"), begun, said("three"), user("and"), said("and"))
    assert (steered.user_messages(), steered.new_user_messages("t1")) == (3, 2)


def test_without_turn_ids_the_leaf_is_a_line_number() -> None:
    """S3.6: `L<line>` only if the file, or its last part, has no turn ids."""
    old = meta() + user("one") + answer("a")
    assert state_of(old).leaf_id == "L1"
    assert state_of(old, user("two")).new_user_messages("L1") == 1
    mixed = state_of(meta(), talk("t1", "one"), user("two"), said("two"), answer("b"))
    assert mixed.leaf_id == mixed.ids[4]
    assert mixed.new_user_messages("t1") == 1
    assert mixed.new_user_messages(mixed.leaf_id) == 0
    named = event("task_complete", turn_id="t8")
    assert state_of(meta(), user("one"), answer("a"), named).leaf_id == "t8"
    context = line("turn_context", {"turn_id": "t1", "cwd": "/x"})
    assert state_of(meta(), context, user("one"), answer("a")).leaf_id == "t1"
    paged = done("UserMessage", content=[{"type": "text", "text": "one"}])
    assert state_of(meta(), user("one"), paged, answer("a")).leaf_id == "t"


def test_a_rollback_moves_the_leaf_to_before_the_turn() -> None:
    """formats.md 3.8: the newest remaining turns are removed; later ones follow."""
    back = event("thread_rolled_back", num_turns=1)
    three = meta() + talk("t1", "one") + talk("t2", "two") + talk("t3", "three")
    assert (state_of(three, back).leaf_id, state_of(three, back).user_messages()) == ("t2", 2)
    assert state_of(three, back).turn is Turn.ENDED
    assert state_of(three, back).new_user_messages("t3") == 2  # the indexed turn was rolled back
    twice = state_of(three, back, back)
    assert (twice.leaf_id, twice.new_user_messages("t1")) == ("t1", 0)
    data = three + back + talk("t4", "four") + event("thread_rolled_back", num_turns=2)
    data += talk("t5", "five")
    assert texts(data) == ["one", "five"]
    assert state_of(data).parents[state_of(data).row("t5") or 0] >= 0
    assert len(state_of(data).tips()) == 3


@pytest.mark.parametrize(("text", "failed"), [
    ("error: Failed to find expected lines in /w/a.py:\nx", True),
    ("error: invalid hunk at line 6, Expected update hunk to start with a @@", True),
    ("error: this is what a program wrote", False),
    ("exec_command failed for `/bin/bash -lc 'rm a'`: CreateProcess { }", True),
    ("Command: sh -c 'rg x\ny'\nChunk ID: 1\nWall time: 0 s\nProcess exited with code 1", True),
    ("Command: sh -c 'rg x'\nChunk ID: 1\nWall time: 0 s\nProcess exited with code 0", False),
])  # fmt: skip
def test_a_call_failed_if_its_output_says_so(text: str, failed: bool) -> None:
    assert bool(entries(meta(), user("q"), call(), output(text))[-1].failed) is failed


@pytest.mark.parametrize(("printed", "shown"), [
    ('{"output":"a\\nb\\n","metadata":{"exit_code":1}}', "a\nb\n"),
    ('{"output":"a"}', '{"output":"a"}'),
    ('{"output":"a","metadata":{"exit', '{"output":"a","metadata":{"exit'),
])  # fmt: skip
def test_a_result_is_shown_as_it_was_printed(printed: str, shown: str) -> None:
    """Many versions stored it with its exit code, as a string; the model gets that."""
    result = entries(meta(), user("q"), call(), output(printed))[-1]
    assert (result.texts, result.results[0].text) == ((shown,), shown)
    assert result.as_sent == (printed,)
    assert bool(result.failed) is ("exit_code" in printed)


def test_a_recorded_patch_counts_by_its_record() -> None:
    """A call names files relative to the shell's directory, a record by whole paths."""
    patch = "*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch\n"
    asks = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c1", "input": patch}
    change = {"type": "FileChange", "id": "c1", "changes": {"/w/sub/a.py": {}}}
    record = {"type": "item_completed", "item": change | {"status": "completed"}}
    for ordinal, files in (({"ordinal": 1}, ("/w/sub/a.py",)), ({}, ("/w/sub/a.py", "a.py"))):
        asked, done = line("response_item", asks, **ordinal), line("event_msg", record, **ordinal)
        result = item("custom_tool_call_output", call_id="c1", output="ok")
        assert file_lists(entries(meta(), asked, result, done)).modified == files


def counted(tokens: int, newest: int) -> bytes:
    total, last = ({"input_tokens": count, "output_tokens": 1} for count in (tokens, newest))
    return event("token_count", info={"total_token_usage": total, "last_token_usage": last})


def test_a_review_is_no_prompt_and_has_its_own_sums() -> None:
    """S3.11: Codex writes the prompt of `/review` twice, and returns to the sums before it."""
    asked = said("Review the changes against the base branch 'main'.")
    inside = (asked, asked, counted(300, 300), counted(700, 400))
    review = (event("entered_review_mode"), *inside, event("exited_review_mode"))
    data = meta() + turn("t1", user("go"), said("go"), answer("ok"), counted(1000, 600))
    state = state_of(data, *review, answer("two findings"), counted(1000, 600), counted(1500, 500))
    assert state.tokens is not None
    assert state.tokens[0] == 1000 + 700 + 500
    kinds = [state.kind(row) for row in state.path()]
    assert (kinds.count(Kind.USER), kinds.count(Kind.CUSTOM)) == (1, 1)
    cut_short = state_of(data, *review[:-1], user("go on"), said("go on"), counted(1000, 600))
    assert (cut_short.user_messages(), cut_short.tokens) == (2, (1700, 2, 0, 0))


def test_a_picture_that_the_agent_looks_at_is_no_prompt() -> None:
    seen = item("message", role="user", content=[{"type": "input_image", "image_url": "data:"}])
    looks = (call(name="view_image"), output("attached local image path"), seen)
    state = state_of(meta(), turn("t1", user("go"), said("go"), *looks, answer("ok")))
    assert state.user_messages() == 1
    assert state_of(meta(), turn("t1", seen, answer("ok"))).user_messages() == 1

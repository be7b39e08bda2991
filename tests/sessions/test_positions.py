"""Segments: positions in every agent's files, names that stay, and chains."""

from __future__ import annotations

from typing import Any

from indexerd.digests.segments import Segment, chain
from indexerd.events import Kind, code
from indexerd.sessions.positions import message_rows, name_at, rows_between
from indexerd.sessions.state import SessionState
from tests.agents import claude_files, codex_files

USER, ANSWER = code(Kind.USER, message=True), code(Kind.ASSISTANT, message=True)
TOOL, SETTING = code(Kind.TOOL, message=True), code(Kind.SETTING)


def straight(*codes: int) -> SessionState:
    state = SessionState()
    for n, packed in enumerate(codes):
        state.add(f"x{n}", f"x{n - 1}" if n else None, packed, 0, 1)
    return state


def segment(first: int, last: int, *, leaf: str | None = None, **more: Any) -> Segment:
    name = f"x{last}" if leaf is None else leaf
    about = {"id": f"s{first}-{last}", "content": "did it", "leaf_id": name, **more}
    return Segment(covering=(first, last), token_count=3, model="m", **about)


def ranges(found: list[Segment]) -> list[tuple[int, int]]:
    return [one.covering for one in found]


def test_user_and_assistant_messages_count_and_nothing_else() -> None:
    """interfaces.md 3: tools' results, settings and ends without a word have no position."""
    codes = [SETTING, USER, ANSWER, TOOL, ANSWER, code(Kind.ASSISTANT), code(Kind.BASH), USER]
    state = straight(*codes)
    assert message_rows(state) == [1, 2, 4, 7]
    assert message_rows(state, 3) == [1, 2]
    assert message_rows(SessionState()) == []


def test_an_answer_on_several_lines_counts_once() -> None:
    """Claude Code writes one answer as several lines; the next answer counts again."""
    talk = [
        claude_files.user("u1", None, "build it"),
        claude_files.answer("a1", "u1", "I will", stop="tool_use", message="m1"),
        claude_files.answer("a2", "a1", "look", stop="tool_use", message="m1"),
        claude_files.result("r1", "a2", "t1"),
        claude_files.answer("a3", "r1", "found", message="m2"),
        claude_files.line("attachment", "n1", "a3", attachment={"type": "note"}),
        claude_files.answer("a4", "n1", "done", message="m2"),
        claude_files.user("u2", "a4", "thanks"),
        claude_files.answer("e1", "u2", "overloaded", message="m3", isApiErrorMessage=True),
        claude_files.answer("a5", "e1", "welcome", message="m4"),
    ]
    state = claude_files.state_of(b"".join(talk))
    rows = message_rows(state)
    assert [state.id(row) for row in rows] == ["u1", "a1", "a3", "u2", "e1", "a5"]
    path = state.path()
    ids = [[state.id(row) for row in rows_between(path, rows, n, n)] for n in range(len(rows))]
    assert ids == [["u1"], ["a1", "a2", "r1"], ["a3", "n1", "a4"], ["u2"], ["e1"], ["a5"]]


def test_rows_belong_to_the_message_before_them() -> None:
    """What stands before the first message is its own; ranges meet and do not overlap."""
    state = straight(SETTING, USER, ANSWER, TOOL, USER, SETTING)
    path, rows = state.path(), message_rows(state)
    assert rows_between(path, rows, 0, 0) == [0, 1]
    assert rows_between(path, rows, 1, 1) == [2, 3]
    assert rows_between(path, rows, 1, 2) == [2, 3, 4, 5]
    assert rows_between(path, rows, 0, 99) == path
    assert rows_between(path, rows, 3, 3) == rows_between(path, rows, 2, 1) == []


def test_a_row_goes_by_its_turn_and_keeps_the_name_while_the_turn_grows() -> None:
    """S3.6: a turn's mark moves on with the turn; its rows are the turn's all the same."""
    state = straight(SETTING, USER)
    state.marks["t1"] = 1
    assert [name_at(state, row) for row in (0, 1)] == ["t1", "t1"]
    state.add("x2", "x1", ANSWER, 0, 1)
    state.marks["t1"] = 2
    state.add("x3", "x2", USER, 0, 1)
    state.marks["t2"] = 3
    assert [name_at(state, row) for row in range(4)] == ["t1", "t1", "t1", "t2"]


def test_another_turn_in_the_place_of_one_taken_back_is_not_summed_up() -> None:
    """S2.5: a segment that ended within a turn goes with it, though the turn before stays."""
    begun = codex_files.meta() + codex_files.talk("t1", "one")
    long = codex_files.turn(
        "t2", codex_files.user("two"), codex_files.said("two"), codex_files.answer("a")
    )
    state = codex_files.state_of(begun, long)
    rows = message_rows(state)
    made = [segment(0, n, leaf=name_at(state, row)) for n, row in enumerate(rows)]
    back = codex_files.event("thread_rolled_back", num_turns=1)
    other = codex_files.state_of(begun, long, back, codex_files.talk("t3", "three"))
    there = message_rows(other)
    assert len(there) == len(rows) == 4
    assert [ranges(chain(other, there, [one])) for one in made] == [[(0, 0)], [(0, 1)], [], []]

"""What the user says in tools' results: answers to questions, reasons to reject a call."""

import json
from typing import Any

import pytest

from indexerd.agents.replies import codex_answers, opencode_answers, questions_in
from indexerd.entries import Kind, ToolCall
from indexerd.web.story import asked
from tests.agents import claude_files as claude
from tests.agents import codex_files as codex
from tests.agents.feeding import entry_at, fed

WAL = {"label": "SQLite", "description": "WAL"}
FIRST = {"question": 'Which "db"?', "header": "Store", "id": "db", "options": [WAL]}
QUESTIONS: list[dict[str, Any]] = [FIRST, {"question": "Why?", "id": "why"}]
BOTH = "- Store: SQLite, WAL\n- Why?: It's small."
BY_ID = "- db: SQLite, WAL\n- why: It's small."
NO = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. …). "


def claude_line(said: str, *, error: bool = False, **stored: Any) -> bytes:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": said, "is_error": error}
    return claude.user("u2", "a1", [block], toolUseResult=stored or said)


CLAUDE = {"questions": QUESTIONS, "answers": {'Which "db"?': "SQLite, WAL", "Why?": "It's small."}}
CODEX = {"db": {"answers": ["SQLite", "WAL"]}, "why": {"answers": ["user_note: It's small."]}}


@pytest.mark.parametrize(
    ("agent", "line", "reply"),
    [
        ("claude", claude_line("User has answered your questions: …", **CLAUDE), BOTH),
        ("claude", claude_line(f"{NO}… the reason for the rejection:  A.\nB", error=True), "A.\nB"),
        ("claude", claude_line(f"{NO}… the user said:\nUse pip.", error=True), "Use pip."),
        ("claude", claude_line(f"{NO}the user said:\nThe user wants to clarify", error=True), ""),
        ("claude", claude_line(f"{NO}the user said:\nA file's words"), ""),
        ("claude", claude_line("x", answers=3, questions=QUESTIONS), ""),
        ("codex", codex.output(json.dumps({"answers": CODEX})), BY_ID),
        ("codex", codex.output('{"answers": [1]}'), ""),
        ("codex", codex.output("request_user_input is unavailable in Default mode"), ""),
    ],
)
def test_a_result_is_the_users_if_they_say_something(agent: str, line: bytes, reply: str) -> None:
    """The user then speaks in its row, but it is not a prompt."""
    data = (codex.meta() if agent == "codex" else claude.user("u1", None, "Hi")) + line
    state = fed(agent, data)
    row = len(state) - 1
    entry = entry_at(agent, state, data, row)
    assert (state.kind(row), entry.kind, entry.said) == (Kind.TOOL, Kind.TOOL, reply)
    assert state.speaker(row) == ("user" if reply else "")
    assert state.user_messages() == (agent == "claude")


def test_answers_in_opencode() -> None:
    """It stores lists of them, in the order of the questions."""
    metadata = {"answers": [["SQLite", "WAL"], ["It's small."], ["to what?"]]}
    assert opencode_answers({"input": {"questions": QUESTIONS}, "metadata": metadata}) == BOTH
    assert opencode_answers({"input": {"questions": 3}, "metadata": metadata}) == ""
    assert opencode_answers({"input": None, "metadata": {"answers": {}}}) == ""


def test_what_a_call_asks_is_shown() -> None:
    call = ToolCall("ask", arguments=json.dumps({"questions": QUESTIONS}))
    assert asked(call).startswith('Which "db"?\n\n- SQLite: WAL\n')
    for arguments in (None, "{", {"questions": "Why?"}, {"questions": [{}, 3]}):
        assert questions_in(arguments) == []
    assert codex_answers('{"answers":' * 100_000) == ""

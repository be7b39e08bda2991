"""What agents ask the user through tools, and what the user answers."""

import json
from typing import Any

import pytest

from indexerd.entries import ToolCall
from indexerd.web.questions import asked, questions_of, reply_in

WAL = {"label": "SQLite", "description": "WAL"}
ASKED: dict[str, Any] = {
    "questions": [
        {
            "question": 'Which "db"?',
            "header": "Store",
            "id": "db",
            "options": [WAL],
        },
        {"question": "Why?", "id": "why"},
    ]
}
BOTH = "- Store: SQLite, WAL\n- Why?: It's small."
NO = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. …). "


@pytest.mark.parametrize(
    ("result", "reply"),
    [
        ('You asked: "Which "db"?"="SQLite, WAL", "Why?"="It\'s small.". Go on.', BOTH),
        ('User has answered: "Why?"="It\'s "small".". Go on.', '- Why?: It\'s "small".'),
        (
            json.dumps(
                {
                    "answers": {
                        "why": {"answers": ["user_note: It's small."]},
                        "db": {"answers": ["SQLite", "WAL"]},
                    }
                }
            ),
            BOTH,
        ),
        (f"{NO}The user provided the following reason for the rejection:  Stop.\nA.", "Stop.\nA."),
        (f"{NO}To tell you how to proceed, the user said:\nUse pip.", "Use pip."),
        (f"{NO}the user said:\nThe user wants to clarify these questions.", ""),
        ("request_user_input is unavailable in Default mode", ""),
        ('{"answers": [1]}', ""),
    ],
)  # fmt: skip
def test_what_the_user_says_in_a_result(result: str, reply: str) -> None:
    """In the words of Claude Code, opencode and Codex."""
    call = ToolCall("ask", arguments=json.dumps(ASKED))
    assert reply_in(result, questions_of(call)) == reply
    assert asked(call).startswith('Which "db"?\n\n- SQLite: WAL\n')


def test_other_calls_ask_nothing() -> None:
    for arguments in (None, "{", {"questions": "Why?"}, {"questions": [{}, 3]}):
        assert questions_of(ToolCall("ask", arguments=arguments)) == []
    assert reply_in(f"See: {NO}the user said:\nNo.", []) == ""

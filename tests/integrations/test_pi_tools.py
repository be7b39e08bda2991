"""The tools that pi's extension offers, and `@@` in the editor; pi and the daemon are acted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integrations.acted_pi import Pi, needed
from tests.integrations.acting import Refusal, acting

pytestmark = needed

# -- tools ---------------------------------------------------------------------------------------

ANSWER = {
    "sessionId": "abc",
    "name": "The\nname",
    "answerMarkdown": "Because.",
    "confidence": "high",
    "citations": [{"entryId": "e1", "role": "user", "excerpt": "x" * 500}, "odd"] * 9,
    "notes": ["cut", 5],
    "usage": {"inputTokens": 5, "outputTokens": 6, "costUsd": 0.5},
}


def test_an_answer_is_text_with_citations(pi: Pi, socket: Path) -> None:
    """S0.60, S0.63, S0.66: heading, confidence, answer, at most 8 citations of 280, notes."""
    with acting(socket, query_session=ANSWER) as daemon:
        pi.start()
        pi.prompt("What did we do?")
        found = pi.tool("query_session", session="abc", question="why?")
        (asked,) = daemon.params("query_session")
        pi.ends()
    (said,) = found["content"]
    cited = f"- `e1` (user): {'x' * 279}…"
    assert said["text"].splitlines() == [
        "### Session: The name (`abc`)",
        "Confidence: **high**",
        "",
        "Because.",
        "",
        "Citations:",
        *[cited] * 8,
        "",
        "Notes:",
        "- cut",
        "- ",
    ]
    assert (asked["session"], asked["question"], asked["cwd"]) == ("abc", "why?", "/w")
    assert found["usage"]["cost"]["total"] == 0.5
    assert (found["usage"]["input"], found["usage"]["output"]) == (5, 6)
    assert found["details"]["sessionId"] == "abc"


def test_a_turn_is_one_run_of_the_agent(pi: Pi, socket: Path) -> None:
    """S0.64: the model's questions of one run have one turn's id, and the next has another."""
    with acting(socket, query_session=ANSWER, expand={}) as daemon:
        pi.start()
        for _ in range(2):
            pi.prompt("@@a")
            pi.tool("query_session", session="a", question="why?")
            pi.tool("query_session", session="b", question="why?")
        turns = [params["turnId"] for params in daemon.params("query_session")]
        pi.ends()
    assert turns == [turns[0]] * 2 + [turns[2]] * 2
    assert turns[0] != turns[2]


FAILURES: list[tuple[str, dict[str, Any], str]] = [
    ("not_found", {}, "SESSION_NOT_FOUND"),
    ("not_found", {"upstream": "SESSION_FILE_MISSING"}, "SESSION_FILE_MISSING"),
    ("ambiguous_reference", {"candidates": [{"sessionId": "x"}]}, "SESSION_AMBIGUOUS"),
    ("call_limit_exceeded", {}, "CALL_LIMIT_EXCEEDED"),
    ("session_empty", {}, "SESSION_EMPTY"),
    ("session_unreadable", {}, "SESSION_PARSE_FAILED"),
    ("model_unavailable", {}, "QUERY_MODEL_UNAVAILABLE"),
    ("model_output_invalid", {}, "QUERY_INVALID_OUTPUT"),
    ("timeout", {}, "QUERY_TRANSPORT_FAILED"),
    ("usage", {}, "INVALID_ARGS"),
    ("something", {}, "UNKNOWN_QUERY_SESSION_ERROR"),
]


def test_a_failed_question_says_why(pi: Pi, socket: Path) -> None:
    """S0.64: JSON of {code, message, details}; candidates are told."""

    def refuse(params: dict[str, Any]) -> Any:
        kind, more, _ = FAILURES[int(params["session"])]
        raise Refusal(kind, "that is why", hint="do this", **more)

    with acting(socket, query_session=refuse):
        pi.start()
        for number, (kind, more, code) in enumerate(FAILURES):
            found = pi.tool("query_session", session=str(number), question="why?")["error"]
            said = {key: value for key, value in more.items() if key != "upstream"}
            details = {"kind": kind, "hint": "do this", **said}
            assert found == {"code": code, "message": "that is why", "details": details}
        pi.ends()


def test_tools_without_a_daemon_fail_with_words(pi: Pi) -> None:
    """S0.64: the model is told; pi is not troubled."""
    pi.start()
    for name, params in (
        ("query_session", {"session": "a", "question": "why?"}),
        ("set_relevant_context", {"setName": "files", "items": []}),
        ("get_relevant_context", {}),
    ):
        error = pi.tool(name, **params)["error"]
        assert (error["code"], error["message"]) == (
            "QUERY_TRANSPORT_FAILED",
            "indexerd is not running",
        )
    pi.ends()


def test_context_tools_are_for_this_session(pi: Pi, socket: Path) -> None:
    """S4.9: this session's sets, whatever the model says; the daemon's words and warnings."""
    done = {"text": "Set odd: 1 items", "contextChanged": True, "setName": "odd", "warnings": ["w"]}
    context = {"text": "{}", "context": {}}
    with acting(socket, set_relevant_context=done, get_relevant_context=context) as daemon:
        pi.start()
        kept = pi.tool(
            "set_relevant_context", setName="odd", items=["a"], mode="merge", session="x"
        )
        held = pi.tool("get_relevant_context", setName="odd")
        asked = [params for _, params in daemon.asked[-2:]]
        pi.ends()
    assert kept["content"][0]["text"] == "Set odd: 1 items\nw"
    assert held["content"][0]["text"] == "{}"
    assert asked == [
        {"session": "s-1", "setName": "odd", "items": ["a"], "mode": "merge"},
        {"session": "s-1", "setName": "odd"},
    ]


# -- completion ----------------------------------------------------------------------------------

ITEM = {
    "sessionId": "abc",
    "label": "a \x1b]0;name",
    "age": "5m",
    "named": True,
    "insert": "@@abc ",
}


@pytest.mark.parametrize(
    ("texts", "prefix", "line"),
    [
        (("see @@", ""), "", "see @@abc "),
        (("@@conf", " now"), "conf", "@@abc now"),
        (('(@@"two words', '" now'), "two words", "(@@abc now"),
    ],
)
def test_sessions_complete_after_two_ats(
    pi: Pi, socket: Path, texts: tuple[str, str], prefix: str, line: str
) -> None:
    """S0.59: newest first without the current one; the whole id is inserted, with one blank."""
    bad = [ITEM | {"insert": insert} for insert in ("rm -rf", "@@a b ", "@@a\n", 5)]
    with acting(socket, complete={"items": [*bad, "odd", ITEM]}) as daemon:
        pi.start()
        answer = pi.do(type=texts[0], after=texts[1])
        (asked,) = daemon.params("complete")
        pi.ends()
    assert asked == {"prefix": prefix, "cwd": "/w", "exclude": "s-1"}
    shown = {"value": "@@abc ", "label": "a ]0;name", "description": "5m"}
    assert answer["found"]["items"] == [shown]
    assert answer["applied"] == {
        "lines": ["first", line],
        "cursorLine": 1,
        "cursorCol": line.index("@@abc ") + 6,
    }


def test_other_texts_are_pis_own(pi: Pi, socket: Path) -> None:
    """S0.59: files stay files."""
    with acting(socket) as daemon:
        pi.start()
        for typed in ("@", "see @file", "me@@x", "@@a b", "@@@"):
            assert pi.do(type=typed)["found"]["items"][0]["value"] == "@file"
        assert daemon.params("complete") == []
        pi.ends()


def test_completion_without_a_daemon_or_an_editor_is_pis_own(pi: Pi) -> None:
    """S0.59: as if the extension were not there."""
    pi.start(editor=False)
    pi.start()
    assert pi.do(type="@@a")["found"]["items"][0]["value"] == "@file"
    pi.ends()

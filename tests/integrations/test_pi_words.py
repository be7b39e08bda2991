"""Whose words refer to sessions in pi, and what the user hears of it; all others are acted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import until
from tests.integrations.acted_pi import BLOCK, Pi, greeting, needed
from tests.integrations.acting import Raw, acting

pytestmark = needed
ASKING = "⏳ asking..."
QUEUED = "@@… is expanded only in a prompt of its own"


# -- whose words ---------------------------------------------------------------------------------


def test_attached_files_are_not_sent(pi: Pi, socket: Path) -> None:
    """X10: `@@` in a file asks nothing, and costs nothing; the words after it are the user's."""
    file = '<file name="/w/notes.txt">\nfar @@there: what was decided?\n</file>\n'
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start()
        before = daemon.connections
        assert pi.prompt(f"{file}Please read it.") == []
        assert daemon.connections == before
        assert pi.prompt(f"{file}As in @@here.") == [BLOCK]
        (asked,) = daemon.params("expand")
        pi.ends()
    assert asked["text"].strip() == "As in @@here."
    assert pi.statuses == []


@pytest.mark.parametrize(
    ("typed", "prompt", "sent"),
    [
        ("/tpl @@mine", "A template of @@theirs: why? And @@mine.", "/tpl @@mine"),
        ("/skill:s @@mine", '<skill name="s">\n@@theirs\n</skill>\n\n@@mine', "/skill:s @@mine"),
        ("/tpl", "A template of @@theirs: why?", None),
        ("/unknown @@mine", "/unknown @@mine", "/unknown @@mine"),
        ("see @@mine", "see @@mine, which an extension wrote", "see @@mine, which an extension"),
    ],
)
def test_what_was_typed_is_what_refers(
    pi: Pi, socket: Path, typed: str, prompt: str, sent: str | None
) -> None:
    """X10: a template's or a skill's `@@` is not the user's; an argument is."""
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start()
        assert len(pi.prompt(prompt, typed)) == (sent is not None)
        texts = [one["text"] for one in daemon.params("expand")]
        pi.ends()
    assert len(texts) == (sent is not None)
    assert not sent or texts[0].startswith(sent)


def test_prompts_on_their_way_are_not_mixed_up(pi: Pi, socket: Path) -> None:
    """A second prompt may be typed before the first one is begun; an older pi tells of neither."""
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start()
        for text in ("first @@a", "/tpl @@b"):
            pi.input(text)
        for text in ("first @@a", "of a template: @@c and @@b", "untold @@d"):
            event = {"prompt": text}
            pi.do(emit="before_agent_start", event=event)
        texts = [one["text"] for one in daemon.params("expand")]
        pi.ends()
    assert texts == ["first @@a", "/tpl @@b", "untold @@d"]


def test_a_queued_message_is_told(pi: Pi, socket: Path) -> None:
    """S0.51: pi has no place for what a queued message refers to; the user hears of it."""
    with acting(socket, expand={"messages": [BLOCK]}) as daemon:
        pi.start()
        pi.input("no reference, a@b and a diff: @@ -1 +1 @@ x", queued="steer")
        pi.input('<file name="x">\n@@a\n</file>\n', queued="steer")
        assert pi.notices == []
        for queued in ("steer", "followUp"):
            pi.input('and see @@a, (@@"b c")', queued=queued)
        old = {"text": "see @@a", "source": "interactive"}
        for idle in (True, False):
            pi.do(emit="input", event=old, ctx={"idle": idle})
        pi.do(emit="input", event=old)
        assert daemon.params("expand") == []
        pi.ends()
    assert [one.startswith(QUEUED) for one in pi.notices] == [True] * 3


# -- what failed ---------------------------------------------------------------------------------

NEAR = [{"name": f"n\n{n}", "sessionId": f"s-{n}"} for n in range(6)]
FAILED: list[Any] = [
    {"raw": "@@ok", "status": "resolved"},
    {"raw": "@@nope\x1b[31m", "status": "not_found", "notes": ["try again"]},
    {"raw": "@@two", "status": "ambiguous", "candidates": NEAR},
    {"raw": "@@bad", "status": "invalid_meta"},
    {"raw": "@@many", "status": "over_limit"},
    {"raw": "@@asked", "status": "resolved", "questions": []},
]
QUESTIONS = [
    {"question": "a?", "status": "answered"},
    {"question": "b?", "status": "failed", "code": "model_unavailable", "message": "no\nmodel"},
]
TOLD = [
    "@@nope [31m: no such session",
    "@@nope [31m: try again",
    "@@two is ambiguous: n 0 (@@s-0); n 1 (@@s-1); n 2 (@@s-2); n 3 (@@s-3)",
    "@@bad: its meta file is invalid",
    "@@many: one reference too many",
    "@@asked: no model",
]


def test_what_failed_is_told_and_why(pi: Pi, socket: Path) -> None:
    """S0.51, S0.64: each reference and question that failed has a line; the status stays short."""
    FAILED[-1]["questions"] = QUESTIONS
    answer = {"messages": [BLOCK], "references": FAILED, "statusText": ["✅ resolved"]}
    with acting(socket, expand=answer):
        pi.start()
        assert pi.prompt("@@asked: b?") == [BLOCK]
        pi.ends()
    assert [one.splitlines() for one in pi.notices] == [TOLD]
    assert pi.statuses == [ASKING, "✅ resolved"]


def test_what_is_told_is_bounded(pi: Pi, socket: Path) -> None:
    """X9: few and short lines, whatever the answer holds; nothing where nothing failed."""
    long = [{"raw": f"@@{n}" + "x" * 999, "status": "not_found"} for n in range(50)]
    wide = [{"raw": "@@a", "status": "resolved", "notes": ["y" * 9999]}]
    odd: list[Any] = [None, 5, {}, {"questions": 5, "notes": 5, "status": "resolved"}]
    with acting(socket) as daemon:
        pi.start()
        for references in (long, wide, odd, "odd", [FAILED[0]], None):
            daemon.answers["expand"] = {"references": references}
            pi.prompt("@@a")
        pi.ends()
    many, one = (notice.splitlines() for notice in pi.notices)
    assert (len(many), many[-1]) == (8, "… and 43 more")
    assert max(map(len, many + one)) == 300


# -- how long ------------------------------------------------------------------------------------


def test_a_hung_daemon_is_asked_nothing_long(pi: Pi, socket: Path) -> None:
    """S0.51, S0.65: before a long wait the daemon is greeted, and one that is silent is left."""
    with acting(socket, expand=Raw(b""), query_session=Raw(b"")) as daemon:
        pi.start()
        daemon.answers["hello"] = Raw(b"")
        assert pi.prompt("@@a: why?") == []
        error = pi.tool("query_session", session="a", question="why?")["error"]
        assert daemon.params("expand") == daemon.params("query_session") == []
        pi.ends()
    assert error["code"] == "QUERY_TRANSPORT_FAILED"
    assert pi.statuses == [ASKING, None]


def test_a_question_has_the_time_that_the_daemon_says(pi: Pi, socket: Path) -> None:
    """S0.64: the model's own time is the daemon's to say, at each question anew."""
    over = threading.Event()

    def slow(_params: dict[str, Any]) -> Any:
        over.wait(4)  # longer than a plain answer may take
        return {"messages": [BLOCK]}

    with acting(socket, expand=slow) as daemon:
        pi.start()
        daemon.answers["hello"] = greeting(queryTimeoutSeconds=2)
        assert pi.prompt("@@a: why?") == [BLOCK]
        assert pi.prompt("@@a, why?") == []
        over.set()
        pi.ends()


@pytest.mark.parametrize("key", ["\x1b", "\x1b[27u", "\x1b[27;129:1u"])
def test_escape_ends_the_wait_for_an_answer(pi: Pi, socket: Path, key: str) -> None:
    """S0.51: while a question is answered, and only then, Escape lets the prompt go on without."""
    over = threading.Event()

    def slow(_params: dict[str, Any]) -> Any:
        over.wait(20)
        return {"messages": [BLOCK]}

    with acting(socket, expand=slow) as daemon:
        pi.start()
        assert pi.do(press=key) == {"taken": []}
        prompt = {"prompt": "@@a: why?"}
        pi.begin(emit="before_agent_start", event=prompt, meanwhile=True)
        until(lambda: daemon.params("expand"), "the question")
        assert pi.do(press="\x1b[A") == {"taken": [None]}
        pi.begin(press=key)
        answers = [pi.answer(), pi.answer()]
        assert pi.do(press=key) == {"taken": []}
        over.set()
        pi.ends()
    assert {"taken": [{"consume": True}]} in answers
    (results,) = [one["results"] for one in answers if "results" in one]
    assert [one for one in results if one] == []
    assert pi.statuses == [ASKING, None]

"""Questions about one session: which model is asked, how often, with what, and how it can fail."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    OutputInvalidError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.events import Prompt
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.models.extractive import Extractive
from indexerd.models.scripted import Answer, Delayed, Scripted
from tests.fakes.ending import Ending
from tests.models.question_desk import GOOD, Desk, desks, made


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A session of two turns."""
    yield from desks(tmp_path)


def test_an_answer_and_what_it_cost(desk: Desk) -> None:
    """S0.60, S0.63, S0.67: the result of interfaces.md §5; telemetry and log without a word."""
    entry = desk.session.last
    reply = {
        "answerMarkdown": "To a file.",
        "confidence": "medium",
        "citations": [{"entryId": entry, "role": "user", "excerpt": "They pass."}],
    }
    model = desk.scripted(Reply(json.dumps(reply), "m", tokens=Tokens(120, 30)), key="openai/m")
    found = desk.ask("  Where do \x1b[1malerts go?")
    usage = found.pop("usage")
    assert found == {
        "sessionId": desk.session.id,
        "name": "Where do alerts go?",
        "answerMarkdown": "To a file.",
        "confidence": "medium",
        "citations": [{"entryId": entry, "role": "assistant", "excerpt": "They pass."}],
        "notes": [],
    }
    assert usage.pop("ms") >= 0
    size = usage.pop("bytes")
    assert usage == {
        "inputTokens": 120,
        "outputTokens": 30,
        "costUsd": None,
        "calls": 1,
        "model": "openai/m",
    }
    (row,) = desk.telemetry()
    assert row.pop("ms") >= 0
    assert row == {
        "customType": "query-session:query_session",
        "success": True,
        "sessionId": desk.session.id,
        "model": "openai/m",
        "timestamp": "2027-01-15T08:00:00.000Z",
        "usage": {"inputTokens": 120, "outputTokens": 30, "costUsd": None},
        "redactions": {},
        "attempt": 1,
        "bytes": size,
    }
    prompt = model.calls[0].user
    assert f"[{entry}] Assistant: They pass." in prompt
    assert "\nWhere do alerts go?\n[end" in prompt
    ((event, session, told),) = desk.events
    assert (event, session, told["model"]) == ("query.answered", desk.session.id, "openai/m")
    assert "alerts" not in json.dumps([row, told])


def test_malformed_answers_are_asked_for_again_three_times_at_most(desk: Desk) -> None:
    """S0.64: each retry carries the reply and what was wrong; then it is an error."""
    model = desk.scripted("no json", '{"answerMarkdown": "x"}', GOOD)
    found = desk.ask()
    assert found["usage"]["calls"] == 3
    second, third = model.calls[1].user, model.calls[2].user
    assert "<previous_reply>\nno json\n</previous_reply>" in second
    assert "Not a JSON object" in second
    assert "confidence: Field required" in third
    assert "no json" not in third
    assert [row["success"] for row in desk.telemetry()] == [False, False, True]
    desk.models = [Scripted(["{}"] * 9)]
    bad = desk.fails()
    assert isinstance(bad, OutputInvalidError)
    assert (bad.upstream, len(desk.telemetry())) == ("QUERY_INVALID_OUTPUT", 6)
    assert desk.events[-1][0] == "query.failed"


def test_a_reply_that_its_limit_ended_is_malformed(desk: Desk) -> None:
    """M10: it is asked for again."""
    desk.scripted(Reply(GOOD, "m", finish=Finish.LENGTH), GOOD)
    assert desk.ask()["usage"]["calls"] == 2


def test_only_malformed_answers_are_asked_for_again(desk: Desk) -> None:
    """S0.64: a provider that fails is not asked again, nor is a local model in its place."""
    model = desk.scripted(ProviderError("down"), GOOD)
    desk.models.append(Extractive())
    bad = desk.fails()
    assert isinstance(bad, ProviderError)
    assert (bad.upstream, len(model.calls)) == ("QUERY_TRANSPORT_FAILED", 1)
    (row,) = desk.telemetry()
    assert (row["success"], row["error"]) == (False, "down")


@pytest.mark.parametrize(
    "error",
    [ProviderDeniedError("denied"), RefusedError("refused"), BudgetError("empty")],
)
def test_a_local_model_answers_where_the_other_is_not_to_be_had(
    desk: Desk, error: IndexerdError
) -> None:
    """S0.27, M11, M16: the rule of indexing; a note says which model was passed by, and why."""
    desk.scripted(error)  # type: ignore[arg-type]  # errors of the model's side
    desk.models.append(Extractive())
    found = desk.ask()
    assert found["usage"]["model"] == "local/extractive"
    assert found["notes"] == [f"Not to be had: {error}"]
    assert "We write alerts to a file." in found["answerMarkdown"]


def test_a_budget_that_is_used_up_is_not_exceeded(desk: Desk) -> None:
    """M16: questions are booked as indexing is."""
    desk.settings = made(budget={"daily_calls": 1})
    desk.scripted(GOOD, GOOD)
    assert desk.ask()["confidence"] == "high"
    bad = desk.fails()
    assert (bad.kind, bad.upstream) == ("budget_exhausted", "QUERY_MODEL_UNAVAILABLE")
    assert "[budget]" in bad.hint
    assert desk.budget.account.calls == 1


def test_without_a_model_there_is_no_answer(desk: Desk) -> None:
    """S0.64: and the code says so."""
    bad = desk.fails()
    assert isinstance(bad, ModelUnavailableError)
    assert bad.upstream == "QUERY_MODEL_UNAVAILABLE"


def test_the_deadline_is_for_the_whole_question(desk: Desk) -> None:
    """S0.64: attempts share it; the last one gets what is left, or is not made."""
    desk.settings = made(query={"timeout_seconds": 1.0})
    model = desk.scripted(Delayed(0.2, "no json"), GOOD)
    bad = desk.fails()
    assert isinstance(bad, DeadlineError)
    assert (bad.upstream, len(model.calls)) == ("QUERY_TRANSPORT_FAILED", 1)
    late = Scripted([Delayed(50.0, GOOD)])
    desk.models = [late]
    assert isinstance(desk.fails(), DeadlineError)


def test_a_model_is_given_seconds_that_can_be_named(desk: Desk) -> None:
    """M2: its error says how long that was, to a tenth of a second."""
    given: list[float] = []

    class Late(Scripted):
        async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
            given.append(timeout)
            raise DeadlineError(f"no full answer within {timeout:g} s")

    desk.settings = made(query={"timeout_seconds": 3.0})
    desk.models = [Late()]
    assert re.fullmatch(r"no full answer within \d(\.\d)? s", str(desk.fails()))
    assert given == [round(given[0], 1)]


def test_a_text_that_is_too_large_is_halved(desk: Desk) -> None:
    """S3.24: the newest half is sent, and a note says so; in the end it is an error."""
    desk.settings = made(budget={"daily_usd": 100.0})
    for n in range(40):
        desk.session.turn(f"Question {n}: " + "word " * 100)
    model = desk.scripted(ContextTooLargeError("big"), ContextTooLargeError("big"), GOOD)
    found = desk.ask()
    sizes = [row["bytes"] for row in desk.telemetry()]
    assert sizes[0] > 2 * sizes[1] - 100 > 4 * sizes[2] - 400
    assert found["notes"][0].startswith("Context truncated to the most recent ")
    assert "Question 39" in model.calls[2].user
    assert "Question 0:" not in model.calls[2].user
    desk.models = [Scripted([ContextTooLargeError("big")] * 20), Extractive()]
    assert desk.ask()["usage"]["model"] == "local/extractive"
    desk.models = [Scripted([ContextTooLargeError("big")] * 20)]
    assert isinstance(desk.fails(), ContextTooLargeError)


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (ProviderError("down"), "QUERY_TRANSPORT_FAILED", "ask again later"),
        (RefusedError("no"), "QUERY_MODEL_UNAVAILABLE", "ask another model (model_keys)"),
        (OutputInvalidError("no"), "QUERY_INVALID_OUTPUT", "ask again, or ask another model"),
        (ContextTooLargeError("big"), "QUERY_TRANSPORT_FAILED", "[query] max_bytes"),
        (BudgetError("full", passing=True), "QUERY_MODEL_UNAVAILABLE", "ask again in a minute"),
        (BudgetError("full"), "QUERY_MODEL_UNAVAILABLE", "or wait until tomorrow"),
        (DeadlineError("late"), "QUERY_TRANSPORT_FAILED", "[query] timeout_seconds"),
        (ProviderDeniedError("no", hint="own"), "QUERY_MODEL_UNAVAILABLE", "own"),
    ],
)
def test_hints_are_for_somebody_who_asks(
    desk: Desk, error: IndexerdError, code: str, hint: str
) -> None:
    """S0.64: nobody asks a question again but whoever asked it; each failure has its code."""
    desk.scripted(error)  # type: ignore[arg-type]  # errors of the model's side
    bad = desk.fails()
    assert bad.upstream == code
    assert hint in bad.hint


def test_a_full_minute_passes(desk: Desk) -> None:
    """M15: the cap on requests opens by itself, and soon."""
    desk.settings = made(budget={"requests_per_minute": 1})
    desk.scripted(GOOD, GOOD)
    desk.ask()
    bad = desk.fails()
    assert (bad.kind, bad.hint) == ("budget_exhausted", "ask again in a minute")


@pytest.mark.parametrize("reply", [GOOD, Delayed(30.0)])
@pytest.mark.parametrize("remote", [False, True])
def test_a_cancelled_call_is_in_the_audit(desk: Desk, reply: Answer, *, remote: bool) -> None:
    """S2.24: before the answer, while it is booked, and while it is judged."""
    desk.session.turn("Write alerts to a file.", "Done.")
    desk.models.append(Ending([reply], remote=remote))
    with pytest.raises(asyncio.CancelledError):
        desk.ask()
    (row,) = desk.telemetry()
    assert (row["success"], row["error"]) == (False, "cancelled")
    assert row["bytes"] > 0
    assert ("usage" in row) is (isinstance(reply, str) and not remote)

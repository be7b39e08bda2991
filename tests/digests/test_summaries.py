"""One summary: which model, how often, with what, and how it can fail."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from indexerd.digests.talk import Talk
from indexerd.errors import (
    BudgetError,
    IndexerdError,
    ModelUnavailableError,
    OutputInvalidError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
)
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.models.extractive import Extractive
from indexerd.models.scripted import Answer, Delayed, Scripted
from indexerd.settings import Settings
from tests.fakes.ending import Ending
from tests.models.summary_desk import TASK, Desk

KEY = "ghp_" + "a1B2c3D4e5F6" * 3


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Without a model."""
    return Desk(tmp_path)


# -- one call ------------------------------------------------------------------------------------


def test_a_summary_and_its_row_in_the_audit_trail(desk: Desk) -> None:
    """S2.24: who, when, which range, model, cost, redactions; and no word of it in row or log."""
    model = desk.scripted(Reply("- Alerts go to a file.", "m", tokens=Tokens(120, 30)))
    made = desk.write()
    assert (made.text, made.model, made.notes) == ("- Alerts go to a file.", "scripted/list", ())
    usage = made.usage()
    assert usage.pop("ms") >= 0
    assert usage == {
        "inputTokens": 120,
        "outputTokens": 30,
        "costUsd": None,
        "calls": 1,
        "model": "scripted/list",
    }
    (row,) = desk.rows
    assert row.pop("ms") >= 0
    assert row == {
        "customType": "digest:segment",
        "by": "user",
        "task": "segment",
        "covering_messages": [0, 1],
        "success": True,
        "sessionId": "s1",
        "model": "scripted/list",
        "timestamp": "2027-01-15T08:00:00.000Z",
        "usage": {"inputTokens": 120, "outputTokens": 30, "costUsd": None},
        "redactions": {"github-token": 2},
        "attempt": 1,
        "bytes": len(model.calls[0].user.encode()),
    }
    assert TASK.talk.text in model.calls[0].user
    assert "alerts" not in json.dumps([desk.rows, desk.said]).lower()


def test_all_that_was_taken_out_is_counted(desk: Desk) -> None:
    """S2.24: in the wishes, too, and in the earlier summary; its marks' own words are not told."""
    previous = "- The key is [redacted:jwt]; so is [redacted:by-another-hand]."
    base = replace(TASK.base, previous=previous)
    desk.hook(f"print(json.dumps({{'context': ['Use {KEY}.']}}))")
    desk.scripted("- Alerts go to a file.")
    desk.write(replace(TASK, base=base, focus=f"Mind {KEY}."))
    assert desk.rows[0]["redactions"] == {"github-token": 4, "earlier": 2}


@pytest.mark.parametrize("reply", ["- Alerts go to a file.", Delayed(30.0)])
@pytest.mark.parametrize("remote", [False, True])
def test_a_cancelled_call_is_in_the_audit(desk: Desk, reply: Answer, *, remote: bool) -> None:
    """S2.24: before the answer, while it is booked, and while it is read."""
    desk.models.append(Ending([reply], remote=remote))
    with pytest.raises(asyncio.CancelledError):
        desk.write()
    (row,) = desk.rows
    assert (row["success"], row["error"]) == (False, "cancelled")
    assert row["bytes"] > 0
    assert ("usage" in row) is (isinstance(reply, str) and not remote)


def test_a_secret_in_a_reply_is_not_kept(desk: Desk) -> None:
    """S2.21: redacted before storage, also where something unseen stands within it."""
    desk.scripted(f"I used {KEY}, and then.", f"It is {KEY[:9]}\x1b[1m{KEY[9:]} now.")
    assert desk.write().text == "I used [redacted:github-token], and then."
    assert desk.write().text == "It is [redacted:github-token] now."


def test_what_the_user_wants_is_redacted_before_it_is_sent(desk: Desk) -> None:
    """S2.21: instructions may hold a key, too, be they added or in the place of ours."""
    model = desk.scripted("a", "b")
    desk.write(replace(TASK, focus=f"How {KEY} was used."))
    desk.write(replace(TASK, instead=f"Tell of {KEY}."))
    assert not any(KEY in call.user for call in model.calls)
    assert "Dwell on this: How [redacted:github-token] was used." in model.calls[0].user
    assert model.calls[1].user.endswith("Tell of [redacted:github-token].")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("", "it was empty"),
        ("\x1b[0m \n", "it was empty"),
        (Reply("half", "m", finish=Finish.LENGTH), "it was cut off"),
        ("x" * 8001, "it was far too long"),
    ],
)
def test_an_answer_of_no_use_is_asked_for_again(desk: Desk, bad: Answer, told: str) -> None:
    """M10, S2.9: at most three times; each retry says what was wrong; every attempt has a row."""
    model = desk.scripted(bad, "Good.")
    assert desk.write().text == "Good."
    assert told in model.calls[1].user
    assert [row["success"] for row in desk.rows] == [False, True]
    assert [row["attempt"] for row in desk.rows] == [1, 2]
    assert told in desk.rows[0]["error"]

    desk.models = [Scripted([bad] * 9), Extractive()]
    desk.rows.clear()
    with pytest.raises(OutputInvalidError):
        desk.write()
    assert [row["success"] for row in desk.rows] == [False] * 3


def test_a_provider_that_fails_is_not_asked_again_at_once(desk: Desk) -> None:
    """S2.20: the caller decides when; the attempt is on record."""
    model = desk.scripted(ProviderError("down"), "x")
    desk.models.append(Extractive())
    with pytest.raises(ProviderError):
        desk.write()
    assert len(model.calls) == 1
    assert [(row["success"], row["error"]) for row in desk.rows] == [(False, "down")]


@pytest.mark.parametrize("bad", [ProviderDeniedError("no"), RefusedError("no"), BudgetError("no")])
def test_a_local_model_takes_over(desk: Desk, bad: IndexerdError) -> None:
    """S0.27, M11, M16: where the other one is not to be had; the summary says who wrote it."""
    desk.scripted(bad)  # type: ignore[arg-type]  # errors of the model's side
    desk.models.append(Extractive())
    made = desk.write()
    assert made.model == "local/extractive"
    assert "alerts" in made.text
    assert [row["success"] for row in desk.rows] == [False, True]


def test_without_a_model_there_is_no_summary(desk: Desk) -> None:
    """S2.20: nothing is cut off in its place."""
    with pytest.raises(ModelUnavailableError):
        desk.write()
    assert desk.rows == []


def test_a_days_budget_binds_summaries_too(desk: Desk) -> None:
    """M16: as it binds indexing."""
    desk.settings = Settings.model_validate({"budget": {"daily_calls": 1}})
    desk.scripted("One.", "Two.")
    assert desk.write().text == "One."
    with pytest.raises(BudgetError):
        desk.write()


def test_of_nothing_there_is_no_summary(desk: Desk) -> None:
    """S2.20: an error that can be told, and no call."""
    model = desk.scripted("x")
    for kind in ("segment", "checkpoint", "branch"):
        task = replace(TASK, talk=Talk(), base=replace(TASK.base, kind=kind, previous="Old."))
        with pytest.raises(SessionEmptyError):
            desk.write(task)
    assert model.calls == []


# -- a hook --------------------------------------------------------------------------------------


def test_a_hook_adds_what_it_knows(desk: Desk) -> None:
    """S3.29: told beside the conversation; it hears of the task, and not a word of the session."""
    desk.hook(
        "open(sys.argv[0] + '.told', 'w').write(json.dumps(told))\n"
        f"print(json.dumps({{'context': ['Ticket 7 is about alerts.', 'Not {KEY}.']}}))"
    )
    model = desk.scripted("x")
    desk.write(replace(TASK, focus="alerting"))
    user = model.calls[0].user
    assert "Known besides: Ticket 7 is about alerts." in user
    assert "technical bullet points" in user
    assert KEY not in user
    told = json.loads((desk.root / "hook.py.told").read_text())
    assert told.items() >= {"task": "segment", "sessionId": "s1", "covering": [0, 1]}.items()
    assert "technical bullet points" in told["prompt"]
    assert "alert" not in json.dumps(told)


def test_a_hook_takes_the_place_of_the_prompt(desk: Desk) -> None:
    """S3.29: of its instructions; the conversation stays in its frame."""
    desk.hook("print(json.dumps({'prompt': 'Write a poem.'}))")
    model = desk.scripted("x")
    desk.write()
    assert model.calls[0].user.endswith("\n</conversation>\n\nWrite a poem.")
    assert TASK.talk.text in model.calls[0].user


@pytest.mark.parametrize("code", ["sys.exit(3)", "print('no json')", "print('[]')"])
def test_a_failing_hook_is_passed_over_and_logged(desk: Desk, code: str) -> None:
    """S3.29: the default prompt, and a warning without what the hook said."""
    desk.hook(code)
    model = desk.scripted("Good.")
    assert desk.write().text == "Good."
    assert "technical bullet points" in model.calls[0].user
    event, session, told = desk.said[0]
    assert (event, session, list(told)) == ("digest.hook_failed", "s1", ["reason"])
    assert "no json" not in told["reason"]

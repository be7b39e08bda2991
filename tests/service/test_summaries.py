"""One summary: which model, how often, in how many pieces, with what, and how it can fail."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indexerd.core.talk import Talk
from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    IndexerdError,
    ModelUnavailableError,
    OutputInvalidError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
)
from indexerd.events import Prompt, Stretch
from indexerd.io.journal import Journal
from indexerd.llm.base import Finish, Model, Reply, Tokens
from indexerd.llm.offline import Extractive
from indexerd.llm.scripted import Answer, Delayed, Scripted
from indexerd.service.summaries import Summaries, Summary, Task
from indexerd.service.treasury import Treasury
from indexerd.settings import Settings
from tests.service.digest_bench import NOW

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
PARTS = ("[User]: Where do alerts go?", "[Assistant]: We decided to write alerts to a file.")
TASK = Task(
    session_id="s1",
    agent="pi",
    name="segment",
    talk=Talk(PARTS, {"github-token": 2}),
    base=Stretch(kind="segment", messages=(), cwd="/w", max_tokens=1000),
    covering=(0, 1),
)


class Desk:
    """Models, settings, and what was recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = Settings()
        self.models: list[Model] = []
        self.rows: list[dict[str, Any]] = []
        self.said: list[tuple[str, str, dict[str, Any]]] = []
        treasury = Treasury(
            Journal(root / "budget.jsonl"),
            lambda: self.settings,
            lambda: NOW,
            lambda _event, _told: None,
        )
        self._summaries = Summaries(
            treasury=treasury,
            record=self.rows.append,
            clock=lambda: NOW,
            notify=lambda event, session, told: self.said.append((event, session, told)),
        )

    def scripted(self, *replies: Answer, **more: Any) -> Scripted:
        """One more model."""
        model = Scripted(list(replies), **more)
        self.models.append(model)
        return model

    def write(self, task: Task = TASK) -> Summary:
        """The summary."""
        return asyncio.run(self._summaries.write(task, self.settings, self.models))

    def hook(self, code: str) -> None:
        """Use a real command that is this Python code; it writes what it is told beside it."""
        script = self.root / "hook.py"
        script.write_text(f"import json, sys\ntold = json.load(sys.stdin)\n{code}\n")
        wanted = {"hook": [sys.executable, "-S", "-E", str(script)], "hook_seconds": 20.0}
        self.settings = Settings.model_validate({"digest": wanted})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Without a model."""
    return Desk(tmp_path)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are noted, and shortened."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return pauses


def long(count: int, size: int = 1000) -> Task:
    """A task of so many numbered parts."""
    parts = tuple(f"[User]: part{n:03} {'x' * (size - 20)}" for n in range(count))
    return replace(TASK, talk=Talk(parts))


def numbers(model: Scripted) -> list[list[int]]:
    """The parts that each call showed."""
    return [[int(one) for one in re.findall(r"part(\d{3})", call.user)] for call in model.calls]


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


class Ending(Scripted):
    """A model during whose call the task is cancelled."""

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer, if it comes to that."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await super().generate(prompt, timeout=timeout)


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


# -- several calls -------------------------------------------------------------------------------


def test_a_long_text_goes_in_chunks_and_each_knows_what_came_before(desk: Desk) -> None:
    """S3.15: no part twice and none left out; a segment's texts are joined."""
    model = desk.scripted("One.", "Two.", "Three.")
    task = replace(long(45, 10_000), base=replace(TASK.base, previous="Before."))
    assert desk.write(task).text == "One.\n\nTwo.\n\nThree."
    seen = numbers(model)
    assert [number for one in seen for number in one] == list(range(45))
    before = [
        re.search(r"<previous-summary>\n.*?\n(.*?)\n\[end", c.user, re.DOTALL) for c in model.calls
    ]
    assert [one and one[1] for one in before] == [
        "Before.",
        "Before.\n\nOne.",
        "Before.\n\nOne.\n\nTwo.",
    ]
    assert all(call.max_output_tokens <= 1000 for call in model.calls)


def test_a_compaction_in_chunks_is_updated_each_time(desk: Desk) -> None:
    """S3.15: the last one is the summary, and was shown the one before it alone."""
    model = desk.scripted("One.", "Two.")
    base = replace(TASK.base, kind="checkpoint", previous="Before.")
    assert desk.write(replace(long(30, 10_000), base=base)).text == "Two."
    assert "Before." in model.calls[0].user
    assert "Before." not in model.calls[1].user
    assert "One." in model.calls[1].user


def test_what_is_too_large_goes_in_smaller_pieces_and_a_segment_loses_nothing(
    desk: Desk, at_once: list[float]
) -> None:
    """S2.20, S3.24: halves, with growing pauses, until the model takes them."""
    big = ContextTooLargeError("big")
    model = desk.scripted(big, big, *"abcdefgh")
    made = desk.write(long(40))
    assert made.text == "\n\n".join("abcdefgh"[: len(model.calls) - 2])
    assert [number for one in numbers(model)[2:] for number in one] == list(range(40))
    assert made.notes == ()
    assert [one for one in at_once if one] == [0.25, 0.5]
    assert [row["success"] for row in desk.rows][:3] == [False, False, True]


@pytest.mark.parametrize("size", [100, 700])
def test_a_compaction_leaves_out_the_oldest_and_says_so(
    desk: Desk, at_once: list[float], size: int
) -> None:
    """S3.24: a fourth at a time, with a pause before each try; be the text large or small."""
    big = ContextTooLargeError("big")
    model = desk.scripted(big, big, "Rest.")
    made = desk.write(replace(long(40, size), drops=True))
    kept = numbers(model)[2]
    assert kept == list(range(40 - len(kept), 40))
    assert 40 // 3 < len(kept) < 30
    assert made.text == "Rest."
    assert made.notes == (f"{40 - len(kept)} of the oldest parts were too much for scripted/list",)
    assert [one for one in at_once if one] == [0.25, 0.5]


def test_a_long_compaction_goes_in_smaller_pieces_first(desk: Desk, at_once: list[float]) -> None:
    """S3.24: what is more than any model takes is divided, and the early part is not lost."""
    big = ContextTooLargeError("big")
    model = desk.scripted(big, big, *"abcdefgh")
    base = replace(TASK.base, kind="checkpoint")
    made = desk.write(replace(long(160), base=base, drops=True))
    assert [number for one in numbers(model)[2:] for number in one] == list(range(160))
    assert made.notes == ()


def test_what_is_left_out_makes_the_request_smaller(desk: Desk, at_once: list[float]) -> None:
    """S3.24: each try is shorter than the one before, though there is more behind it."""

    class Small(Scripted):
        async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
            self.calls.append(prompt)
            if len(prompt.user) > 15_000:
                raise ContextTooLargeError("big")
            return Reply(text="Sum.", model="m")

    model = Small([])
    desk.models = [model]
    base = replace(TASK.base, kind="checkpoint")
    made = desk.write(replace(long(120), base=base, drops=True))
    refused = [len(call.user) for call in model.calls if len(call.user) > 15_000]
    assert refused == sorted(set(refused), reverse=True)
    assert "oldest parts" in made.notes[-1]
    assert numbers(model)[-1][-1] == 119


def test_a_text_that_no_model_takes_is_an_error(desk: Desk, at_once: list[float]) -> None:
    """S3.24: the number of tries is bounded, whatever may be left out; a local model goes last."""
    for drops in (False, True):
        desk.models = [Scripted([ContextTooLargeError("big")] * 99)]
        with pytest.raises(ContextTooLargeError):
            desk.write(replace(long(40), drops=drops))
    assert len([one for one in at_once if one]) <= 2 * 12
    desk.models.append(Extractive())
    assert desk.write(replace(long(40), drops=True)).model == "local/extractive"


def test_a_part_that_loses_its_middle_is_noted(desk: Desk) -> None:
    """S2.20: nothing is cut silently, though one message be longer than a whole call."""
    model = desk.scripted("One.", "Two.")
    parts = ("[User]: " + "y" * 300_000, "[Assistant]: part001 Yes.")
    made = desk.write(replace(TASK, talk=Talk(parts)))
    assert "characters left out" in model.calls[0].user
    assert len(made.notes) == 1
    assert "part001" in model.calls[1].user


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

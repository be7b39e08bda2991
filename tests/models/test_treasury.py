"""The books and the breakers together: who is asked, who is not, and what kill -9 changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.events import Prompt
from indexerd.logs import Event
from indexerd.models import journal
from indexerd.models.base import Reply, Tokens
from indexerd.models.breaker import FAILURES, FIRST_PAUSE
from indexerd.models.calls import booked
from indexerd.models.journal import Journal
from indexerd.models.scripted import Scripted
from indexerd.models.treasury import Treasury
from indexerd.settings import Budget, Settings

T0 = 1_700_000_000.0
FLASH = "google/gemini-3.5-flash-lite"
PROMPT = Prompt("", "Describe this.", {}, 100)
DOWN = ProviderError("503")


def throttled(wish: float | None) -> ProviderError:
    """A 429."""
    return ProviderError("429", retry_after=wish, throttled=True)


class Desk:
    """A treasury, its clock, its journal, and models that say what they are told to."""

    def __init__(self, root: Path) -> None:
        self.path = root / "budget.jsonl"
        self.now = T0
        self.settings = Settings()
        self.heard: list[tuple[Event, dict[str, Any]]] = []
        self.treasury = self.restarted()

    def restarted(self) -> Treasury:
        """A treasury as after kill -9: the journal is what it has."""
        self.treasury = Treasury(
            Journal(self.path),
            lambda: self.settings,
            lambda: self.now,
            lambda event, fields: self.heard.append((event, fields)),
        )
        self.treasury.load()
        return self.treasury

    def ask(self, *answers: Any, key: str = FLASH) -> list[IndexerdError | None]:
        """Make calls one after another, as a run does; how each of them failed, if it did."""
        return asyncio.run(self._ask(answers, key))

    async def _ask(self, answers: tuple[Any, ...], key: str) -> list[IndexerdError | None]:
        failures: list[IndexerdError | None] = []
        for answer in answers:
            self.asked = Scripted([answer], key=key)
            failures.append(await outcome(self._call(self.asked)))
        return failures

    async def _call(self, model: Scripted) -> None:
        await booked(self.treasury, model, PROMPT, seconds=5, failed=lambda _why, _ms: None)

    def told(self, event: Event) -> list[dict[str, Any]]:
        """What was said of one kind of event."""
        return [fields for one, fields in self.heard if one is event]

    def rows(self, op: str) -> list[dict[str, Any]]:
        """The journal's rows of a kind."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [row for row in map(json.loads, lines) if row["op"] == op]


async def outcome(work: Awaitable[Any]) -> IndexerdError | None:
    """How it failed, if it did."""
    try:
        await work
    except IndexerdError as bad:
        return bad
    return None


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Open books."""
    return Desk(tmp_path)


def test_who_was_told_to_wait_waits_and_so_does_every_other_session(desk: Desk) -> None:
    """M3: after a 429 with a wish nobody asks that provider before; another provider is asked."""
    desk.ask(throttled(37.0))
    reserved = len(desk.rows("reserve"))

    for key in (FLASH, "google/gemini-3.5-pro"):
        desk.now = T0 + 36
        [refused] = desk.ask("never said", key=key)
        assert isinstance(refused, ProviderError)
        assert refused.retry_after is not None
        assert 1 <= refused.retry_after <= 1 + 3.7
        assert desk.asked.calls == []
    assert len(desk.rows("reserve")) == reserved
    assert desk.ask("fine", key="openai/some") == [None]

    desk.now = T0 + 37 * 1.1
    assert desk.ask("fine") == [None]
    assert len(desk.told(Event.MODEL_BREAKER_CLOSED)) == 1


@pytest.mark.parametrize("wish", [37.0, 3600.0, 1e9, None])
def test_a_wish_outlives_kill_9(desk: Desk, wish: float | None) -> None:
    """M3, M16: the rest is on disk before the failed call returns; no end of ours is needed."""
    desk.ask(throttled(wish))
    until = desk.treasury.breakers["google"].until

    again = desk.restarted()
    assert again.breakers["google"].until == until > T0
    [refused] = desk.ask("never said")
    assert isinstance(refused, ProviderError)
    assert desk.asked.calls == []
    # Nothing else tells why nothing is sent.
    assert desk.told(Event.MODEL_BREAKER_OPEN)[-1]["model"] == "google"
    desk.now = until
    assert desk.ask("fine") == [None]
    assert desk.restarted().breakers["google"].word == "closed"


def test_failures_are_counted_over_kill_9(desk: Desk) -> None:
    """M4, M16: four failures, a crash, and the fifth opens it; a day's bound needs no luck."""
    for number in range(FAILURES):
        assert desk.treasury.summary()["breakers"].get("google", "closed") == "closed"
        [failed] = desk.ask(DOWN if number % 2 else DeadlineError("late"))
        assert failed is not None
        desk.restarted()
    assert desk.treasury.summary()["breakers"]["google"] == "open"
    [refused] = desk.ask("never said")
    assert isinstance(refused, ProviderError)
    assert desk.asked.calls == []


def test_what_does_not_change_is_not_written(desk: Desk) -> None:
    """Every row costs a sync of the disk; a provider that answers has no row at all."""
    desk.ask("fine", "fine", RefusedError("no"), ContextTooLargeError("too much"))
    assert desk.rows("breaker") == []
    desk.ask(DOWN)
    desk.ask("fine", "fine", "fine")
    assert [row["failures"] for row in desk.rows("breaker")] == [1, 0]


def test_a_journal_that_cannot_be_written_loses_no_breaker(desk: Desk) -> None:
    """A3, M3: in memory it rests all the same, and with the next change it is stored."""
    desk.ask("fine")
    kept = desk.path.rename(desk.path.with_name("kept"))
    desk.path.mkdir()  # no file can be opened there

    asyncio.run(desk.treasury._keep("google"))  # nothing to store: nothing is tried
    assert desk.told(Event.BUDGET_UNSETTLED) == []
    breaker = desk.treasury.breakers["google"]
    breaker.failed(throttled(60.0), T0, 0.0)
    asyncio.run(desk.treasury._keep("google"))
    assert len(desk.told(Event.BUDGET_UNSETTLED)) == 1

    desk.path.rmdir()
    kept.rename(desk.path)
    asyncio.run(desk.treasury._keep("google"))
    assert desk.restarted().breakers["google"].until == T0 + 60


@pytest.mark.parametrize(
    "row",
    [
        {"until": float(10**20)},
        {"until": -1.0},
        {"until": True},
        {"until": "soon"},
        {"failures": -1},
        {"failures": 10**30},
        {"failures": 1.5},
        {"opened": None},
        {"id": 7},
    ],
)
def test_a_row_of_any_hand_opens_and_closes_nothing(desk: Desk, row: dict[str, Any]) -> None:
    """M15, X12: what is no breaker's row is passed over; the one before it counts."""
    good = {"op": "breaker", "id": "google", "t": T0, "failures": 1, "opened": 1}
    good["until"] = T0 + 60
    lines = [good, good | {"until": 0.0} | row]
    desk.path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert desk.restarted().breakers["google"].until == T0 + 60
    assert desk.treasury.purse.calls == 0


def test_half_open_lets_one_of_three_through(desk: Desk) -> None:
    """M4: five failures close the door; after the pause one call tries it, the others wait."""
    failures = desk.ask(*[DOWN] * FAILURES, "never said")
    assert all(isinstance(one, ProviderError) for one in failures)
    assert desk.asked.calls == []
    desk.now = T0 + FIRST_PAUSE * 1.1

    async def three() -> list[BaseException | Any]:
        model = Scripted(key=FLASH)
        asked = [desk.treasury.admit(model, PROMPT) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    ended = asyncio.run(three())
    assert sorted(isinstance(one, ProviderError) for one in ended) == [False, True, True]
    assert len(desk.rows("reserve")) == FAILURES + 1


def test_a_bad_key_is_not_tried_again_until_a_reload(desk: Desk) -> None:
    """M5: one call, one line; SIGHUP lifts it for the whole provider."""
    desk.ask(ProviderDeniedError("bad key"))
    desk.now = T0 + 86_400
    for key in (FLASH, "google/other"):
        [refused] = desk.ask("never said", key=key)
        assert isinstance(refused, ModelUnavailableError)
        assert desk.asked.calls == []
    assert len(desk.told(Event.MODEL_BREAKER_OPEN)) == 1
    assert "bad key" in desk.treasury.troubles()["model_unavailable"][0]

    desk.treasury.reset_denials()
    assert desk.told(Event.MODEL_BREAKER_CLOSED) == [{"model": "google"}]
    assert desk.ask("fine") == [None]
    assert desk.treasury.troubles() == {}


def test_a_model_that_is_not_there_leaves_the_providers_others(desk: Desk) -> None:
    """M5: a 404 of one model; its neighbours are asked, and SIGHUP asks for it again."""
    desk.ask(ProviderDeniedError("no such model", model_only=True))
    [refused] = desk.ask("never said")
    assert isinstance(refused, ModelUnavailableError)
    assert desk.asked.calls == []
    assert desk.ask("fine", key="google/other") == [None]

    desk.treasury.reset_denials()
    assert desk.ask("fine") == [None]


ANSWERED = Reply('{"x": 1}', "gemini-3.5-flash-lite", tokens=Tokens(1000, 100))
UNCOUNTED = Reply('{"x": 1}', "gemini-3.5-flash-lite")


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        (throttled(1.0), True),
        (ProviderDeniedError("401"), True),
        (ProviderDeniedError("404", model_only=True), True),
        (ContextTooLargeError("too large"), True),
        (DeadlineError("too late"), False),
        (DOWN, False),
        (RefusedError("declined"), False),
        (UNCOUNTED, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_failed_call_costs(desk: Desk, answer: Any, *, free: bool) -> None:
    """M15, M20: only what surely was not done is free; all else stays booked at its most."""
    desk.ask(answer)
    [row] = desk.rows("reserve")
    assert row["usd"] > 0
    assert desk.treasury.purse.usd == (0.0 if free else row["usd"])
    assert desk.treasury.purse.calls == 1
    assert desk.restarted().purse.usd == (0.0 if free else row["usd"])


def test_a_cap_that_is_reached_is_told_of_once(desk: Desk) -> None:
    """M16: not once for each of the sessions that wait for tomorrow."""
    desk.settings = Settings(budget=Budget(daily_calls=1))
    failures = desk.ask("fine", *["never said"] * 20)
    assert sum(isinstance(one, BudgetError) for one in failures) == 20
    assert len(desk.told(Event.BUDGET_EXHAUSTED)) == 1
    desk.now += 3600
    desk.ask("never said")
    assert len(desk.told(Event.BUDGET_EXHAUSTED)) == 2


@pytest.mark.parametrize("end", [asyncio.CancelledError(), ValueError("a defect of ours")])
def test_a_trial_that_told_nothing_is_made_again(desk: Desk, end: BaseException) -> None:
    """M17: a call that we dropped says nothing of the provider, nor does a defect of ours."""
    desk.ask(throttled(1.0))
    desk.now = T0 + 2

    async def dropped() -> None:
        model = Scripted(key=FLASH)
        ticket = await desk.treasury.admit(model, PROMPT)
        await desk.treasury.failed(ticket, model, end)

    asyncio.run(dropped())
    assert desk.ask("fine") == [None]


def test_models_of_this_machine_are_asked_whatever_happens(desk: Desk) -> None:
    """M21: no row, no breaker, no cap."""
    desk.settings = Settings(budget=Budget(daily_calls=0))

    async def asked() -> None:
        model = Scripted(key="local/any", remote=False)
        for _ in range(FAILURES + 1):
            assert await desk.treasury.admit(model, PROMPT) is None
            await desk.treasury.failed(None, model, DOWN)

    asyncio.run(asked())
    assert not desk.path.exists()


def test_what_the_books_do_not_take_is_not_called_and_not_counted(desk: Desk) -> None:
    """A3: a full disk uses up no day's calls; once there is room, models are asked again."""
    desk.path.mkdir()
    for key in (FLASH, "openai/of-no-known-price"):
        (bad,) = desk.ask("never said", key=key)
        assert isinstance(bad, BudgetError)
        assert "cannot be written" in str(bad)
        assert "free space" in bad.hint
        assert bad.retry_after < 3600
    assert "cannot be written" in desk.treasury.troubles()["state_unwritable"][0]
    purse = desk.treasury.purse
    assert (purse.calls, purse.usd, purse.unpriced) == (0, 0.0, 0)
    desk.path.rmdir()
    assert desk.ask("said") == [None]
    assert purse.calls == 1
    assert desk.treasury.troubles() == {}


def test_long_books_are_made_shorter_and_say_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V12, M15: today's calls and whoever rests are kept; rows of last week go."""
    for _ in range(3):
        desk.ask("said")
    desk.ask(DOWN, key="openai/gpt-test")  # that it failed is not forgotten
    desk.now += 7 * 86_400
    desk.ask(throttled(7200.0))
    before, purse = desk.path.stat().st_size, desk.treasury.purse
    until = {name: one.until for name, one in desk.treasury.breakers.items()}
    monkeypatch.setattr(journal, "LONG", 100)

    desk.restarted()
    again = desk.restarted()

    assert desk.path.stat().st_size < before
    assert len(desk.rows("reserve")) == 1
    assert sorted(row["id"] for row in desk.rows("breaker")) == ["google", "openai"]
    assert (again.purse.calls, again.purse.usd) == (purse.calls, purse.usd)
    assert {name: one.until for name, one in again.breakers.items()} == until
    assert max(until.values()) > desk.now


def test_books_that_cannot_be_made_shorter_are_read_as_they_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: a row that no JSON can hold, by any hand, costs neither the start nor a booking."""
    desk.ask("said")
    with desk.path.open("a") as file:
        row = f'{{"op": "reserve", "id": "x", "t": {desk.now}, "usd": NaN, "model": "m"}}'
        file.write(row + "\n")
    monkeypatch.setattr(journal, "LONG", 10)
    assert desk.restarted().purse.calls == 1

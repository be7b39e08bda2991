"""The budget: reserved before, settled after, never less than was spent, over any crash."""

from __future__ import annotations

import asyncio
import json
import math
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
from indexerd.models.attempts import ask
from indexerd.models.base import Reply, Tokens
from indexerd.models.breaker import FAILURES, FIRST_PAUSE
from indexerd.models.budget import Budget, DailyAccount, Reserved, Settled
from indexerd.settings import Budget as Caps
from indexerd.settings import Settings
from tests.fakes.scripted import Scripted

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
CAPS = Caps(daily_usd=1.0, daily_calls=500, requests_per_minute=30)
FLASH = "google/gemini-3.5-flash-lite"
PROMPT = Prompt("", "Describe this.", {}, 100)
DOWN = ProviderError("503")


def throttled(seconds: float | None) -> ProviderError:
    """A 429."""
    return ProviderError("429", retry_after=seconds, throttled=True)


def account(*rows: Reserved | Settled) -> DailyAccount:
    """The account after these rows."""
    made = DailyAccount()
    for row in rows:
        made.apply(row)
    return made


def allowed(made: DailyAccount, now: float, usd: float, caps: Caps = CAPS) -> bool:
    """Whether one more call is."""
    try:
        made.check(now, usd, caps)
    except BudgetError:
        return False
    return True


# -- the account of a day ------------------------------------------------------------------------


def test_the_caps() -> None:
    """M15, M20: dollars at their most, calls (also without a price), and requests a minute."""
    made = account(Reserved("a", NOON, 0.75), Reserved("b", NOON + 20, None))
    assert made.unpriced == 1
    assert allowed(made, NOON + 30, 0.25)
    with pytest.raises(BudgetError) as caught:
        made.check(NOON + 30, 0.26, CAPS)
    assert caught.value.retry_after == DAY / 2 - 30  # until midnight, UTC
    assert not caught.value.passing
    assert not allowed(made, NOON + 90, 0.0, Caps(daily_calls=2))
    with pytest.raises(BudgetError) as caught:
        made.check(NOON + 30, 0.0, Caps(requests_per_minute=2))
    assert (caught.value.retry_after, caught.value.passing) == (30.0, True)
    assert allowed(made, NOON + 60, 0.0, Caps(requests_per_minute=2))


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_clock_step_of_a_day_resets_the_count_at_most_once(step: float) -> None:
    """M15: a day ahead and back, or a day back and ahead again."""
    made, resets = DailyAccount(), 0
    for n, now in enumerate([NOON, NOON + step + 1, NOON + 2, NOON + step + 3, NOON + 4]):
        before = made.calls
        made.apply(Reserved(str(n), now, 0.1))
        resets += made.calls <= before
    assert resets == (1 if step > 0 else 0)


# -- the journal ---------------------------------------------------------------------------------


class Desk:
    """A budget, its clock, and models that answer what they are told to."""

    def __init__(self, root: Path) -> None:
        self.path = root / "budget.jsonl"
        self.now = NOON
        self.settings = Settings()
        self.heard: list[tuple[Event, dict[str, Any]]] = []
        self.restart()

    def restart(self) -> Budget:
        """The budget as after kill -9."""
        self.budget = Budget(
            self.path,
            lambda: self.settings,
            lambda: self.now,
            lambda event, fields: self.heard.append((event, fields)),
        )
        self.budget.load()
        return self.budget

    def ask(self, *answers: Any, key: str = FLASH) -> list[IndexerdError | None]:
        """Make calls one after another; how each of them failed, if it did."""
        failures: list[IndexerdError | None] = []
        for answer in answers:
            self.asked = Scripted([answer], key=key)
            try:
                asyncio.run(self._call(self.asked))
                failures.append(None)
            except IndexerdError as bad:
                failures.append(bad)
        return failures

    async def _call(self, model: Scripted) -> None:
        await ask(
            model,
            PROMPT,
            self.budget,
            seconds=lambda _error: 5.0,
            read=lambda reply: reply.text,
            again=lambda _reply, _error: PROMPT,
            report=lambda _attempt: None,
        )

    def told(self, event: Event) -> list[dict[str, Any]]:
        """What was logged of one kind of event."""
        return [fields for one, fields in self.heard if one is event]

    def rows(self, op: str) -> list[dict[str, Any]]:
        """The journal's rows of a kind."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [row for row in map(json.loads, lines) if row["op"] == op]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A budget."""
    return Desk(tmp_path)


COUNTED = Reply("{}", "gemini-3.5-flash-lite", tokens=Tokens(400, 90))


def test_a_torn_journal_is_never_a_dollar_less(desk: Desk) -> None:
    """M15, A2: wherever it is cut, and whatever a crash leaves there, what was sent is booked."""
    desk.ask(COUNTED, Reply("{}", "gemini-3.5-flash-lite"), throttled(0.0))
    data = desk.path.read_bytes()
    spent: list[tuple[int, float]] = []  # the rows before a call, and what it cost
    for number, line in enumerate(data.splitlines(), 1):
        row = json.loads(line)
        if row["op"] == "reserve":
            settled = [json.loads(one) for one in data.splitlines() if row["id"].encode() in one]
            spent.append((number, next((one["usd"] for one in settled[1:]), row["usd"]) or 0.0))
    for length in range(0, len(data), 7):
        whole = data[:length].count(b"\n")
        for left in (b"", b"\0" * 512, b"\n"):
            desk.path.write_bytes(data[:length] + left)
            made = desk.restart().account
            assert made.calls >= sum(rows <= whole for rows, _ in spent)
            assert made.usd >= sum(usd for rows, usd in spent if rows <= whole) - 1e-12
    calls = made.calls
    desk.budget.breakers.clear()
    assert desk.ask(COUNTED) == [None]  # on a line of its own
    assert desk.restart().account.calls == calls + 1


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"op": "steal"},
        {"t": math.nan},
        {"t": -1.0},
        {"t": 10**400},
        {"usd": -5.0},
        {"usd": True},
        {"id": 7},
        {"op": "settle", "id": "good", "usd": -5.0},
        {"op": "breaker", "id": "google", "failures": 1, "opened": 1, "until": 1e20},
    ],
    ids=repr,
)
def test_a_row_of_a_wrong_shape_is_skipped(desk: Desk, bad: dict[str, Any]) -> None:
    """M15, X12: a damaged journal neither stops the daemon nor opens a cap."""
    good = {"op": "reserve", "id": "good", "t": NOON, "usd": 0.5, "model": "m", "tokens": 9}
    row = {"op": "reserve", "id": "x", "t": NOON, "usd": 0.1} | bad if bad else bad
    desk.path.write_text(f"{json.dumps(good)}\n[]\n{json.dumps(row)}\n" + "[" * 100_000 + "\n")
    made = desk.restart()
    assert (made.account.calls, made.account.usd) == (1, 0.5)
    assert made.breakers == {}


def test_a_long_journal_is_shortened_and_says_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V12, M15: today's calls and breakers are kept; rows of last week go."""
    desk.ask(*[COUNTED] * 3)
    desk.ask(DOWN, key="openai/gpt-test")
    desk.now += 7 * DAY
    desk.ask(throttled(7200.0))
    before, made = desk.path.stat().st_size, desk.budget.account
    until = {name: one.until for name, one in desk.budget.breakers.items()}
    monkeypatch.setattr(journal, "LONG", 100)
    desk.restart()
    again = desk.restart()
    assert desk.path.stat().st_size < before
    assert sorted(row["id"] for row in desk.rows("breaker")) == ["google", "openai"]
    assert (again.account.calls, again.account.usd) == (made.calls, made.usd)
    assert {name: one.until for name, one in again.breakers.items()} == until


def test_what_cannot_be_booked_is_not_called_and_not_counted(desk: Desk) -> None:
    """A3: a full disk uses up no day's calls; once there is room, models are asked again."""
    desk.path.mkdir()
    for key in (FLASH, "openai/of-no-known-price"):
        (bad,) = desk.ask("never said", key=key)
        assert isinstance(bad, BudgetError)
        assert "free space" in bad.hint
        assert desk.asked.calls == []
    assert "cannot be written" in desk.budget.troubles()["state_unwritable"][0]
    made = desk.budget.account
    assert (made.calls, made.usd, made.unpriced) == (0, 0.0, 0)
    desk.path.rmdir()
    assert desk.ask("said") == [None]
    assert desk.budget.troubles() == {}


# -- providers that fail -------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [37.0, 3600.0, 1e9, None])
def test_a_pause_that_was_asked_for_holds_for_every_session_and_over_kill_9(
    desk: Desk, seconds: float | None
) -> None:
    """M3, M16: it is on disk before the failed call returns; other providers are asked."""
    desk.ask(throttled(seconds))
    until = desk.budget.breakers["google"].until
    assert desk.restart().breakers["google"].until == until > NOON
    for key in (FLASH, "google/gemini-3.5-pro"):
        (refused,) = desk.ask("never said", key=key)
        assert isinstance(refused, ProviderError)
        assert desk.asked.calls == []
    assert desk.told(Event.MODEL_BREAKER_OPEN)[-1]["model"] == "google"
    assert desk.ask("fine", key="openai/some") == [None]
    desk.now = until
    assert desk.ask("fine") == [None]
    assert desk.restart().breakers["google"].until == 0


def test_failures_are_counted_over_kill_9_and_one_trial_ends_the_pause(desk: Desk) -> None:
    """M4, M16: the fifth failure opens; after the pause one call tries, the others wait."""
    for number in range(FAILURES):
        desk.ask(DOWN if number % 2 else DeadlineError("late"))
        desk.restart()
    (refused,) = desk.ask("never said")
    assert isinstance(refused, ProviderError)
    assert desk.asked.calls == []
    desk.now += FIRST_PAUSE * 1.1

    async def three() -> list[Any]:
        model = Scripted(key=FLASH)
        asked = [desk.budget.reserve(model, PROMPT) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    ended = asyncio.run(three())
    assert sorted(isinstance(one, ProviderError) for one in ended) == [False, True, True]


@pytest.mark.parametrize("model_only", [False, True])
def test_a_denial_holds_until_a_reload(desk: Desk, *, model_only: bool) -> None:
    """M5: a bad key stops the provider, a 404 only the model; SIGHUP asks again."""
    desk.ask(ProviderDeniedError("bad key", model_only=model_only))
    (refused,) = desk.ask("never said")
    assert isinstance(refused, ModelUnavailableError)
    assert desk.asked.calls == []
    (other,) = desk.ask("fine", key="google/other")
    assert isinstance(other, ModelUnavailableError) is not model_only
    assert "bad key" in desk.budget.troubles()["model_unavailable"][0]
    desk.budget.reset_denials()
    assert desk.ask("fine") == [None]
    assert desk.budget.troubles() == {}


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        (throttled(1.0), True),
        (ProviderDeniedError("401"), True),
        (ContextTooLargeError("too large"), True),
        (DeadlineError("too late"), False),
        (DOWN, False),
        (RefusedError("declined"), False),
        (Reply("{}", "gemini-3.5-flash-lite"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_failed_call_costs(desk: Desk, answer: Any, *, free: bool) -> None:
    """M15, M20: only what surely was not done is free; all else stays booked at its most."""
    desk.ask(answer)
    [row] = desk.rows("reserve")
    assert row["usd"] > 0
    assert desk.restart().account.usd == (0.0 if free else row["usd"])
    assert desk.budget.account.calls == 1


def test_a_cancelled_trial_is_made_again_and_local_models_are_free(desk: Desk) -> None:
    """M17, M21: a dropped call says nothing of the provider; a local one has no row."""
    local = Scripted(["said"], key="local/any", remote=False)
    asyncio.run(desk._call(local))
    assert not desk.path.exists()
    desk.ask(throttled(1.0))
    desk.now += 2

    async def dropped() -> None:
        model = Scripted(key=FLASH)
        ticket = await desk.budget.reserve(model, PROMPT)
        await desk.budget.failed(ticket, asyncio.CancelledError())

    asyncio.run(dropped())
    assert desk.ask("fine") == [None]

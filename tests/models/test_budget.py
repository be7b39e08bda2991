"""The budget reserves before a call and settles after it, and never loses a cost in a crash."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from indexerd import errors
from indexerd.entries import Prompt
from indexerd.models import budget
from indexerd.models.attempts import Calls
from indexerd.models.base import Reply, TokenCounts
from indexerd.models.budget import FAILURES, FIRST_PAUSE, Budget
from indexerd.settings import Budget as Caps
from indexerd.settings import Settings
from tests.fakes.scripted import Scripted

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
FLASH = "google/gemini-3.5-flash-lite"
PROMPT = Prompt("", "Describe this.", {}, 100)
DOWN = errors.ProviderError("503")
COUNTED = Reply("{}", "gemini-3.5-flash-lite", tokens=TokenCounts(400, 90))


def throttled(seconds: float | None) -> errors.ProviderError:
    return errors.ProviderError("429", retry_after=seconds, throttled=True)


class Desk:
    """A budget, its clock, and models with scripted answers."""

    def __init__(self, root: Path) -> None:
        self.path = root / "budget.jsonl"
        self.now = NOON
        self.settings = Settings()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.restart()

    def restart(self) -> tuple[int, float]:
        """Start as after kill -9; return the day's calls and dollars."""
        self.budget = Budget(
            self.path,
            lambda: self.settings,
            lambda: self.now,
            lambda event, fields: self.heard.append((event, fields)),
        )
        self.budget.load()
        return self.day

    @property
    def day(self) -> tuple[int, float]:
        found = self.budget.summary()
        return found["calls"], found["usd"]

    def caps(self, **caps: Any) -> None:
        self.settings = Settings(budget=Caps(**caps))

    def ask(self, *answers: Any, key: str = FLASH) -> list[errors.IndexerdError | None]:
        """Make calls one after another; return how each failed, or None."""
        failures: list[errors.IndexerdError | None] = []
        for answer in answers:
            self.asked = Scripted([answer], key=key, remote=not key.startswith("local"))
            try:
                asyncio.run(self._call(self.asked))
                failures.append(None)
            except errors.IndexerdError as bad:
                failures.append(bad)
        return failures

    async def _call(self, model: Scripted) -> None:
        await Calls(self.budget, {}).ask(
            model,
            PROMPT,
            timeout=5.0,
            read=lambda reply: reply.text,
            again=lambda _reply, _error: PROMPT,
        )

    def rows(self, op: str) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [row for row in map(json.loads, lines) if row["op"] == op]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def refused(desk: Desk, key: str = FLASH) -> errors.IndexerdError:
    """The error of a call that is refused."""
    (bad,) = desk.ask("never said", key=key)
    assert bad is not None
    assert desk.asked.calls == []
    return bad


def test_the_caps_of_a_day(desk: Desk) -> None:
    """Limits of dollars and calls hold until midnight UTC, also for models without a price."""
    desk.ask(COUNTED, Reply("{}", "x"), "said", key="openai/of-no-known-price")
    assert desk.budget.summary()["unpricedCalls"] == 3
    desk.caps(daily_calls=3)
    bad = refused(desk)
    assert isinstance(bad, errors.BudgetError)
    assert bad.retry_after == DAY / 2
    assert "budget_exhausted" in desk.budget.troubles()
    assert desk.ask("said", key="local/any") == [None]
    desk.caps(daily_usd=0.0)
    assert isinstance(refused(desk), errors.BudgetError)
    assert [one for one, _ in desk.heard].count("budget.exhausted") == 1  # an hour
    desk.caps(daily_calls=3)
    desk.now += DAY / 2
    assert desk.ask("said") == [None]
    assert desk.restart()[0] == 1
    desk.now -= DAY  # setting the clock back and forth resets no limit
    assert desk.day[0] == 3
    desk.now += DAY
    assert desk.day[0] == 1


def test_a_full_minute_is_waited_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two requests per minute the third waits until the first is a minute old."""
    desk.caps(requests_per_minute=2)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        desk.now += seconds

    monkeypatch.setattr(budget.asyncio, "sleep", sleep)
    for _ in range(3):
        assert desk.ask("said") == [None]
        desk.now += 5
    assert slept == [0.0, 0.0, 50.0]


def test_a_torn_journal_is_never_a_dollar_less(desk: Desk) -> None:
    """Wherever a crash cuts the journal, calls that were sent are still counted."""
    desk.ask(COUNTED, Reply("{}", "gemini-3.5-flash-lite"), throttled(0.0))
    data = desk.path.read_bytes()
    spent: list[tuple[int, float]] = []  # the rows before a call, and its cost
    for number, line in enumerate(data.splitlines(), 1):
        row = json.loads(line)
        if row["op"] == "reserve":
            settled = [json.loads(line) for line in data.splitlines() if row["id"].encode() in line]
            spent.append((number, next((row["usd"] for row in settled[1:]), row["usd"]) or 0.0))
    for length in range(0, len(data), 7):
        whole = data[:length].count(b"\n")
        for left in (b"", b"\0" * 512, b"\n"):
            desk.path.write_bytes(data[:length] + left)
            calls, usd = desk.restart()
            assert calls >= sum(rows <= whole for rows, _ in spent)
            assert usd >= sum(usd for rows, usd in spent if rows <= whole) - 1e-6
    assert desk.ask(COUNTED) == [None]  # on a line of its own
    assert desk.restart()[0] == calls + 1


def test_unknown_journal_rows_are_ignored(desk: Desk) -> None:
    """Breaker rows of older builds, tokens, other types and lines that are no JSON."""
    good = {"op": "reserve", "id": "good", "t": NOON, "usd": 0.5, "model": "m", "tokens": 9}
    breaker = {"op": "breaker", "id": "google", "t": NOON, "failures": 1, "opened": 1, "until": 9e9}
    odd = [{}, {"op": "steal"}, good | {"t": "x"}, good | {"id": 7}, breaker, []]
    lines = [json.dumps(one) for one in (good, *odd)]
    desk.path.write_text("\n".join([*lines, "[" * 100_000, ""]))
    assert desk.restart() == (1, 0.5)
    assert desk.budget.breakers == {}


def test_what_cannot_be_booked_is_not_called_and_not_counted(desk: Desk) -> None:
    """With a full disk no call is made or counted; with space again, calls are made."""
    desk.path.mkdir()
    for key in (FLASH, "openai/of-no-known-price"):
        bad = refused(desk, key)
        assert isinstance(bad, errors.BudgetError)
        assert "free space" in bad.hint
    assert desk.day == (0, 0.0)
    desk.path.rmdir()
    assert desk.ask("said") == [None]


def test_a_pause_that_was_asked_for_holds_for_every_model_of_the_provider(desk: Desk) -> None:
    """One 429 pauses all its models, the next at least a minute; other providers are asked."""
    desk.ask(throttled(3600.0))
    until = desk.budget.breakers["google"].until
    assert until >= NOON + 3600
    for key in (FLASH, "google/gemini-3.5-pro"):
        assert isinstance(refused(desk, key), errors.ProviderError)
    (opened,) = [fields for one, fields in desk.heard if one == "model.breaker_open"]
    assert opened["model"] == FLASH
    assert "provider_unavailable" in desk.budget.troubles()
    assert desk.ask("fine", key="openai/some") == [None]
    desk.ask(throttled(0.0))  # not sent
    desk.now = until
    desk.ask(throttled(0.0))
    assert desk.budget.breakers["google"].until >= until + FIRST_PAUSE


def test_the_fifth_failure_in_a_row_opens_the_breaker(desk: Desk) -> None:
    """Failures and timeouts count alike; a cancelled call is no failure."""
    for number in range(FAILURES):
        desk.ask(DOWN if number % 2 else errors.DeadlineError("late"))
    assert isinstance(refused(desk), errors.ProviderError)
    desk.now += FIRST_PAUSE

    async def dropped() -> None:
        ticket = await desk.budget.reserve(Scripted(key=FLASH), PROMPT)
        await desk.budget.failed(ticket, asyncio.CancelledError())

    asyncio.run(dropped())
    assert desk.ask("fine", "fine") == [None, None]


@pytest.mark.parametrize("model_only", [False, True])
def test_a_denial_holds_until_a_reload(desk: Desk, *, model_only: bool) -> None:
    """A bad key stops the provider, a 404 only the model; SIGHUP asks again."""
    desk.ask(errors.ProviderDeniedError("bad key", model_only=model_only))
    assert isinstance(refused(desk), errors.ModelUnavailableError)
    (other,) = desk.ask("fine", key="google/other")
    assert isinstance(other, errors.ModelUnavailableError) is not model_only
    assert "bad key" in desk.budget.troubles()["model_unavailable"][0]
    desk.budget.reset_denials()
    assert desk.ask("fine") == [None]
    assert desk.budget.troubles() == {}


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        (throttled(1.0), True),
        (errors.ProviderDeniedError("401"), True),
        (errors.ContextTooLargeError("too large"), True),
        (errors.DeadlineError("too late"), False),
        (DOWN, False),
        (errors.RefusedError("declined"), False),
        (Reply("{}", "gemini-3.5-flash-lite"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_failed_call_costs(desk: Desk, answer: Any, *, free: bool) -> None:
    """Only calls that were certainly not processed are free; others keep their reservation."""
    desk.ask(answer)
    [row] = desk.rows("reserve")
    assert row["usd"] > 0
    calls, usd = desk.restart()
    assert calls == 1
    assert usd == pytest.approx(0.0 if free else row["usd"], abs=1e-6)

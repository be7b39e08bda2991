"""A simulated day and more with a provider that fails, throttles or is slow: docs/RELIABILITY.md.

The flow, its queue, books and breakers are the real ones, over real files; the clock and the event
loop's time are simulated (`storm_bench`). Providers that fail answer over a real socket of the
loopback; slow ones, and those that are well again, are models of the suite, as a thousand answers
over sockets would show nothing more.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from indexerd.indexing.indexer import Prepared
from indexerd.logs import Event, configure
from indexerd.models.base import Model
from indexerd.models.budget import day_of
from indexerd.models.gemini import Gemini
from indexerd.models.openai import OpenAICompat
from indexerd.models.scripted import Delayed, Scripted
from indexerd.settings import Budget, Loaded, OpenAIProvider, Price, Providers, Settings, Watch
from tests.fakes.gemini_server import GeminiServer
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.wire import FakeServer
from tests.models.storm_bench import DAY, HOUR, Storm, Watched, told

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

MODEL = "model-1"
CALLS_A_DAY = 30  # of a provider that is down: docs/RELIABILITY.md
LONGEST_REST = 1.1 * 2 * HOUR  # two hours, and up to a tenth more
FEW, MANY = 100, 1000
ALONE = 5  # sessions that were tried again and again, and have waits of their own


@pytest.fixture(autouse=True)
def _logged(tmp_path: Path) -> Iterator[None]:
    """The real log, in a file, at the level that is the default."""
    held = structlog.get_config()
    configure("info", "json", log_file=tmp_path / "log.jsonl", stderr=None)
    yield
    structlog.configure(**held)


def settings(budget: Budget | None = None) -> Settings:
    """One model that leaves the machine, with a price."""
    prices = {MODEL: Price(input=0.1, output=0.4)}
    own = OpenAIProvider(base_url="http://127.0.0.1:9", prices=prices)
    return Settings(
        model_keys=[f"openai/{MODEL}"],
        watch=Watch(rescan_seconds=HOUR),
        budget=budget or Budget(),
        providers=Providers(openai=own),
    )


def well(like: Model) -> Model:
    """A provider when it answers again."""
    return Scripted(key=like.key)


class Kind:
    """How a provider fails."""

    def __init__(self, answer: str, *, gemini: bool = False, denied: bool = False) -> None:
        self.answer, self.gemini, self.denied = answer, gemini, denied
        self.free = denied or answer.startswith("429")  # it says itself that it did nothing

    def down(self, stack: ExitStack, limits: Settings) -> tuple[Model, bool]:
        """A model that fails so, and whether its calls are real requests."""
        if self.answer == "slow":
            return Scripted([Delayed(1e9)] * MANY, key=f"openai/{MODEL}"), False
        if self.answer == "refused":
            return OpenAICompat(MODEL, "key", f"http://127.0.0.1:{_nobody()}", limits.model), True
        server: FakeServer = GeminiServer() if self.gemini else OpenAIServer()
        stack.enter_context(server)
        server.default = self.answer
        if self.gemini:
            return Gemini("gemini-3.5-flash-lite", "key", server.url, limits.model), True
        return OpenAICompat(MODEL, "key", server.url, limits.model), True


def _nobody() -> int:
    """A port at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


KINDS = {
    "refused connections": Kind("refused"),
    "500": Kind("500_json"),
    "503 with a wish": Kind("503_json", gemini=True),
    "slow": Kind("slow"),
    "429": Kind("429_bare", gemini=True),
    "429 with a wish": Kind("429_seconds"),
    "429 until tomorrow": Kind("429_huge", gemini=True),
    "401": Kind("401", denied=True),
    "403": Kind("403", gemini=True, denied=True),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_day_with_a_provider_that_fails(tmp_path: Path, kind: Kind) -> None:
    """M3, M4, M5, M16: at most 30 requests, little in log and books; then all goes on by itself."""
    storm = Storm(tmp_path, settings(Budget(daily_calls=10_000, daily_usd=100.0)), FEW)

    async def work() -> None:
        with ExitStack() as stack:
            model, real = kind.down(stack, storm.settings)
            asked = storm.use(model, real=real)
            await asyncio.sleep(DAY)
            _bounded(storm, asked, kind)
            await model.aclose()
        await _recovered(storm, model, kind)

    storm.work(work)


def _bounded(storm: Storm, asked: Watched, kind: Kind) -> None:
    """What a day of failures may cost."""
    requests = len(asked.calls)
    assert 1 <= requests <= (2 if kind.denied else CALLS_A_DAY)
    assert asked.most <= storm.settings.index.concurrency
    assert storm.described() == set()

    # The books: each request was booked before; what is not known to be free stays booked.
    reserved, freed = _booked(storm.root / "budget.jsonl")
    assert len(reserved) == requests
    assert all(reserved.values())
    assert freed == (set(reserved) if kind.free else set())

    # The log: each session is told of once, each trial in a few lines, the outage in one.
    lines = storm.log.lines.total()
    assert told(storm, Event.MODEL_BREAKER_OPEN) == 1
    assert told(storm, Event.INDEX_FAILED) <= 5  # the fifth in a row opens the breaker
    assert storm.log.warnings <= 6
    assert lines <= 2 * FEW + 6 * requests + 10
    assert 0 < storm.log_bytes() <= 500 * lines

    # The status: one cause, and how many wait for it.
    (code,) = storm.budget.troubles()
    assert code == ("model_unavailable" if kind.denied else "provider_unavailable")
    whys = Counter(known.setback.why for known in storm.pipeline.known.values())
    assert whys[code] >= FEW - 5
    assert not storm.pipeline.jobs.running
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Prepared)]  # no prompt is kept


async def _recovered(storm: Storm, failing: Model, kind: Kind) -> None:
    """The provider is well: all are described soon, by one call each, no faster than allowed."""
    since = storm.clock()
    asked = storm.use(well(failing))
    if kind.denied:  # a key was mended: what SIGHUP does
        storm.budget.reset_denials()
        await storm.pipeline.reload(Loaded(storm.settings), storm.pipeline.models)
    patience = LONGEST_REST + HOUR
    while len(storm.described()) < FEW:
        if len(storm.described()) >= FEW - ALONE:
            patience = LONGEST_REST + 6 * HOUR  # a session that failed so often waits for so long
        assert storm.clock() - since < patience, len(storm.described())
        await asyncio.sleep(60.0)
    await asyncio.sleep(HOUR)
    assert len(asked.calls) == FEW
    assert asked.calls[0] - since <= (60.0 if kind.denied else LONGEST_REST + 60.0)
    _paced(storm, asked.calls)
    many = asked.calls[: FEW - ALONE]
    assert many[-1] - many[0] <= (FEW / _pace(storm) + 2) * 60.0
    assert told(storm, Event.MODEL_BREAKER_CLOSED) == 1
    assert told(storm, Event.INDEX_SUCCEEDED) == FEW
    assert storm.budget.troubles() == {}


def test_a_thousand_sessions_a_day_of_failures_and_what_comes_after(tmp_path: Path) -> None:
    """M16: with the caps that are the default: newest first, as many a day and minute as allowed.

    On the first day nothing comes of 30 calls; on those after it all sessions get their turn.
    """
    storm = Storm(tmp_path, settings(), MANY)

    async def work() -> None:
        with ExitStack() as stack:
            model, real = KINDS["500"].down(stack, storm.settings)
            failing = storm.use(model, real=real)
            await asyncio.sleep(DAY)
            assert len(failing.calls) <= CALLS_A_DAY
            first = [storm.ids.index(_session(storm, text)) for text in failing.asked[:2]]
            assert sorted(first) == [0, 1]  # at once, so in any order
            assert storm.log.lines.total() <= 2 * MANY + 6 * CALLS_A_DAY + 10
            assert storm.log.warnings <= 6
            await model.aclose()
        asked = storm.use(well(failing))
        days = 0
        while len(storm.described()) < MANY:
            days += 1
            assert days <= 4, len(storm.described())
            await asyncio.sleep(DAY)
            _newest_first(storm)
        assert len(asked.calls) == MANY
        _paced(storm, asked.calls)
        a_day = Counter(day_of(when) for when in [*failing.calls, *asked.calls])
        assert max(a_day.values()) == storm.settings.budget.daily_calls
        # Besides what a session's run says, each is told once a day what it waits for.
        assert storm.log.lines.total() <= (5 + 2 * (days + 1)) * MANY
        assert storm.log.warnings <= 6 + 24 * (days + 1)

    storm.work(work)


def _newest_first(storm: Storm) -> None:
    """What is not described yet is older than what is, but for those that failed themselves."""
    done = storm.described()
    places = sorted(storm.ids.index(one) for one in done)
    assert places[-1] < len(done) + CALLS_A_DAY


def _session(storm: Storm, text: str) -> str:
    return next(one for one in storm.ids if one in text)


def _pace(storm: Storm) -> int:
    return storm.settings.budget.requests_per_minute


def _paced(storm: Storm, calls: list[float]) -> None:
    """No minute has more requests than are allowed."""
    for first, later in zip(calls, calls[_pace(storm) :], strict=False):
        assert later - first >= 60.0 - 1e-3


def _booked(path: Path) -> tuple[dict[str, float | None], set[str]]:
    """What was reserved, and which of it was given back whole."""
    reserved: dict[str, float | None] = {}
    freed: set[str] = set()
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["op"] == "reserve":
            reserved[row["id"]] = row["usd"]
        elif row["op"] == "settle" and row["usd"] == 0.0:
            freed.add(row["id"])
    return reserved, freed

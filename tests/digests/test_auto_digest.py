"""When digests come by themselves: at a turn's end, after growth, and again after a failure."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from indexerd.digests.auto_digest import FAILURES_MAX, AutoDigests
from indexerd.errors import ModelUnavailableError, ProviderError, RefusedError
from indexerd.models.extractive import Extractive
from indexerd.models.scripted import Scripted
from indexerd.times import iso_ms
from tests.digests.grown import Clock, auto, grown
from tests.models.digest_bench import NOW, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A session that holds nothing yet."""
    return Bench(tmp_path)


@pytest.mark.parametrize("least", [1, 10_000])
def test_one_more_than_the_threshold(bench: Bench, least: int) -> None:
    """S2.3, S2.4: 50 do not, 51 do, after the quiet time, whatever the index threshold is."""
    bench.settings = bench.settings.model_copy(update={"min_new_user_messages": least})
    model = bench.scripted("One.", "Two.")
    bench.session.talk(25)
    assert grown(bench, 0, 1.9, 2.1, 99) == [0, 0, 0, 0]
    bench.session.say("assistant", "One thing more.", stopReason="stop")
    assert grown(bench, 0, 1.9, 2.1, 99) == [0, 0, 1, 1]
    bench.session.talk(20)
    assert grown(bench, 99) == [1]
    bench.session.say("assistant", "One thing more.", stopReason="stop")
    assert grown(bench, 99) == [2]
    assert [one["covering_messages"] for one in bench.lines()] == [[0, 40], [41, 81]]
    assert len(model.calls) == 2
    first, second = (event for event in bench.heard if event["event"] == "digest.created")
    assert (first["covering"], second["covering"]) == ([0, 40], [41, 81])
    assert first.keys() >= {"before", "after", "reduction", "tokensSaved", "topics", "files"}
    assert first.keys() >= {"commands", "decisions", "model", "costUsd", "segmentId"}


def test_a_turn_that_goes_on_is_waited_for(bench: Bench) -> None:
    """S2.3: in the middle of one nothing is summed up; a failed one is given longer."""
    bench.scripted("One.")
    bench.session.talk(30)
    bench.session.say("user", "More.")
    assert grown(bench, 0, 3, 999) == [0, 0, 0]
    bench.session.say("assistant", "", stopReason="error", errorMessage="overloaded")
    assert grown(bench, 3, 14.9, 15.1) == [0, 0, 1]


def test_what_did_not_grow_is_left_alone(bench: Bench) -> None:
    """S2.25: a long session that was there before is not looked at."""
    model = bench.scripted("One.")
    bench.session.talk(40)

    async def work(made: AutoDigests, clock: Clock) -> None:
        clock.now += 999
        await made.step()
        await asyncio.wait_for(made.settle(), 5)

    auto(bench, work)
    assert (model.calls, bench.lines()) == ([], [])


def test_with_a_bad_configuration_nothing_is_made(bench: Bench) -> None:
    """S0.26: nor with digests switched off (S2.2)."""
    model = bench.scripted("One.")
    bench.session.talk(40)
    assert grown(bench, 0, 99, off=True) == [0, 0]
    bench.made(digest={"enabled": False})
    assert grown(bench, 0, 99) == [0, 0]
    bench.made(digest={"exclude": ["/w"]})
    assert grown(bench, 0, 99) == [0, 0]
    assert model.calls == []


def test_a_large_context_is_reason_enough(bench: Bench) -> None:
    """S3.16: tokens beyond the window less the reserve, where the user asks for that."""
    wanted = {"token_trigger": True, "context_window": 4000, "reserve_tokens": 1000}
    bench.made(digest=wanted | {"token_trigger": False})
    bench.scripted("One.")
    bench.session.talk(12)
    bench.session.turn("x" * 40_000)
    assert grown(bench, 99) == [0]
    bench.made(digest=wanted | {"context_window": 40_000})
    assert grown(bench, 99) == [0]
    bench.made(digest=wanted)
    assert grown(bench, 99) == [1]


@pytest.mark.parametrize("bad", [ProviderError("down"), RefusedError("no")])
def test_a_failure_is_told_and_the_next_turns_end_tries_again(bench: Bench, bad: Any) -> None:
    """S2.20: nothing is stored; no word of the session is in log, event or audit trail."""
    bench.session.talk(30)
    bench.scripted(bad)
    assert grown(bench, 3) == [0]
    (told,) = (event for event in bench.heard if event["event"] == "digest.failed")
    (line,) = bench.events("digest.failed")
    assert told["kind"] == line["kind"] == bad.kind
    assert told["retryable"] is bad.retryable
    assert [row["success"] for row in bench.rows()] == [False]
    assert "widget" not in json.dumps([bench.heard, bench.log.lines, bench.rows()])
    bench.models = [Scripted(["One."])]
    bench.session.talk(1)
    assert grown(bench, 3) == [1]


def test_what_may_pass_is_tried_again_without_growth(bench: Bench) -> None:
    """S2.20: after a back-off that doubles, five times at most; what cannot pass is not."""
    bench.session.talk(30)
    model = Scripted([ProviderError("down")] * 99)
    bench.models = [model]

    async def work(made: AutoDigests, clock: Clock) -> list[int]:
        made.grown(bench.session.id)
        tries = []
        for moment in range(0, 3000, 10):
            clock.now = NOW + moment
            before = len(model.calls)
            await made.step()
            tries += [moment] * (len(model.calls) - before)
        return tries

    tries = auto(bench, work)
    assert len(tries) <= FAILURES_MAX
    assert tries[0] == 10
    pauses = [later - first for first, later in pairwise(tries)]
    assert all(pause >= 60 * 2**n for n, pause in enumerate(pauses))
    model = Scripted([RefusedError("no")] * 99)
    bench.models = [model]
    assert grown(bench, *range(0, 3000, 10))[-1] == 0
    assert len(model.calls) == 1


def test_a_provider_says_when_to_try_again(bench: Bench) -> None:
    """M3: its wish is kept."""
    bench.session.talk(30)
    bench.scripted(ProviderError("busy", retry_after=300.0), "One.")
    assert grown(bench, 3, 299, 304) == [0, 0, 1]


def test_a_single_pass_ends_although_something_fails(bench: Bench) -> None:
    """`run --once`: the quiet time is waited for, a back-off is not, be it ever so short."""
    bench.made(index={"quiet_seconds": 0.05})
    bench.session.talk(30)
    model = bench.scripted(ProviderError("down", retry_after=0.1), "One.")

    async def work(made: AutoDigests, clock: Clock) -> None:
        made.grown(bench.session.id)
        clock.now += 1
        await asyncio.wait_for(made.settle(), 10)

    auto(bench, work)
    assert (len(model.calls), bench.lines()) == (1, [])
    bench.models = []
    auto(bench, work)
    (_, line) = bench.events("digest.failed")
    assert line["kind"] == ModelUnavailableError.kind


def test_a_defect_is_logged_and_does_not_end_anything(bench: Bench) -> None:
    """What no error of ours says is told as a defect; the next session is looked at."""
    bench.session.talk(30)

    class Broken(Scripted):
        async def generate(self, prompt: Any, *, timeout: float) -> Any:
            raise ZeroDivisionError

    bench.models = [Broken()]
    assert grown(bench, 3, 99) == [0, 0]
    (line,) = bench.events("digest.failed")
    assert line["reason"] == "defect"


def test_what_began_since_counts_as_grown_and_what_was_there_does_not(bench: Bench) -> None:
    """S2.25: by when the session says that it began; at a first start, since this daemon did."""

    async def work(made: AutoDigests, clock: Clock) -> list[int]:
        found = []
        began = iso_ms(made._known[bench.session.id].card.created_at) / 1000
        for since in (began + 1, began):
            made._since = since
            made.met(bench.session.id)
            clock.now = NOW + 10
            await made.step()
            found.append(len(bench.lines()))
        return found

    bench.session.talk(30)
    bench.models = [Extractive()]
    assert auto(bench, work) == [0, 1]

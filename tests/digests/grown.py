"""A session that grows, and what sums it up by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from indexerd.digests.auto import AutoDigests
from indexerd.indexing.runtime import SessionRuntime
from tests.models.digest_bench import NOW, Bench, Services


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def auto(
    bench: Bench,
    work: Callable[[AutoDigests, Clock], Coroutine[Any, Any, Any]],
    *,
    off: bool = False,
) -> Any:
    """Do something with what makes digests, for the session as it is; it changed just now."""
    clock = Clock()

    async def run(held: Services) -> Any:
        card = held.library.files.card(bench.session.id)
        assert card is not None
        made = AutoDigests(
            partial(held.digests.make, manual=False),
            {bench.session.id: SessionRuntime(card, None, NOW, NOW)},
            settings=lambda: bench.settings,
            off=lambda: off,
            events=held.bus,
            clock=clock,
            notes=held.library.store,
            run=held.read,
            ready=partial(asyncio.sleep, 0),
            since=NOW,
        )
        return await work(made, clock)

    return bench.run(run)


def grown(bench: Bench, *moments: float, off: bool = False) -> list[int]:
    """How many segments there are so many seconds after the session grew."""

    async def work(made: AutoDigests, clock: Clock) -> list[int]:
        made.grown(bench.session.id)
        found = []
        for moment in moments:
            clock.now = NOW + moment
            await made.step()
            found.append(len(bench.lines()))
        return found

    counts: list[int] = auto(bench, work, off=off)
    return counts

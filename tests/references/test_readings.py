"""Places for questions, work that is shared, and work that ends when nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from indexerd.errors import NotFoundError
from indexerd.models.threads import Check, stoppable
from indexerd.references.readings import AT_ONCE, LARGE, LARGE_AT_ONCE, Places, Shared

PATIENCE = 30.0


async def until(found: Callable[[], Any]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not found():  # noqa: ASYNC110 - what is waited for happens in threads
            await asyncio.sleep(0)


class Endless:
    """Work that goes on until its check raises; and whether it did."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.stopped = threading.Event()

    def __call__(self, check: Check) -> str:
        """Spin."""
        self.running.set()
        end = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:
                check()
        except BaseException:
            self.stopped.set()
            raise
        return "nobody stopped it"


def test_work_in_a_thread_gives_its_result_or_its_error() -> None:
    """X: nothing of it is lost on the way."""
    assert asyncio.run(stoppable(lambda _check: "done")) == "done"

    def fails(_check: Check) -> None:
        raise NotFoundError("no")

    with pytest.raises(NotFoundError, match="no"):
        asyncio.run(stoppable(fails))


def test_a_cancelled_task_ends_once_its_thread_has() -> None:
    """A place is free when it is given back, and not merely said to be."""
    work = Endless()

    async def run() -> None:
        task = asyncio.create_task(stoppable(work))
        await until(work.running.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.stopped.is_set()

    asyncio.run(run())


def test_a_deadline_ends_the_work_as_well() -> None:
    """A question that is given up costs nothing further."""
    work = Endless()

    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stoppable(work)
        assert work.stopped.is_set()

    asyncio.run(run())


def test_small_sessions_are_not_stuck_behind_large_ones() -> None:
    """However many large ones wait, a small one gets a place at once; and there is an end to it."""
    inside: Counter[int] = Counter()

    async def hold(places: Places, size: int, let_go: asyncio.Event) -> None:
        async with places.place(size):
            inside[size] += 1
            await let_go.wait()
            inside[size] -= 1

    async def run() -> None:
        places, let_go = Places(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(hold(places, LARGE, let_go))
            await until(lambda: inside[LARGE] == LARGE_AT_ONCE)
            for _ in range(10):
                group.create_task(hold(places, LARGE - 1, let_go))
            await until(lambda: inside.total() == AT_ONCE)
            assert inside[LARGE] == LARGE_AT_ONCE
            let_go.set()
        assert inside.total() == 0

    asyncio.run(run())


def test_a_place_is_taken_until_its_thread_has_ended() -> None:
    """Those who hung up do not make room for more than there are places."""
    works = [Endless() for _ in range(LARGE_AT_ONCE + 1)]

    async def one(places: Places, work: Endless) -> str:
        async with places.place(LARGE):
            assert sum(a.running.is_set() and not a.stopped.is_set() for a in works) < LARGE_AT_ONCE
            return await stoppable(work)

    async def run() -> None:
        places = Places()
        tasks = [asyncio.create_task(one(places, work)) for work in works]
        await until(lambda: sum(work.running.is_set() for work in works) == LARGE_AT_ONCE)
        tasks[0].cancel()
        await until(works[-1].running.is_set)
        assert works[0].stopped.is_set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(run())


def test_the_same_work_is_done_once_while_it_is_under_way() -> None:
    """All get the one result, or the one error; afterwards it is done anew."""
    done: Counter[str] = Counter()

    async def run() -> None:
        shared: Shared[str] = Shared()

        async def work(key: str) -> str:
            done[key] += 1
            await asyncio.sleep(0)
            if key == "bad":
                raise NotFoundError("no")
            return key

        keys = ["a", "a", "b", "bad", "a", "bad"]
        asked = (shared.get(key, lambda key=key: work(key)) for key in keys)  # type: ignore[misc]  # the default binds it
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(one) for one in found] == ["a", "a", "b", "no", "a", "no"]
        assert done == {"a": 1, "b": 1, "bad": 1}
        assert await shared.get("a", lambda: work("a")) == "a"
        assert done["a"] == 2

    asyncio.run(run())


def test_shared_work_ends_with_the_last_who_waits() -> None:
    """One who hangs up takes nothing from the others; with the last of them the work stops."""
    first, second = Endless(), Endless()

    async def run() -> None:
        shared: Shared[str] = Shared()
        both = [asyncio.create_task(shared.get("x", lambda: stoppable(first))) for _ in range(2)]
        await until(first.running.is_set)
        both[0].cancel()
        await asyncio.wait({both[0]})
        assert not first.stopped.is_set()
        both[1].cancel()
        await asyncio.wait({both[1]})
        again = asyncio.create_task(shared.get("x", lambda: stoppable(second)))
        await until(second.running.is_set)  # what is ending is not joined
        await until(first.stopped.is_set)
        again.cancel()
        await asyncio.wait({again})
        await until(second.stopped.is_set)

    asyncio.run(run())

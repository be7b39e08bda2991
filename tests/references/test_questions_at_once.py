"""Questions that are asked at the same time: what is shared, and what stops when nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.reader import Reader
from indexerd.errors import (
    DeadlineError,
)
from indexerd.events import Prompt
from indexerd.models.base import Reply
from indexerd.models.threads import stoppable
from indexerd.references.readings import Readings, Wanted
from indexerd.references.recall import gathered_of, taken_of
from tests.models.question_desk import GOOD, Desk, desks, made


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A session of two turns."""
    yield from desks(tmp_path)


class Slow:
    """A local model that looks until it is told to stop, or let go; and how often it was asked."""

    key = "local/slow"
    remote = False

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.stopped = 0
        self.let_go = threading.Event()

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Answer once it is let go."""
        assert timeout > 0
        self.asked.append(prompt.user)
        return Reply(await stoppable(self._look), self.key)

    def _look(self, check: Callable[[], None]) -> str:
        try:
            while not self.let_go.wait(0.001):
                check()
        finally:
            self.stopped += not self.let_go.is_set()
        return GOOD

    async def aclose(self) -> None:
        """Nothing is held."""

    async def until(self, asked: int, stopped: int = 0) -> None:
        """Wait until it was asked, and stopped, so often."""
        async with asyncio.timeout(20):
            while (len(self.asked), self.stopped) != (asked, stopped):  # noqa: ASYNC110 - in threads
                await asyncio.sleep(0.001)


def test_the_same_question_is_looked_for_once(desk: Desk) -> None:
    """Twenty clients that ask the same share the work, and each gets its answer."""
    model = Slow()
    desk.models = [model]
    questions = desk.open()

    async def run() -> list[dict[str, Any]]:
        asked = [
            asyncio.create_task(questions.answer(desk.session.id, text))
            for text in ["Why?"] * 20 + ["How?"]
        ]
        await model.until(2)
        model.let_go.set()
        return list(await asyncio.gather(*asked))

    found = asyncio.run(run())
    assert sorted(model.asked) == ["How?", "Why?"]
    assert [one["answerMarkdown"] for one in found] == ["To a file."] * 21
    assert len(desk.telemetry()) == 21


def test_another_text_of_the_session_is_another_question(desk: Desk) -> None:
    """What was said since, or is seen from another entry, is not answered from an old reading."""
    model = Slow()
    desk.models = [model]
    first = desk.session.last
    questions = desk.open()

    async def run() -> None:
        asked = [asyncio.create_task(questions.answer(desk.session.id, "Why?"))]
        await model.until(1)
        desk.session.turn("Later?", "Much later.")
        list(desk.library.hinted([str(desk.session.path)]))
        asked.append(asyncio.create_task(questions.answer(desk.session.id, "Why?")))
        await model.until(2)
        asked.append(asyncio.create_task(questions.answer(desk.session.id, "Why?", leaf=first)))
        model.let_go.set()
        await asyncio.gather(*asked)

    asyncio.run(run())


def test_a_reading_is_shared_while_the_session_stays_the_same(desk: Desk) -> None:
    """One reading for all who see the same; whoever comes after a change, or elsewhere, reads."""
    first = desk.session.last
    desk.session.turn("And then?", "More.")
    desk.open()
    let_go, reading = threading.Event(), threading.Semaphore(0)
    read = Reader()

    def clean(text: str) -> tuple[str, dict[str, int]]:
        reading.release()
        assert let_go.wait(20)
        return text, {}

    async def run() -> list[str]:
        readings = Readings(desk.library, read)
        whole = Wanted(desk.session.id, None, 10_000, local=True, redaction="")
        asked = [asyncio.create_task(readings.text(whole, clean)) for _ in range(3)]
        assert await asyncio.to_thread(reading.acquire, timeout=20)
        early = replace(whole, leaf=first)
        asked.append(asyncio.create_task(readings.text(early, clean)))
        desk.session.turn("Later?", "Much later.")
        await read(lambda: list(desk.library.hinted([str(desk.session.path)])))
        asked.append(asyncio.create_task(readings.text(whole, clean)))
        for _ in range(2):
            assert await asyncio.to_thread(reading.acquire, timeout=20)
        let_go.set()
        return [one.context.sections[-1].text for one in await asyncio.gather(*asked)]

    assert asyncio.run(run()) == ["More.", "More.", "More.", "They pass.", "Much later."]
    assert not reading.acquire(blocking=False)
    read.close()


def test_who_hangs_up_or_is_too_late_stops_the_work(desk: Desk) -> None:
    """Nothing goes on for nobody; but as long as one of them waits, it does."""
    model = Slow()
    desk.models = [model]
    questions = desk.open()

    async def run() -> None:
        both = [
            asyncio.create_task(questions.answer(desk.session.id, "Why?", turn_id=f"t{n}"))
            for n in range(2)
        ]
        await model.until(1)
        both[0].cancel()
        await asyncio.wait({both[0]})
        assert model.stopped == 0
        both[1].cancel()
        await model.until(1, stopped=1)

    asyncio.run(run())
    desk.settings = made(query={"timeout_seconds": 1.0})

    async def late() -> None:
        with pytest.raises(DeadlineError) as caught:
            await questions.answer(desk.session.id, "Why?")
        assert str(caught.value).startswith("local/slow: no answer within ")
        await model.until(2, stopped=2)

    asyncio.run(late())


def test_reading_stops_where_its_check_says_so(desk: Desk) -> None:
    """A large session is not read to its end for nobody."""
    desk.open()
    taken = taken_of(desk.library, desk.session.id, None)
    left = 2

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        gathered_of(taken, 10_000, lambda text: (text, {}), check)
    taken = taken_of(desk.library, desk.session.id, None)
    assert gathered_of(taken, 10_000, lambda text: (text, {})).sections

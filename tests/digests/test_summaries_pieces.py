"""A summary of what is too long for one call: pieces, what each knows, and what is left out."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from indexerd.digests.summaries import Task
from indexerd.digests.talk import Talk
from indexerd.errors import (
    ContextTooLargeError,
)
from indexerd.events import Prompt
from indexerd.models.base import Reply
from indexerd.models.extractive import Extractive
from indexerd.models.scripted import Scripted
from tests.models.summary_desk import TASK, Desk


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

"""Which model is asked, how often, and that every request is reported once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    OutputInvalidError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.events import Prompt
from indexerd.models.attempts import (
    Attempt,
    Rejected,
    ask,
    first_usable,
)
from indexerd.models.base import Model, Reply, Tokens
from indexerd.models.budget import Budget
from indexerd.settings import Settings
from tests.fakes.scripted import Scripted

PROMPT = Prompt("", "Describe this.")


class Desk:
    """A budget, and what is reported of attempts."""

    def __init__(self, root: Path) -> None:
        self.budget = Budget(root / "budget.jsonl", Settings, lambda: 1e9, lambda *_: None)
        self.attempts: list[Attempt] = []

    async def ask(self, model: Model) -> str:
        """Take any reply but "bad"."""
        return await ask(
            model,
            PROMPT,
            self.budget,
            timeout=5.0,
            read=lambda reply: Rejected("it is bad") if reply.text == "bad" else reply.text,
            again=lambda reply, error: Prompt("", f"{reply.text}: {error}"),
            report=self.attempts.append,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A budget that was never used."""
    return Desk(tmp_path)


def test_a_malformed_reply_is_asked_for_again_with_what_was_wrong(desk: Desk) -> None:
    """S0.22, S2.24: each attempt is reported once; the retry says what was wrong."""
    model = Scripted(["bad", Reply("good", "flash", tokens=Tokens(9, 3))], key="google/flash")
    assert asyncio.run(desk.ask(model)) == "good"
    assert [one.error for one in desk.attempts] == ["it is bad", None]
    assert [one.number for one in desk.attempts] == [1, 2]
    assert model.calls[1].user == "bad: it is bad"
    assert desk.attempts[1].audit()["usage"]["inputTokens"] == 9


def test_a_defect_is_reported_without_its_words(desk: Desk) -> None:
    """S2.24: what was sent was sent; a defect's own text may quote the prompt."""

    class Defect(Scripted):
        async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
            raise ValueError("the prompt, quoted")

    with pytest.raises(ValueError, match="quoted"):
        asyncio.run(desk.ask(Defect(key="google/flash")))
    assert [one.error for one in desk.attempts] == ["internal error: ValueError"]


ONE, TWO = Scripted(key="google/one"), Scripted(key="openai/two")
LOCAL = Scripted(key="local/extractive", remote=False)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (ModelUnavailableError("no key"), [ONE, TWO, LOCAL]),
        (ProviderDeniedError("401"), [ONE, TWO, LOCAL]),
        (RefusedError("declined"), [ONE, LOCAL]),
        (ContextTooLargeError("too large"), [ONE, LOCAL]),
        (BudgetError("spent"), [ONE, LOCAL]),
        (ProviderError("503"), [ONE]),
        (DeadlineError("late"), [ONE]),
        (OutputInvalidError("prose"), [ONE]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_which_models_are_asked_after_a_failure(error: IndexerdError, asked: list[Any]) -> None:
    """S0.27, M11, M16: a model that is not served makes room; a passing failure is waited for."""
    tried: list[Model] = []

    async def fails(model: Model) -> str:
        tried.append(model)
        raise error

    with pytest.raises(type(error)):
        asyncio.run(first_usable([ONE, TWO, LOCAL], fails))
    assert tried == asked

"""Which models are asked after a failure."""

import asyncio
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
from indexerd.models.attempts import (
    first_usable,
)
from indexerd.models.base import Model
from tests.fakes.scripted import Scripted

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
    """S0.27: an unavailable model is skipped; a temporary failure is waited for."""
    tried: list[Model] = []

    async def fails(model: Model) -> str:
        tried.append(model)
        raise error

    with pytest.raises(type(error)):
        asyncio.run(first_usable([ONE, TWO, LOCAL], fails))
    assert tried == asked

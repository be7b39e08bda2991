"""Calls of models, as an indexing run and a question both make them: booked, and in order.

`first_of` says which model is asked; `booked` makes one call of it. Neither retries: malformed
answers are their caller's business, failing providers the pipeline's, or the user's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    ModelError,
    ModelUnavailableError,
    ProviderDeniedError,
    RefusedError,
)
from indexerd.events import Prompt
from indexerd.indexing.transcript import Redactor
from indexerd.models.base import Model, Reply
from indexerd.models.treasury import Treasury
from indexerd.privacy.redact import redact
from indexerd.privacy.redact_extra import compile_extra
from indexerd.settings import Settings

ATTEMPTS = 3  # at an answer of the right shape
CANCELLED = "cancelled"  # in the audit: the request was out, and nobody waited for its answer
_T = TypeVar("_T")


@dataclass(slots=True)
class Spent:
    """What all attempts together cost."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0

    def add(self, reply: Reply, usd: float | None) -> None:
        """Count one answered call; an unknown cost makes the sum unknown."""
        self.calls += 1
        self.input_tokens += reply.tokens.input or 0
        self.output_tokens += reply.tokens.output or 0
        self.usd = None if usd is None or self.usd is None else self.usd + usd


@dataclass(frozen=True, slots=True)
class Called:
    """One answered call. `usd` is None where the cost is not known."""

    reply: Reply
    usd: float | None
    ms: int

    @property
    def usage(self) -> dict[str, Any]:
        """What it took, as a row of the audit trail says it."""
        tokens = self.reply.tokens
        return {
            "inputTokens": tokens.input,
            "outputTokens": tokens.output,
            "costUsd": self.usd,
        }


async def first_of(
    models: Sequence[Model], ask: Callable[[Model], Awaitable[_T]]
) -> tuple[_T, Model]:
    """Ask the first model that is to be had (S0.27); ModelUnavailableError where there is none.

    One that its provider does not serve makes room for the next. Content that was declined, or is
    too large, and a day's budget that is used up make room for a local one (M11, M16).
    """
    rest = list(models)
    error: ModelError = ModelUnavailableError("no configured model can be used")
    while rest:
        model = rest.pop(0)
        try:
            return await ask(model), model
        except (ProviderDeniedError, ModelUnavailableError) as bad:
            error = bad
        except (BudgetError, RefusedError, ContextTooLargeError) as bad:
            if isinstance(bad, BudgetError) and bad.passing:
                raise  # a minute's wait is no reason to settle for less
            error = bad
            rest = [one for one in rest if not one.remote]
    raise error


async def booked(
    treasury: Treasury,
    model: Model,
    prompt: Prompt,
    *,
    seconds: float,
    failed: Callable[[str, int], None],
    admitted: Callable[[], None] = lambda: None,
) -> Called:
    """Make one call within `seconds`, with what it may cost booked before, and what it did after.

    `admitted()` is called just before the model is; `failed(why, ms)` where that fails, and where
    the call is cancelled after it (S2.24): what was sent was sent.
    """
    ticket = await treasury.admit(model, prompt)
    admitted()
    started = perf_counter()
    try:
        reply = await model.generate(prompt, timeout=seconds)
    except BaseException as bad:
        failed(_why(bad), _ms_since(started))  # first: whoever cancels may do it twice
        await asyncio.shield(treasury.failed(ticket, model, bad))
        raise
    ms = _ms_since(started)
    try:
        usd = await treasury.settle(ticket, model, reply)
    except asyncio.CancelledError:
        failed(CANCELLED, ms)
        raise
    return Called(reply, usd, ms)


def _why(bad: BaseException) -> str:
    """Why a call came to nothing, for the audit; words of a defect of ours may tell too much."""
    if isinstance(bad, asyncio.CancelledError):
        return CANCELLED
    return str(bad) if isinstance(bad, ModelError) else f"internal error: {type(bad).__name__}"


def redactor(settings: Settings) -> Redactor:
    """The redaction that the settings ask for."""
    if not settings.redact.enabled:
        return lambda text: (text, {})
    extra = compile_extra(settings.redact.extra_patterns)

    def clean(text: str) -> tuple[str, dict[str, int]]:
        found = redact(text, extra)
        return found.text, found.counts

    return clean


def _ms_since(started: float) -> int:
    return round((perf_counter() - started) * 1000)

"""Every model call: which model is asked, how often, and what each attempt cost.

`first_usable` chooses the model; `ask` makes at most three attempts at a usable reply. Each attempt
is booked before the request leaves, settled afterwards, and reported once. A failing provider ends
`ask` at once: when to try again is the caller's decision.
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
    OutputInvalidError,
    ProviderDeniedError,
    RefusedError,
)
from indexerd.events import Prompt
from indexerd.models.base import Model, Reply
from indexerd.models.budget import Budget

ATTEMPTS = 3
CANCELLED = "cancelled"
_T = TypeVar("_T")


@dataclass(slots=True)
class Spent:
    """The cost of all attempts together."""

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
class Rejected:
    """An unusable reply; `error` is written for the model to read."""

    error: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call. `error` is None for a usable reply, `usd` if no cost is known."""

    model: str
    number: int
    ms: int
    error: str | None = None
    reply: Reply | None = None  # None: the call itself failed
    usd: float | None = None

    def audit(self) -> dict[str, Any]:
        """Return the attempt's fields of a telemetry row."""
        row: dict[str, Any] = {"model": self.model, "attempt": self.number, "ms": self.ms}
        row |= {"success": self.error is None, "error": self.error}
        if self.reply is not None:
            used = self.reply.tokens
            row["usage"] = {"inputTokens": used.input, "outputTokens": used.output}
            row["usage"]["costUsd"] = self.usd
        return row


async def first_usable(
    models: Sequence[Model], ask_model: Callable[[Model], Awaitable[_T]]
) -> tuple[_T, Model]:
    """Ask the first model that can be used; raise the last one's error if none can.

    If a provider does not serve a model, any other is asked; if the content is declined or too
    large, or the day's budget is spent, only local ones are. Other failures are waited out.
    """
    rest = list(models)
    error: ModelError = ModelUnavailableError("no configured model can be used")
    while rest:
        model = rest.pop(0)
        try:
            return await ask_model(model), model
        except (ProviderDeniedError, ModelUnavailableError) as bad:
            error = bad
        except (BudgetError, RefusedError, ContextTooLargeError) as bad:
            error, rest = bad, [one for one in rest if not one.remote]
    raise error


async def ask(
    model: Model,
    prompt: Prompt,
    budget: Budget,
    *,
    timeout: float,
    read: Callable[[Reply], _T | Rejected],
    again: Callable[[Reply, str], Prompt],
    report: Callable[[Attempt], None],
) -> _T:
    """Ask for a usable reply, in at most three calls of `timeout` seconds each.

    `read` runs in a thread. `again(reply, error)` is the prompt of a retry.
    """
    error = ""
    for number in range(1, ATTEMPTS + 1):
        call = await budget.reserve(model, prompt)
        started = perf_counter()
        try:
            reply = await model.generate(prompt, timeout=timeout)
        except BaseException as bad:
            ms = round((perf_counter() - started) * 1000)
            why = f"internal error: {type(bad).__name__}"  # a defect's text may quote the prompt
            if isinstance(bad, asyncio.CancelledError):
                why = CANCELLED
            elif isinstance(bad, ModelError):
                why = str(bad)
            report(Attempt(model.key, number, ms, why))  # first: a second cancel may come
            await asyncio.shield(budget.failed(call, bad))
            raise
        ms, usd = round((perf_counter() - started) * 1000), None
        try:
            usd = await budget.settle(call, reply)
            found = await asyncio.to_thread(read, reply)
        except asyncio.CancelledError:
            report(Attempt(model.key, number, ms, CANCELLED, reply, usd))
            raise
        error = found.error if isinstance(found, Rejected) else ""
        report(Attempt(model.key, number, ms, error or None, reply, usd))
        if not isinstance(found, Rejected):
            return found
        prompt = again(reply, error)
    raise OutputInvalidError(f"Malformed model output after {ATTEMPTS} attempts: {error}")

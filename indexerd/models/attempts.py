"""Every model call: which model is asked, how often, and what each attempt cost.

`first_usable` chooses the model; `Calls.ask` makes at most three attempts at a usable reply. Each
is booked before the request leaves, settled afterwards, and has one row of telemetry. A failing
provider ends `ask` at once: when to try again is the caller's decision.
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
from indexerd.privacy.sanitize import clean_line
from indexerd.times import iso

ATTEMPTS = 3
CANCELLED = "cancelled"
ERROR_MAX = 500  # characters of an error in telemetry
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Rejected:
    """An unusable reply; `error` is written for the model to read."""

    error: str


async def first_usable(
    models: Sequence[Model], ask_model: Callable[[Model], Awaitable[_T]]
) -> tuple[_T, Model]:
    """Ask the first model that can be used; raise the last one's error if none can.

    A model that its provider does not serve is skipped. After a refusal, a text that is too large
    or a spent budget, only local models are asked. Any other failure ends the search.
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


@dataclass(slots=True)
class Calls:
    """The calls for one purpose, and their cost together; an unknown cost makes the sum unknown.

    `audit` has the fields that all their rows of telemetry share. After each answer
    `on_answer(fields, error)` gets its figures, and why it is not usable.
    """

    budget: Budget
    audit: dict[str, Any]
    on_answer: Callable[[dict[str, Any], str], None] = lambda *_: None
    count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0

    async def ask(
        self,
        model: Model,
        prompt: Prompt,
        *,
        timeout: float,
        read: Callable[[Reply], _T | Rejected],
        again: Callable[[Reply, str], Prompt],
    ) -> _T:
        """Ask for a usable reply, in at most three calls of `timeout` seconds each.

        `read` runs in a thread. `again(reply, error)` is the prompt of a retry.
        """
        error = ""
        for number in range(1, ATTEMPTS + 1):
            call = await self.budget.reserve(model, prompt)
            row = {**self.audit, "model": model.key, "attempt": number}
            started = perf_counter()
            try:
                reply = await model.generate(prompt, timeout=timeout)
            except BaseException as bad:
                row["ms"] = round((perf_counter() - started) * 1000)
                why = (
                    f"internal error: {type(bad).__name__}"  # a defect's text may quote the prompt
                )
                if isinstance(bad, asyncio.CancelledError):
                    why = CANCELLED
                elif isinstance(bad, ModelError):
                    why = str(bad)
                self._record(row, why)  # first: a second cancel may come
                await asyncio.shield(self.budget.failed(call, bad))
                raise
            row["ms"] = round((perf_counter() - started) * 1000)
            try:
                self._count(row, reply, await self.budget.settle(call, reply))
                found = await asyncio.to_thread(read, reply)
            except asyncio.CancelledError:
                self._record(row, CANCELLED)
                raise
            error = found.error if isinstance(found, Rejected) else ""
            self._record(row, error)
            fields = {key: row[key] for key in ("model", "attempt", "ms")}
            self.on_answer(fields | {"cost_usd": row["usage"]["costUsd"]}, error)
            if not isinstance(found, Rejected):
                return found
            prompt = again(reply, error)
        raise OutputInvalidError(f"Malformed model output after {ATTEMPTS} attempts: {error}")

    def _count(self, row: dict[str, Any], reply: Reply, usd: float | None) -> None:
        used = reply.tokens
        row["usage"] = {"inputTokens": used.input, "outputTokens": used.output, "costUsd": usd}
        self.count += 1
        self.input_tokens += used.input or 0
        self.output_tokens += used.output or 0
        self.usd = None if usd is None or self.usd is None else self.usd + usd

    def _record(self, row: dict[str, Any], error: str) -> None:
        row |= {"success": not error, "timestamp": iso(self.budget.clock())}
        row["error"] = clean_line(error, ERROR_MAX) or None
        self.budget.record({key: value for key, value in row.items() if value is not None})

    def usage(self) -> dict[str, Any]:
        """Return the figures as the socket answers them."""
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "costUsd": self.usd,
            "calls": self.count,
        }

"""Make model calls: choose the model, retry unusable replies, and record what each attempt costs.

`first_usable` chooses the model; `Calls.ask` makes at most three attempts to get a usable reply.
The budget reserves each attempt's cost before the request and settles it afterwards, and each has a
row in `telemetry.jsonl`, which has no text of sessions, prompts or replies. If the provider fails,
`ask` ends at once: the caller decides when to try again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from indexerd.disk import append_rotating
from indexerd.entries import Prompt
from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    ModelError,
    ModelUnavailableError,
    OutputInvalidError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.models.base import Model, Reply
from indexerd.models.budget import Budget
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.times import iso

ATTEMPTS = 3
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Rejected:
    """An unusable reply; `error` is a message to the model."""

    error: str


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row of telemetry if possible; two old files of 16 MiB are kept."""
    line = replace_surrogates(json.dumps(row, ensure_ascii=False)).encode()
    append_rotating(path, line, limit=16 * 1024 * 1024)


async def first_usable(
    models: Sequence[Model], ask_model: Callable[[Model], Awaitable[_T]], *, awaited: bool
) -> tuple[_T, Model]:
    """Ask the first usable model; raise the last model's error if there is none.

    A model that its provider does not serve is skipped. After a refusal, a prompt that is too long
    or a spent budget, only local models are asked; after a failure of the provider, too, if a user
    waits (`awaited`). Any other failure is raised at once.
    """
    rest = list(models)
    error: ModelError = ModelUnavailableError("no configured model can be used")
    while rest:
        model = rest.pop(0)
        try:
            return await ask_model(model), model
        except (ProviderDeniedError, ModelUnavailableError) as bad:
            error = bad
        except (BudgetError, RefusedError, ContextTooLargeError, ProviderError) as bad:
            if isinstance(bad, ProviderError) and not awaited:
                raise
            error, rest = bad, [other for other in rest if not other.remote]
    raise error


@dataclass(slots=True)
class Calls:
    """The calls for one purpose, and their total `usage`; one unknown cost makes it unknown.

    `audit` has the fields that all their telemetry rows share. `on_answer(fields, error)` is called
    after each answer with its figures and, if it is unusable, the reason.
    """

    budget: Budget
    audit: dict[str, Any]
    on_answer: Callable[[dict[str, Any], str], None] = lambda *_: None
    usage: dict[str, Any] = field(
        default_factory=lambda: {"inputTokens": 0, "outputTokens": 0, "costUsd": 0.0, "calls": 0}
    )

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

        `read` runs in a thread. `again(reply, error)` makes the prompt of a retry.
        """
        error = ""
        for number in range(1, ATTEMPTS + 1):
            call = await self.budget.reserve(model, prompt)
            row = {**self.audit, "model": model.key, "attempt": number}
            started = perf_counter()
            try:
                reply = await model.generate(prompt, timeout=timeout)
                row["ms"] = round((perf_counter() - started) * 1000)
                self._count(row, reply, await self.budget.settle(call, reply))
                result = await asyncio.to_thread(read, reply)
            except BaseException as bad:
                row.setdefault("ms", round((perf_counter() - started) * 1000))
                why = "cancelled" if isinstance(bad, asyncio.CancelledError) else str(bad)
                if not isinstance(bad, ModelError | asyncio.CancelledError):
                    why = f"internal error: {type(bad).__name__}"  # its text may quote the prompt
                self._record(row, why)  # before any await: a second cancellation may follow
                await asyncio.shield(self.budget.failed(call, bad))
                raise
            error = result.error if isinstance(result, Rejected) else ""
            self._record(row, error)
            fields = {key: row[key] for key in ("model", "attempt", "ms")}
            self.on_answer(fields | {"cost_usd": row["usage"]["costUsd"]}, error)
            if not isinstance(result, Rejected):
                return result
            prompt = again(reply, error)
        raise OutputInvalidError(f"Malformed model output after {ATTEMPTS} attempts: {error}")

    def _count(self, row: dict[str, Any], reply: Reply, usd: float | None) -> None:
        used = reply.tokens
        row["usage"] = {"inputTokens": used.input, "outputTokens": used.output, "costUsd": usd}
        total, before = self.usage, self.usage["costUsd"]
        total["calls"] += 1
        total["inputTokens"] += used.input or 0
        total["outputTokens"] += used.output or 0
        total["costUsd"] = None if usd is None or before is None else before + usd

    def _record(self, row: dict[str, Any], error: str) -> None:
        row |= {"success": not error, "timestamp": iso(self.budget.clock())}
        row["error"] = clean_line(error, 500) or None
        self.budget.record({key: value for key, value in row.items() if value is not None})

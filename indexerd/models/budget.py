"""The budget: reserve and settle the costs of calls, and decide whether a call is allowed.

Before a request, `reserve` records on disk the most that it may cost; `settle` replaces that with
the actual cost. A call that was never settled (a crash, a deadline, a reply without usage) keeps
its full reservation, so a day (UTC) is never under-counted. Calls wait for the limit per minute.
Local models are free. Breakers and denials are forgotten when the process ends.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from indexerd.disk import append_line, write_atomically
from indexerd.entries import Prompt
from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    DeadlineError,
    ModelError,
    ModelUnavailableError,
    ProviderDeniedError,
    ProviderError,
)
from indexerd.models.base import Model, Reply
from indexerd.models.prices import cost_usd, upper_bound_usd
from indexerd.settings import Settings

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
FAILURES = 5
FIRST_PAUSE = 60.0  # seconds
LONGEST_PAUSE = 2 * 3600.0
LONG = 10_000  # calls above which the journal is shortened


class Row(msgspec.Struct):
    """A line of the journal: a call's highest or actual cost; None: the price is unknown."""

    op: Literal["reserve", "settle"]
    id: str
    t: float
    usd: float | None = None
    model: str = ""


def prompt_tokens(prompt: Prompt) -> int:
    """Estimate the input tokens of a prompt; too high is better than too low."""
    size = len((prompt.system + prompt.user).encode("utf-8", "replace"))
    return size // 3 + 500  # usually 3.6 bytes per token; 500 for the schema and the framing


def journal(path: Path) -> list[Row]:
    """Read the calls in a journal with their costs; rows torn by a crash are skipped."""
    decode, calls = msgspec.json.Decoder(Row).decode, dict[str, Row]()
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _book(calls, decode(line))
    return [*calls.values()]


def _book(calls: dict[str, Row], row: Row) -> None:
    if row.op == "reserve":
        calls[row.id] = row
    elif row.id in calls and row.usd is not None:
        calls[row.id].usd = row.usd


@dataclass(slots=True)
class Breaker:
    """The circuit breaker of one provider: after failures, it gets no calls for a while.

    Five failures in a row, or one throttled call (429), open it: for the time that the provider
    names, else for a minute, doubled by each further failure up to two hours. A success closes it.
    """

    failures: int = 0  # in a row
    until: float = 0.0  # seconds since the epoch; 0 while it is closed

    def succeeded(self) -> bool:
        """Record an answered call; True if that closed the breaker."""
        closed = bool(self.until)
        self.failures, self.until = 0, 0.0
        return closed

    def failed(self, error: ProviderError, now: float) -> bool:
        """Record a failed call; True if that opened the breaker (again)."""
        if self.until > now:  # the call began before it opened
            return False
        self.failures += 1
        if not error.throttled and self.failures < FAILURES:
            return False
        pause = min(FIRST_PAUSE * 2.0 ** min(max(0, self.failures - FAILURES), 8), LONGEST_PAUSE)
        if error.retry_after is not None:  # a Retry-After of 0 is respected once
            pause = max(error.retry_after, pause if self.failures > 1 else 0.0)
        self.until = now + pause
        return True


@dataclass
class Budget:
    """The calls, breakers and denials of one daemon, for the event loop's thread.

    `path` is the journal's; `notify(event, fields)` logs, `record(row)` writes a row of telemetry.
    """

    path: Path
    settings: Callable[[], Settings]
    clock: Callable[[], float]
    notify: Callable[[str, dict[str, Any]], None]
    record: Callable[[Mapping[str, Any]], object] = lambda _: None
    breakers: dict[str, Breaker] = field(default_factory=dict)
    denied: dict[str, str] = field(default_factory=dict)  # provider or model -> reason of refusal
    _calls: dict[str, Row] = field(default_factory=dict)  # of the last two days
    _logged: float = float("-inf")  # when a spent budget was last logged
    _booking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def load(self) -> None:
        """Read the last two days' calls from the journal, and drop older ones if it is long."""
        calls, first = journal(self.path), self.clock() - 2 * DAY
        self._calls = {call.id: call for call in calls if call.t > first}
        if len(calls) > LONG:
            lines = [msgspec.json.encode(call) + b"\n" for call in self._calls.values()]
            with suppress(OSError):  # a full disk: the file stays long
                write_atomically(self.path, b"".join(lines))

    async def _append(self, row: Row) -> None:
        await asyncio.to_thread(append_line, self.path, msgspec.json.encode(row), durable=True)

    def reset_denials(self) -> None:
        """Forget the providers' refusals, because the configuration was reloaded."""
        lifted, self.denied = self.denied, {}
        for model in lifted:
            self.notify("model.breaker_closed", {"model": model})

    def estimate(self, key: str, prompt: Prompt) -> float | None:
        """Return the most that a call may cost, in USD; None if the price is unknown."""
        own = self.settings().providers.openai
        return upper_bound_usd(key, prompt_tokens(prompt), prompt.max_output_tokens, own)

    async def reserve(self, model: Model, prompt: Prompt) -> Row | None:
        """Reserve a call's cost, on disk; None for a local model.

        Raises ProviderError (the provider pauses), ModelUnavailableError (it refuses us) or
        BudgetError (a cap of the day is reached, or the journal cannot be written).
        """
        if not model.remote:
            return None
        usd = await asyncio.to_thread(self.estimate, model.key, prompt)
        async with self._booking:
            now, most = self.clock(), self.settings().budget.requests_per_minute
            recent = [call.t for call in self._calls.values() if 0 <= now - call.t < MINUTE]
            await asyncio.sleep(MINUTE - (now - recent[-most]) if len(recent) >= most else 0.0)
            self._check(model.key, usd or 0.0)
            now = self.clock()
            call = Row("reserve", uuid.uuid4().hex, now, usd, model.key)
            try:
                await self._append(call)
            except OSError as bad:
                why = f"the journal of the budget cannot be written: {bad.strerror}"
                cure = "free space where the state directory is; it is retried automatically"
                raise BudgetError(why, hint=cure, retry_after=10.0) from None
            self._calls = {key: call for key, call in self._calls.items() if call.t > now - 2 * DAY}
            _book(self._calls, call)
        self.notify("budget.reserved", {"model": model.key, "cost_usd": usd})
        return call

    def _check(self, key: str, usd: float) -> None:
        provider, now = key.partition("/")[0], self.clock()
        if why := self.denied.get(key) or self.denied.get(provider):
            raise ModelUnavailableError(f"the provider refused the request: {why}")
        if why := self._spent(usd):
            if not 0 <= now - self._logged < HOUR:  # thousands of sessions may wait for a call
                self._logged = now
                self.notify("budget.exhausted", {"model": key, "reason": why})
            raise BudgetError(why, retry_after=max(60.0, DAY - now % DAY))
        pause = self.breakers.setdefault(provider, Breaker()).until - now
        if pause > 0:
            raise ProviderError("the provider is paused", retry_after=pause)

    def _today(self) -> list[Row]:
        day = self.clock() // DAY
        return [call for call in self._calls.values() if call.t // DAY == day]

    def _spent(self, usd: float) -> str:
        """Say which cap of the day one more call of at most `usd` would pass; "" for none."""
        caps, today = self.settings().budget, self._today()
        booked = sum(call.usd or 0.0 for call in today)
        if len(today) >= caps.daily_calls:
            return f"{len(today)} of {caps.daily_calls} calls are used today"
        if booked + usd > caps.daily_usd:
            words = f"${booked:.4f} of ${caps.daily_usd:.2f} are booked today"
            return f"{words}, and the call may cost ${usd:.4f}"
        return ""

    async def settle(self, call: Row | None, reply: Reply) -> float | None:
        """Record the cost of an answered call; return it in USD (None: unknown)."""
        if call is None:
            return 0.0
        provider = call.model.partition("/")[0]
        if self.breakers[provider].succeeded():
            self.notify("model.breaker_closed", {"model": call.model})
        own = self.settings().providers.openai
        usd = await asyncio.to_thread(cost_usd, provider, reply.model, reply.tokens, own)
        await self._write(Row("settle", call.id, self.clock(), usd))
        return usd

    async def failed(self, call: Row | None, error: BaseException) -> None:
        """Record a failed call; release its reservation if it certainly cost nothing."""
        if call is None or not isinstance(error, ModelError):  # not the provider's failure
            return
        provider, opened = call.model.partition("/")[0], False
        free = isinstance(error, ProviderDeniedError | ContextTooLargeError)
        if isinstance(error, ProviderError | DeadlineError):
            failure = error if isinstance(error, ProviderError) else ProviderError(str(error))
            opened = self.breakers[provider].failed(failure, self.clock())
            free = failure.throttled
        else:  # it answered: a fault of the key, the request's size or its content
            self.breakers[provider].succeeded()
        if isinstance(error, ProviderDeniedError):
            name = call.model if error.model_only else provider
            opened = name not in self.denied
            self.denied[name] = str(error)
        if opened:
            self.notify("model.breaker_open", {"model": call.model, "reason": str(error)})
        if free:
            await self._write(Row("settle", call.id, self.clock(), 0.0))

    async def _write(self, row: Row) -> None:
        _book(self._calls, row)
        try:
            await self._append(row)
        except OSError as bad:  # the reservation stays: the sum is too high
            self.notify("budget.unsettled", {"reason": bad.strerror or "write failed"})

    def troubles(self) -> dict[str, tuple[str, str]]:
        """Return the reasons why remote models get no calls: code -> cause, cure."""
        now, causes = self.clock(), {}
        if refusing := "; ".join(f"{name}: {why}" for name, why in self.denied.items()):
            cure = "correct the key or the model's name, then reload (SIGHUP) or restart"
            causes["model_unavailable"] = refusing, cure
        if pausing := [name for name, breaker in self.breakers.items() if breaker.until > now]:
            cause = f"paused after failures: {', '.join(pausing)}"
            causes["provider_unavailable"] = cause, "it is retried automatically"
        if spent := self._spent(0.0):
            causes["budget_exhausted"] = spent, BudgetError.hint
        return causes

    def summary(self) -> dict[str, Any]:
        """Return the budget as `status` shows it."""
        caps, today = self.settings().budget, self._today()
        states = {name: "open" if b.until else "closed" for name, b in self.breakers.items()}
        denied = {name: "denied" for name in self.denied if "/" not in name}
        return {
            "day": datetime.fromtimestamp(self.clock(), UTC).date().isoformat(),
            "usd": round(sum(call.usd or 0.0 for call in today), 6),
            "dailyUsd": caps.daily_usd,
            "calls": len(today),
            "dailyCalls": caps.daily_calls,
            "unpricedCalls": sum(call.usd is None for call in today),
            "breakers": states | denied,
        }

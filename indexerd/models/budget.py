"""The budget: what calls may cost, what was reserved and settled, and whether one more is allowed.

Before a request leaves, `reserve` books the most that it may cost, on disk; `settle` replaces that
by what it did cost. A reservation that was never settled (a crash, a deadline, a reply without
usage) stays booked in full, so a day is never under-counted. The day is the UTC date and does not
go back, unless the clock was more than a day ahead; the count stays even then. Local models are
free and never asked about.

Breakers are stored in the same journal: a provider that asked for an hour's pause has it also
after kill -9. A denial is not stored: a restart asks once again.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec

from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    DeadlineError,
    ModelError,
    ModelUnavailableError,
    ProviderDeniedError,
    ProviderError,
)
from indexerd.events import Prompt
from indexerd.logs import Event, Throttle
from indexerd.models.base import Model, Reply
from indexerd.models.breaker import Breaker
from indexerd.models.journal import Journal
from indexerd.models.prices import cost_usd, upper_bound_usd
from indexerd.settings import Budget as Caps
from indexerd.settings import Settings

MINUTE = 60.0
BYTES_PER_TOKEN = 3.0  # 3.6 is usual for English and code: this errs upwards
OVERHEAD_TOKENS = 500  # schema and framing
KEPT_SECONDS = 2 * 86_400.0  # age of rows that survive shortening
UNWRITTEN = 300.0  # seconds until a journal that could not be written is tried again
UNWRITTEN_CURE = "free space where the state directory is; it is retried automatically"

_Time = Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800.0)]  # before the year 10000
_Usd = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Reserved(msgspec.Struct, tag_field="op", tag="reserve"):
    """A call may cost up to `usd`; None where no price is known."""

    id: str
    t: _Time
    usd: _Usd | None = None
    model: str = ""


class Settled(msgspec.Struct, tag_field="op", tag="settle", rename="camel"):
    """What the reserved call of that id did cost."""

    id: str
    t: _Time
    usd: _Usd | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class BreakerRow(msgspec.Struct, tag_field="op", tag="breaker"):
    """The state of the breaker of the provider `id`."""

    id: str
    t: _Time
    failures: _Count
    opened: _Count
    until: _Time


def _provider(key: str) -> str:
    return key.partition("/")[0]


class DailyAccount:
    """What the current day has cost, rebuilt from the journal's rows."""

    def __init__(self) -> None:
        self.day = ""
        self.calls = 0
        self.usd = 0.0
        self.unpriced = 0  # calls today whose price is not known
        self._booked: dict[str, float] = {}
        self._recent: list[float] = []

    def apply(self, row: Reserved | Settled) -> None:
        """Book one row."""
        self.turn_page(row.t)
        if isinstance(row, Reserved):
            self.calls += 1
            self.unpriced += row.usd is None
            self._booked[row.id] = row.usd or 0.0
            self.usd += self._booked[row.id]
            self._recent = [t for t in self._recent if 0 <= row.t - t < MINUTE] + [row.t]
        elif row.id in self._booked and row.usd is not None:
            self.usd += row.usd - self._booked.pop(row.id)

    def turn_page(self, now: float) -> None:
        """Begin a new day if `now` is in a later day than any before."""
        today = datetime.fromtimestamp(now, UTC).date()
        if today.isoformat() > self.day:
            self.day, self.calls, self.usd = today.isoformat(), 0, 0.0
            self.unpriced, self._booked = 0, {}
        elif date.fromisoformat(self.day) - today > timedelta(days=1):
            self.day = today.isoformat()

    def check(self, now: float, usd: float, caps: Caps) -> None:
        """Raise BudgetError when one more call of at most `usd` would pass a cap."""
        self.turn_page(now)
        tomorrow = max(60.0, 86_400.0 - now % 86_400.0)
        if self.calls + 1 > caps.daily_calls:
            words = f"{self.calls} of {caps.daily_calls} calls are used today"
            raise BudgetError(words, retry_after=tomorrow)
        if self.usd + usd > caps.daily_usd:
            booked = f"${self.usd:.4f} of ${caps.daily_usd:.2f} are booked today"
            words = f"{booked}, and the call may cost ${usd:.4f}"
            raise BudgetError(words, retry_after=tomorrow)
        recent = [t for t in self._recent if 0 <= now - t < MINUTE]
        if len(recent) >= caps.requests_per_minute:
            raise BudgetError(
                f"{len(recent)} requests in the last minute",
                retry_after=max(0.1, MINUTE - (now - recent[0])),
                passing=True,
            )


def tokens_of(prompt: Prompt) -> int:
    """Estimate the input tokens of a prompt, upwards."""
    size = len((prompt.system + prompt.user).encode("utf-8", "replace"))
    return int(size / BYTES_PER_TOKEN) + OVERHEAD_TOKENS


class Budget:
    """The account, the breakers and the denials of one daemon. For the event loop's thread."""

    def __init__(
        self,
        path: Path,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        notify: Callable[[Event, dict[str, Any]], None],
    ) -> None:
        """`path` is the journal's; `notify(event, fields)` logs events of budget and breakers."""
        self._journal = Journal(path, Reserved | Settled | BreakerRow)
        self._settings = settings
        self._clock = clock
        self._notify = notify
        self.account = DailyAccount()
        self.breakers: dict[str, Breaker] = {}
        self.denied: dict[str, str] = {}  # providers and single models -> why they refuse us
        self._stored: dict[str, tuple[int, int, float]] = {}  # breakers as the journal has them
        self._writing = asyncio.Lock()  # rows are in the journal in the order of their booking
        self._unwritten = ""  # why the last reservation was not stored
        self._exhausted = Throttle(3600.0)  # not a line for each session that waits

    def load(self) -> None:
        """Rebuild from the journal, and log which providers pause still."""
        rows, now = list(self._journal.rows()), self._clock()
        newest = {row.id: row for row in rows if isinstance(row, BreakerRow)}
        calls = [row for row in rows if not isinstance(row, BreakerRow)]
        for row in calls:
            self.account.apply(row)
        with suppress(OSError):  # a full disk: the file stays long
            if self._journal.is_long():
                kept = [row for row in calls if row.t > now - KEPT_SECONDS]
                self._journal.shorten([*kept, *newest.values()])
        self._stored = {key: (one.failures, one.opened, one.until) for key, one in newest.items()}
        self.breakers = {provider: Breaker(*state) for provider, state in self._stored.items()}
        for provider, breaker in self.breakers.items():
            if breaker.until > now:
                fields = {"model": provider, "reason": "it rests since before the start"}
                self._notify(Event.MODEL_BREAKER_OPEN, fields)

    def reset_denials(self) -> None:
        """Ask whoever refused us again: the configuration was reloaded."""
        lifted, self.denied = self.denied, {}
        for model in lifted:
            self._notify(Event.MODEL_BREAKER_CLOSED, {"model": model})

    def estimate(self, key: str, prompt: Prompt) -> float | None:
        """Return the most that a call may cost, in USD; None where no price is known."""
        own = self._settings().providers.openai
        return upper_bound_usd(key, tokens_of(prompt), prompt.max_output_tokens, own)

    # -- one call ------------------------------------------------------------------------

    async def reserve(self, model: Model, prompt: Prompt) -> Reserved | None:
        """Reserve a call's cost, on disk; None for a local model.

        Raises ProviderError (the provider pauses), ModelUnavailableError (it refuses us) or
        BudgetError (a cap is reached, or the journal cannot be written).
        """
        if not model.remote:
            return None
        usd = await asyncio.to_thread(self.estimate, model.key, prompt)
        async with self._writing:
            if refused := self.refusal(model, usd or 0.0):
                full = isinstance(refused, BudgetError)
                if full and self._exhausted.admit(model.key, self._clock()) is not None:
                    fields = {"model": model.key, "reason": str(refused)}
                    self._notify(Event.BUDGET_EXHAUSTED, fields)
                raise refused
            call = Reserved(uuid.uuid4().hex, self._clock(), usd, model.key)
            try:
                await asyncio.to_thread(self._journal.append, call)
            except OSError as bad:
                self._unwritten = f"the books of the budget cannot be written: {bad.strerror}"
                raise BudgetError(
                    self._unwritten, hint=UNWRITTEN_CURE, retry_after=UNWRITTEN
                ) from None
            self._unwritten = ""
            self.account.apply(call)
            self.breakers.setdefault(_provider(model.key), Breaker()).begin()
        self._notify(Event.BUDGET_RESERVED, {"model": model.key, "cost_usd": usd})
        return call

    def refusal(self, model: Model, usd: float = 0.0) -> ModelError | None:
        """Return why `reserve` would refuse a call now; nothing is reserved."""
        if not model.remote:
            return None
        provider, now = _provider(model.key), self._clock()
        if why := self.denied.get(model.key) or self.denied.get(provider):
            return ModelUnavailableError(f"the provider refuses us: {why}")
        try:
            self.account.check(now, usd, self._settings().budget)
        except BudgetError as full:
            return full
        breaker = self.breakers.get(provider)
        return breaker.refusal(now) if breaker else None

    async def settle(self, call: Reserved | None, reply: Reply) -> float | None:
        """Book what an answered call cost; returns it in USD (None: not known)."""
        if call is None:
            return 0.0
        provider, tokens = _provider(call.model), reply.tokens
        if self.breakers[provider].succeeded():
            self._notify(Event.MODEL_BREAKER_CLOSED, {"model": call.model})
        own = self._settings().providers.openai
        usd = await asyncio.to_thread(cost_usd, provider, reply.model, tokens, own)
        settled = Settled(call.id, self._clock(), usd, tokens.input, tokens.output)
        await self._write(provider, settled)
        return usd

    async def failed(self, call: Reserved | None, error: BaseException) -> None:
        """Record a failed call; what it certainly did not cost is given back."""
        if call is None:
            return
        free = self._was_free(call.model, error)
        settled = Settled(call.id, self._clock(), 0.0) if free else None
        await self._write(_provider(call.model), settled)

    def _was_free(self, key: str, error: BaseException) -> bool:
        """Tell a provider's breaker of a failure; True if the call cost nothing for certain."""
        provider, opened = _provider(key), {"model": key, "reason": str(error)}
        breaker = self.breakers[provider]
        if isinstance(error, ProviderDeniedError):
            breaker.succeeded()  # it answered, about its key or one of its models
            denied = key if error.model_only else provider
            if denied not in self.denied:
                self._notify(Event.MODEL_BREAKER_OPEN, opened)
            self.denied[denied] = str(error)
            return True
        if isinstance(error, ProviderError | DeadlineError):
            failure = error if isinstance(error, ProviderError) else ProviderError(str(error))
            if breaker.failed(failure, self._clock(), random.random()):
                self._notify(Event.MODEL_BREAKER_OPEN, opened)
            return failure.throttled
        if isinstance(error, ModelError):
            breaker.succeeded()  # it answered; it only declined, or found the request too large
            return isinstance(error, ContextTooLargeError)  # before it read anything
        breaker.trial = False  # cancelled, which says nothing of the provider
        return False

    async def _write(self, provider: str, settled: Settled | None) -> None:
        """Store a breaker if it differs from what is stored, and then what a call cost.

        In this order a crash between the two refunds no call of a provider that is to rest.
        """
        if settled is not None:
            self.account.apply(settled)
        try:
            async with self._writing:
                one = self.breakers[provider]
                state = one.failures, one.opened, one.until
                if state != self._stored.get(provider, (0, 0, 0.0)):
                    row = BreakerRow(provider, self._clock(), *state)
                    await asyncio.to_thread(self._journal.append, row)
                    self._stored[provider] = state
                if settled is not None:
                    await asyncio.to_thread(self._journal.append, settled)
        except OSError as bad:  # the reservation stands: more is booked than was spent
            self._notify(Event.BUDGET_UNSETTLED, {"reason": bad.strerror or "write failed"})

    # -- status --------------------------------------------------------------------------

    def troubles(self) -> dict[str, tuple[str, str]]:
        """Return what keeps remote models from being asked: code -> cause, cure."""
        now, found = self._clock(), {}
        if self.denied:
            cure = "correct the key or the model's name, then reload (SIGHUP) or restart"
            refusing = "; ".join(f"{name}: {why}" for name, why in self.denied.items())
            found["model_unavailable"] = refusing, cure
        if pausing := [name for name, one in self.breakers.items() if one.until > now]:
            cause = f"paused after failures: {', '.join(pausing)}"
            found["provider_unavailable"] = cause, "it is retried automatically"
        try:
            self.account.check(now, 0.0, self._settings().budget)
        except BudgetError as full:
            if not full.passing:
                found["budget_exhausted"] = str(full), full.hint
        if self._unwritten:
            found["state_unwritable"] = self._unwritten, UNWRITTEN_CURE
        return found

    def summary(self) -> dict[str, Any]:
        """Return the budget as `status` shows it."""
        caps, account = self._settings().budget, self.account
        account.turn_page(self._clock())
        states = {name: "open" if one.until else "closed" for name, one in self.breakers.items()}
        denied = {_provider(name): "denied" for name in self.denied if "/" not in name}
        return {
            "day": account.day,
            "usd": round(account.usd, 6),
            "dailyUsd": caps.daily_usd,
            "calls": account.calls,
            "dailyCalls": caps.daily_calls,
            "unpricedCalls": account.unpriced,
            "breakers": states | denied,
        }

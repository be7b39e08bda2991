"""The budget: what calls may cost, what was reserved and settled, and whether one more is allowed.

Before a request leaves, `reserve` books the most that it may cost, on disk; `settle` replaces that
by what it did cost. A reservation that was never settled (a crash, a deadline, a reply without
usage) stays booked in full, so a day is never under-counted. The day is the UTC date and does not
go back: a clock set a day ahead and back again resets the count once, not twice. After a clock
that was further ahead the date goes back, but the count stays: else the budget would be open until
that day came. Local models are free and never asked about.

Breakers are stored in the same journal: a provider that asked for an hour's pause has it also
after kill -9 (M3, M15). A denial is not stored: a restart asks once again.
"""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, date, datetime
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
from indexerd.settings import Settings

MINUTE = 60.0
SOON = 15.0  # seconds in which calls under way are settled
BYTES_PER_TOKEN = 3.0  # 3.6 is usual for English and code: this errs upwards
OVERHEAD_TOKENS = 500  # schema and framing
KEPT_SECONDS = 2 * 86_400.0  # age of rows that survive shortening
UNWRITTEN = 300.0  # seconds until a journal that could not be written is tried again
UNWRITTEN_CURE = "free space where the state directory is; it is tried again by itself"
FULL_SECONDS, PASSING_SECONDS = 3600.0, 60.0  # between two log lines about a cap that is reached

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


Row = Reserved | Settled | BreakerRow


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of one day and one minute."""

    daily_usd: float
    daily_calls: int
    requests_per_minute: int


def day_of(now: float) -> str:
    """Return the UTC date of a moment."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


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

    def withdraw(self, row: Reserved) -> None:
        """Take back a reservation that could not be stored: its call is not made."""
        booked = self._booked.pop(row.id, None)
        if booked is not None:
            self.calls -= 1
            self.usd -= booked
            self.unpriced -= row.usd is None

    def turn_page(self, when: float) -> None:
        """Begin a new day if `when` is in a later day than any before."""
        day = day_of(when)
        if day > self.day:
            self.day, self.calls, self.usd, self.unpriced, self._booked = day, 0, 0.0, 0, {}
        elif day < self.day and (date.fromisoformat(self.day) - date.fromisoformat(day)).days > 1:
            self.day = day

    def check(self, now: float, usd: float | None, caps: Caps, *, pending: float = 0.0) -> None:
        """Raise BudgetError when one more call of at most `usd` would pass a cap.

        `pending` is what calls under way have reserved, in USD: most of it comes back.
        """
        self.turn_page(now)
        tomorrow = max(60.0, 86_400.0 - now % 86_400.0)
        if self.calls + 1 > caps.daily_calls:
            words = f"{self.calls} of {caps.daily_calls} calls are used today"
            raise BudgetError(words, retry_after=tomorrow)
        if self.usd + (usd or 0.0) > caps.daily_usd:
            passing = self.usd - pending + (usd or 0.0) <= caps.daily_usd
            raise BudgetError(
                f"${self.usd:.4f} of ${caps.daily_usd:.2f} are booked today, "
                f"and the call may cost ${usd or 0.0:.4f}",
                retry_after=SOON if passing else tomorrow,
                passing=passing,
            )
        recent = [t for t in self._recent if 0 <= now - t < MINUTE]
        if len(recent) >= caps.requests_per_minute:
            raise BudgetError(
                f"{len(recent)} requests in the last minute",
                retry_after=max(0.1, MINUTE - (now - recent[0])),
                passing=True,
            )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A reserved call."""

    id: str
    provider: str
    usd: float | None  # at most; None where no price is known


def tokens_of(prompt: Prompt) -> int:
    """Estimate the input tokens of a prompt, upwards."""
    size = len((prompt.system + prompt.user).encode("utf-8", "replace"))
    return int(size / BYTES_PER_TOKEN) + OVERHEAD_TOKENS


class Budget:
    """The account, the breakers and the prices of one daemon. For the event loop's thread."""

    def __init__(
        self,
        path: Path,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        notify: Callable[[Event, dict[str, Any]], None],
    ) -> None:
        """`path` is the journal's; `notify(event, fields)` logs events of budget and breakers."""
        self._journal = Journal(path, Row)
        self._settings = settings
        self._clock = clock
        self._notify = notify
        self.account = DailyAccount()
        self.breakers: dict[str, Breaker] = {}
        self.denied: dict[str, str] = {}  # models that their provider does not have, and its words
        self._pending: dict[str, Ticket] = {}  # calls under way
        self._stored: dict[str, tuple[int, int, float]] = {}  # breakers as the journal has them
        self._storing = threading.Lock()
        self._unwritten = ""  # why the last reservation was not stored
        self._full, self._passing = Throttle(FULL_SECONDS), Throttle(PASSING_SECONDS)

    def load(self) -> None:
        """Rebuild from the journal, and log which providers pause still."""
        rows: list[Row] = list(self._journal.rows())
        now = self._clock()
        with suppress(OSError):  # a full disk: the file stays long
            if self._journal.is_long():
                self._journal.shorten(_still_needed(rows, now))
        self.account = DailyAccount()
        for row in rows:
            if isinstance(row, BreakerRow):
                self._stored[row.id] = row.failures, row.opened, row.until
            else:
                self.account.apply(row)
        self.breakers = {provider: Breaker(*state) for provider, state in self._stored.items()}
        for provider, breaker in self.breakers.items():
            if breaker.until > now:
                fields = {"model": provider, "reason": "it rests since before the start"}
                self._notify(Event.MODEL_BREAKER_OPEN, fields)

    def reset_denials(self) -> None:
        """Ask whoever refused us again: the configuration was reloaded (M5)."""
        lifted = [*self.denied, *(name for name, one in self.breakers.items() if one.denied)]
        self.denied.clear()
        for breaker in self.breakers.values():
            breaker.denied = ""
        for model in lifted:
            self._notify(Event.MODEL_BREAKER_CLOSED, {"model": model})

    def caps(self) -> Caps:
        """Return the caps in force."""
        limits = self._settings().budget
        return Caps(limits.daily_usd, limits.daily_calls, limits.requests_per_minute)

    def estimate(self, key: str, prompt: Prompt) -> float | None:
        """Return the most that a call may cost, in USD; None where no price is known."""
        provider, _, model = key.partition("/")
        own = self._settings().providers.openai
        size, most = tokens_of(prompt), prompt.max_output_tokens
        bound = upper_bound_usd(provider, model, size, most, own.prices, base_url=own.base_url)
        return None if bound is None else float(bound)

    # -- one call ------------------------------------------------------------------------

    async def reserve(self, model: Model, prompt: Prompt) -> Ticket | None:
        """Reserve a call's cost, on disk; None for a local model.

        Raises ProviderError (the provider pauses), ModelUnavailableError (it refuses us) or
        BudgetError (a cap is reached, or the journal cannot be written).
        """
        if not model.remote:
            return None
        provider = model.key.partition("/")[0]
        usd = await asyncio.to_thread(self.estimate, model.key, prompt)
        now = self._clock()
        if model.key in self.denied:
            raise ModelUnavailableError(f"{model.key}: {self.denied[model.key]}")
        self._check(model.key, now, usd)
        self.breakers.setdefault(provider, Breaker()).admit(now)
        ticket = Ticket(uuid.uuid4().hex, provider, usd)
        row = Reserved(ticket.id, now, usd, model.key)
        self.account.apply(row)
        try:
            await asyncio.to_thread(self._journal.append, row)
        except OSError as bad:
            self.breakers[provider].abandon()
            self.account.withdraw(row)
            self._unwritten = f"the books of the budget cannot be written: {bad.strerror}"
            raise BudgetError(self._unwritten, hint=UNWRITTEN_CURE, retry_after=UNWRITTEN) from None
        self._unwritten = ""
        self._pending[ticket.id] = ticket
        self._notify(Event.BUDGET_RESERVED, {"model": model.key, "cost_usd": usd})
        return ticket

    def _check(self, key: str, now: float, usd: float | None) -> None:
        try:
            pending = sum(one.usd or 0.0 for one in self._pending.values())
            self.account.check(now, usd, self.caps(), pending=pending)
        except BudgetError as full:
            throttle = self._passing if full.passing else self._full
            if throttle.admit(key, now) is not None:  # not once for each session that waits
                self._notify(Event.BUDGET_EXHAUSTED, {"model": key, "reason": str(full)})
            raise

    def refusal(self, model: Model) -> ModelError | None:
        """Return why `reserve` would refuse a call now; nothing is reserved."""
        if not model.remote:
            return None
        if model.key in self.denied:
            return ModelUnavailableError(self.denied[model.key])
        now, breaker = self._clock(), self.breakers.get(model.key.partition("/")[0])
        try:
            self.account.check(now, None, self.caps())
            if breaker is not None:
                copy(breaker).admit(now)  # of a copy: no trial is begun
        except (BudgetError, ModelUnavailableError, ProviderError) as refused:
            return refused
        return None

    async def settle(self, ticket: Ticket | None, model: Model, reply: Reply) -> float | None:
        """Book what an answered call cost; returns it in USD (None: not known)."""
        if ticket is None:
            return 0.0
        self._pending.pop(ticket.id, None)
        if self.breakers[ticket.provider].succeeded():
            self._notify(Event.MODEL_BREAKER_CLOSED, {"model": model.key})
        own = self._settings().providers.openai
        cost = await asyncio.to_thread(
            cost_usd, ticket.provider, reply.model, reply.tokens, own.prices, base_url=own.base_url
        )
        usd = None if cost is None else float(cost)
        tokens = reply.tokens
        await self._book(Settled(ticket.id, self._clock(), usd, tokens.input, tokens.output))
        await self._keep(ticket.provider)
        return usd

    async def failed(self, ticket: Ticket | None, model: Model, error: BaseException) -> None:
        """Record a failed call; what it certainly did not cost is given back."""
        if ticket is None:
            return
        self._pending.pop(ticket.id, None)
        free = self._record(self.breakers[ticket.provider], model, error)
        await self._keep(ticket.provider)
        if free:
            await self._book(Settled(ticket.id, self._clock(), 0.0))

    def _record(self, breaker: Breaker, model: Model, error: BaseException) -> bool:
        """Tell a provider's breaker of a failure; True if the call cost nothing for certain."""
        opened = {"model": model.key, "reason": str(error)}
        if isinstance(error, ProviderDeniedError):
            if error.model_only:
                breaker.succeeded()  # it answered, about one of its models
                self.denied[model.key] = str(error)
            if error.model_only or breaker.deny(str(error)):
                self._notify(Event.MODEL_BREAKER_OPEN, opened)
            return True
        if isinstance(error, ProviderError | DeadlineError):
            failure = error if isinstance(error, ProviderError) else ProviderError(str(error))
            if breaker.failed(failure, self._clock(), random.random()):
                self._notify(Event.MODEL_BREAKER_OPEN, opened)
            return failure.throttled
        if isinstance(error, ModelError):
            breaker.succeeded()  # it answered; it only declined, or found the request too large
            return isinstance(error, ContextTooLargeError)  # before it read anything
        breaker.abandon()
        return False

    async def _keep(self, provider: str) -> None:
        """Store a breaker if it differs from what is stored."""
        try:
            await asyncio.to_thread(self._store, provider)
        except OSError as bad:
            self._notify(Event.BUDGET_UNSETTLED, {"reason": bad.strerror or "write failed"})

    def _store(self, provider: str) -> None:
        with self._storing:  # whoever comes last writes what is newest
            one = self.breakers[provider]
            state = one.failures, one.opened, one.until
            if state != self._stored.get(provider, (0, 0, 0.0)):
                self._journal.append(BreakerRow(provider, self._clock(), *state))
                self._stored[provider] = state

    async def _book(self, row: Settled) -> None:
        self.account.apply(row)
        try:
            await asyncio.to_thread(self._journal.append, row)
        except OSError as bad:  # the reservation stands: more is booked than was spent
            self._notify(Event.BUDGET_UNSETTLED, {"reason": bad.strerror or "write failed"})

    # -- status --------------------------------------------------------------------------

    def troubles(self) -> dict[str, tuple[str, str]]:
        """Return what keeps remote models from being asked: code -> cause, cure."""
        now, found = self._clock(), {}
        refusing = [f"{name}: {one.denied}" for name, one in self.breakers.items() if one.denied]
        refusing += [f"{key}: {why}" for key, why in self.denied.items()]
        if refusing:
            cure = "mend the key or the model's name, then reload (SIGHUP) or restart"
            found["model_unavailable"] = "; ".join(refusing), cure
        pausing = [name for name, one in self.breakers.items() if one.until > now]
        if pausing:
            cause = f"resting after failures: {', '.join(pausing)}"
            found["provider_unavailable"] = cause, "it is tried again by itself"
        try:
            self.account.check(now, None, self.caps())
        except BudgetError as full:
            if not full.passing:
                found["budget_exhausted"] = str(full), full.hint
        if self._unwritten:
            found["state_unwritable"] = self._unwritten, UNWRITTEN_CURE
        return found

    def summary(self) -> dict[str, Any]:
        """Return the budget as `status` shows it."""
        caps, account = self.caps(), self.account
        account.turn_page(self._clock())
        return {
            "day": account.day,
            "usd": round(account.usd, 6),
            "dailyUsd": caps.daily_usd,
            "calls": account.calls,
            "dailyCalls": caps.daily_calls,
            "unpricedCalls": account.unpriced,
            "breakers": {name: one.word for name, one in self.breakers.items()},
        }


def _still_needed(rows: list[Row], now: float) -> list[Row]:
    """Return the rows of the last two days, or of days to come, and each breaker's newest."""
    newest = {row.id: at for at, row in enumerate(rows) if isinstance(row, BreakerRow)}
    return [
        row
        for at, row in enumerate(rows)
        if newest.get(row.id) == at
        or (not isinstance(row, BreakerRow) and row.t > now - KEPT_SECONDS)
    ]

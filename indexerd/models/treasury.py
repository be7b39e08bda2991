"""Permission to call a model, and the books: budget, breaker, prices, all persisted.

`admit` is asked before a request to a model that leaves the machine, and books the most that
it may cost, on disk, before it returns; `settle` replaces that by what it did cost. A local
model is free and never asked about. Used by the event loop; disk writes go to a thread.

A breaker is stored whenever it is another than what is stored, a row of the same journal: a
provider that asked for an hour's rest has it also after kill -9 (M3, M15). A denial is not: a
restart asks once again.
"""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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
from indexerd.models.budget import Caps, Purse
from indexerd.models.journal import Journal
from indexerd.models.prices import cost_usd, upper_bound_usd
from indexerd.settings import Settings

BYTES_PER_TOKEN = 3.0  # of English and code 3.6 is usual: this errs upwards
OVERHEAD_TOKENS = 500  # schema and framing
KEPT_SECONDS = 2 * 86_400.0  # that rows of the books are kept once these are long
UNWRITTEN = 300.0  # seconds until the books are tried again
UNWRITTEN_CURE = "free space where the state directory is; it is tried again by itself"
FULL_SECONDS, PASSING_SECONDS = 3600.0, 60.0  # from one word of a cap that is reached to the next
_LAST_MOMENT, _MANY = 253_402_300_800.0, 1_000_000  # of what was stored; beyond is no row of ours
_Kept = tuple[int, int, float]  # failures, opened, until


@dataclass(frozen=True, slots=True)
class Ticket:
    """A booked call."""

    id: str
    provider: str
    model: str
    usd: float | None  # at most; None where no price is known


def tokens_of(prompt: Prompt) -> int:
    """Input tokens of a prompt, estimated upwards."""
    size = len(prompt.system.encode("utf-8", "replace")) + len(
        prompt.user.encode("utf-8", "replace")
    )
    return int(size / BYTES_PER_TOKEN) + OVERHEAD_TOKENS


class Treasury:
    """The books of one daemon."""

    def __init__(
        self,
        journal: Journal,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        notify: Callable[[Event, dict[str, Any]], None],
    ) -> None:
        """`notify(event, fields)` hears of budget and breaker events of the log."""
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._notify = notify
        self.purse = Purse()
        self.breakers: dict[str, Breaker] = {}
        self.denied: dict[str, str] = {}  # models that their provider does not have, and its words
        self._pending: dict[str, Ticket] = {}  # calls under way
        self._kept: dict[str, _Kept] = {}  # breakers as the journal has them
        self._keeping = threading.Lock()
        self._unwritten = ""  # why the last booking was not stored
        self._full, self._passing = Throttle(FULL_SECONDS), Throttle(PASSING_SECONDS)

    def load(self) -> None:
        """Rebuild from the journal.

        Whoever rests is told of: nothing else says why nothing is sent. A denial is not kept: a
        restart asks once again.
        """
        rows = list(self._journal.rows())
        with suppress(OSError, ValueError):  # a full disk, a row of any hand: they stay long
            if self._journal.is_long():
                self._journal.shorten(_still_told(rows, self._clock()))
        self.purse = Purse.of(rows)
        for row in rows:
            if _is_breaker(row):
                self._kept[row["id"]] = row["failures"], row["opened"], float(row["until"])
        for provider, kept in self._kept.items():
            self.breakers[provider] = Breaker(*kept)
        for provider, one in self.breakers.items():
            if one.until > self._clock():
                fields = {"model": provider, "reason": "it rests since before the start"}
                self._notify(Event.MODEL_BREAKER_OPEN, fields)

    def reset_denials(self) -> None:
        """The configuration was reloaded: whoever refused us is asked again (M5)."""
        lifted = [*self.denied, *(name for name, one in self.breakers.items() if one.denied)]
        self.denied.clear()
        for breaker in self.breakers.values():
            breaker.denied = ""
        for model in lifted:
            self._notify(Event.MODEL_BREAKER_CLOSED, {"model": model})

    def caps(self) -> Caps:
        """The caps in force."""
        budget = self._settings().budget
        return Caps(budget.daily_usd, budget.daily_calls, budget.requests_per_minute)

    def estimate(self, key: str, prompt: Prompt) -> float | None:
        """The most that a call may cost, in USD; None where no price is known."""
        provider, _, model = key.partition("/")
        own = self._settings().providers.openai
        bound = upper_bound_usd(
            provider,
            model,
            tokens_of(prompt),
            prompt.max_output_tokens,
            own.prices,
            base_url=own.base_url,
        )
        return None if bound is None else float(bound)

    async def admit(self, model: Model, prompt: Prompt) -> Ticket | None:
        """Book a call; None for a local model.

        Raises ProviderError (the provider rests), ModelUnavailableError (it refuses us) or
        BudgetError (a cap is reached, or the books cannot be written).
        """
        if not model.remote:
            return None
        provider, _, name = model.key.partition("/")
        usd = await asyncio.to_thread(self.estimate, model.key, prompt)
        now = self._clock()
        if model.key in self.denied:
            raise ModelUnavailableError(f"{model.key}: {self.denied[model.key]}")
        try:
            pending = sum(one.usd or 0.0 for one in self._pending.values())
            self.purse.check(now, usd, self.caps(), pending=pending)
        except BudgetError as full:
            words = self._passing if full.passing else self._full
            if words.admit(model.key, now) is not None:  # not once for each session that waits
                self._notify(Event.BUDGET_EXHAUSTED, {"model": model.key, "reason": str(full)})
            raise
        self.breakers.setdefault(provider, Breaker()).admit(now)
        ticket = Ticket(uuid.uuid4().hex, provider, name, usd)
        row = {"op": "reserve", "id": ticket.id, "t": now, "usd": usd, "model": model.key}
        self.purse.apply(row)
        try:
            await asyncio.to_thread(self._journal.append, row)
        except OSError as bad:
            self.breakers[provider].abandon()
            self.purse.withdraw(row)
            self._unwritten = f"the books of the budget cannot be written: {bad.strerror}"
            raise BudgetError(self._unwritten, hint=UNWRITTEN_CURE, retry_after=UNWRITTEN) from None
        self._unwritten = ""
        self._pending[ticket.id] = ticket
        self._notify(Event.BUDGET_RESERVED, {"model": model.key, "cost_usd": usd})
        return ticket

    async def settle(self, ticket: Ticket | None, model: Model, reply: Reply) -> float | None:
        """A reply came: book what it cost, and say it in USD (None: not known)."""
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
        await self._book(ticket, usd, reply)
        await self._keep(ticket.provider)
        return usd

    async def failed(self, ticket: Ticket | None, model: Model, error: BaseException) -> None:
        """A call failed. What a provider says it did not do is not charged."""
        if ticket is None:
            return
        self._pending.pop(ticket.id, None)
        free = self._judge(self.breakers[ticket.provider], model, error)
        await self._keep(ticket.provider)
        if free:
            await self._book(ticket, 0.0, None)

    def _judge(self, breaker: Breaker, model: Model, error: BaseException) -> bool:
        """What a failure means for its provider; says whether the call cost nothing for sure."""
        opened = {"model": model.key, "reason": str(error)}
        if isinstance(error, ProviderDeniedError) and error.model_only:
            breaker.succeeded()  # it answered, of one of its models
            self.denied[model.key] = str(error)
            self._notify(Event.MODEL_BREAKER_OPEN, opened)
            return True
        if isinstance(error, ProviderDeniedError):
            if breaker.deny(str(error)):
                self._notify(Event.MODEL_BREAKER_OPEN, opened)
            return True
        if isinstance(error, ProviderError | DeadlineError):
            told = error if isinstance(error, ProviderError) else ProviderError(str(error))
            if breaker.failed(told, self._clock(), random.random()):
                self._notify(Event.MODEL_BREAKER_OPEN, opened)
            return told.throttled
        if isinstance(error, ModelError):
            breaker.succeeded()  # it answered; it only declined, or found the request too large
            return isinstance(error, ContextTooLargeError)  # before it read anything
        breaker.abandon()
        return False

    async def _keep(self, provider: str) -> None:
        """Store a breaker, if it is another than what is stored."""
        try:
            await asyncio.to_thread(self._store, provider)
        except OSError as bad:
            self._notify(Event.BUDGET_UNSETTLED, {"reason": bad.strerror or "write failed"})

    def _store(self, provider: str) -> None:
        with self._keeping:  # whoever comes last writes what is newest
            one = self.breakers[provider]
            kept = one.failures, one.opened, one.until
            if kept == self._kept.get(provider, (0, 0, 0.0)):
                return
            row = {"op": "breaker", "id": provider, "t": self._clock()}
            words = ("failures", "opened", "until")
            self._journal.append(row | dict(zip(words, kept, strict=True)))
            self._kept[provider] = kept

    async def _book(self, ticket: Ticket, usd: float | None, reply: Reply | None) -> None:
        row = {
            "op": "settle",
            "id": ticket.id,
            "t": self._clock(),
            "usd": usd,
            "inputTokens": reply.tokens.input if reply else None,
            "outputTokens": reply.tokens.output if reply else None,
        }
        self.purse.apply(row)
        try:
            await asyncio.to_thread(self._journal.append, row)
        except OSError as bad:  # the reservation stands: more is booked than was spent
            self._notify(Event.BUDGET_UNSETTLED, {"reason": bad.strerror or "write failed"})

    def troubles(self) -> dict[str, tuple[str, str]]:
        """What keeps models that leave the machine from being asked: code -> cause, cure."""
        now, found = self._clock(), {}
        refusing = [f"{name}: {one.denied}" for name, one in self.breakers.items() if one.denied]
        refusing += [f"{key}: {why}" for key, why in self.denied.items()]
        if refusing:
            cure = "mend the key or the model's name, then reload (SIGHUP) or restart"
            found["model_unavailable"] = "; ".join(refusing), cure
        resting = [name for name, one in self.breakers.items() if one.until > now]
        if resting:
            cause = f"resting after failures: {', '.join(resting)}"
            found["provider_unavailable"] = cause, "it is tried again by itself"
        try:
            self.purse.check(now, None, self.caps())
        except BudgetError as full:
            if not full.passing:
                found["budget_exhausted"] = str(full), full.hint
        if self._unwritten:
            found["state_unwritable"] = self._unwritten, UNWRITTEN_CURE
        return found

    def summary(self) -> dict[str, Any]:
        """The budget as `status` shows it."""
        caps, purse = self.caps(), self.purse
        purse.turn_page(self._clock())
        return {
            "day": purse.day,
            "usd": round(purse.usd, 6),
            "dailyUsd": caps.daily_usd,
            "calls": purse.calls,
            "dailyCalls": caps.daily_calls,
            "unpricedCalls": purse.unpriced,
            "breakers": {name: one.word for name, one in self.breakers.items()},
        }


def _still_told(rows: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """The rows that still say something: of the last two days, and the newest of each breaker.

    A clock may have been moved: what is of a day to come is kept, too.
    """
    breakers = {row["id"]: number for number, row in enumerate(rows) if _is_breaker(row)}
    newest = set(breakers.values())
    return [
        row
        for number, row in enumerate(rows)
        if number in newest or (_is_recent(row, now) and not _is_breaker(row))
    ]


def _is_recent(row: Mapping[str, Any], now: float) -> bool:
    when = row.get("t")
    return isinstance(when, int | float) and when > now - KEPT_SECONDS


def _is_breaker(row: Mapping[str, Any]) -> bool:
    """Whether a stored row is a breaker's: a file that any hand may have edited."""
    counts, until = (row.get("failures"), row.get("opened")), row.get("until")
    return (
        row.get("op") == "breaker"
        and isinstance(row.get("id"), str)
        and all(type(one) is int and 0 <= one <= _MANY for one in counts)
        and (type(until) is int or type(until) is float)
        and 0 <= until < _LAST_MOMENT
    )

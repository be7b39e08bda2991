"""What the pipeline remembers of one session between decisions, and what failure means for it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from indexerd.errors import (
    BudgetError,
    IndexerdError,
    ModelUnavailableError,
    NotFoundError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
    SessionUnreadableError,
    WriteError,
)
from indexerd.indexing.policy import View, back_off
from indexerd.meta.cache import MetaStat
from indexerd.models.breaker import FIRST_PAUSE
from indexerd.sessions.info import SessionInfo

SOON = 2.0  # seconds
NO_MODEL_PAUSE = 3600.0  # a reload of the configuration ends it


class Setback(msgspec.Struct, array_like=True, frozen=True):
    """Failures in a row, and what waits for what; kept in the ledger."""

    failures: int = 0
    retry_at: float = 0.0
    refused_at: int | None = None  # new user messages when a model declined
    why: str = ""


NONE = Setback()  # as nearly all sessions have


class Forced(msgspec.Struct):
    """Somebody asked for this session now."""

    until: float  # a session in the middle of a turn is waited for until then
    waiters: list[asyncio.Future[Any]] = []


class Known(msgspec.Struct):
    """One session, as the loop knows it. Times in seconds since the epoch."""

    card: SessionInfo
    meta: MetaStat | None
    changed_at: float
    open_since: float
    setback: Setback = NONE
    forced: Forced | None = None
    status: dict[str, Any] | None = None

    def view(self) -> View:
        """What the policy looks at."""
        card = self.card
        return View(
            has_answer=card.answered,
            new_user_messages=card.new_users,
            turn=card.turn_state,
            changed_at=self.changed_at,
            open_since=self.open_since,
            retry_at=self.setback.retry_at,
            refused_at=self.setback.refused_at,
            forced=self.forced is not None,
        )


def after(setback: Setback, error: IndexerdError, new_users: int, now: float) -> Setback:
    """The setback after one more failure."""
    failures, refused = setback.failures, None
    if isinstance(error, RefusedError | SessionEmptyError | NotFoundError):
        refused, pause = new_users, 0.0
    elif isinstance(error, ModelUnavailableError | ProviderDeniedError):
        pause = NO_MODEL_PAUSE
    elif isinstance(error, BudgetError):
        pause = error.retry_after
    elif isinstance(error, ProviderError) and error.retry_after is not None:
        pause = error.retry_after  # the provider's wish burns no attempt of the job (M3)
    elif isinstance(error, ProviderError) and error.throttled:
        pause = FIRST_PAUSE  # nor does a wish that was not put into seconds
    elif isinstance(error, WriteError | SessionUnreadableError):
        failures += 1  # nothing was paid, or what was paid is kept: soon again
        pause = min(SOON * 2.0 ** min(failures - 1, 10), back_off(1) * 5)
    else:
        failures += 1
        pause = back_off(failures)
    return Setback(failures, now + pause, refused, error.kind)

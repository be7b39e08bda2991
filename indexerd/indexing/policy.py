"""When a session is indexed, and when again after a failure: pure decisions.

The threshold counts new user messages on the current path. The moment is the end
of the agent's turn plus a quiet time; a failed turn waits longer, since a retry often follows
; and a session that goes on without an end, or without a pause, is taken after
`max_wait_seconds`. All times are seconds since the epoch. A time further ahead than it can have
been set comes from before the clock was set back, and has passed.
"""

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
from indexerd.events import Turn
from indexerd.meta.cache import MetaStat
from indexerd.models.breaker import FIRST_PAUSE
from indexerd.sessions.info import SessionInfo
from indexerd.settings import Settings

RETRY_MAX = 2 * 86_400.0  # no retry is further ahead: a budget opens again at midnight
SOON = 2.0  # seconds
NO_MODEL_PAUSE = 3600.0  # seconds; a reload of the configuration ends it sooner
_UNTIL_RELOAD = frozenset({"model_unavailable", "budget_exhausted"})


class RetryState(msgspec.Struct, array_like=True, frozen=True):
    """Failures in a row, and what is waited for; stored over restarts."""

    failures: int = 0
    retry_at: float = 0.0
    refused_at: int | None = None  # new user messages when a model declined
    why: str = ""

    @property
    def ends_with_reload(self) -> bool:
        """Whether a reload ends it. That a model declined the content is not forgotten."""
        return self.why in _UNTIL_RELOAD and self.refused_at is None


NO_FAILURE = RetryState()  # as nearly all sessions have


class Forced(msgspec.Struct):
    """Somebody asked for this session now."""

    until: float  # a session in the middle of a turn is waited for until then
    waiter: asyncio.Future[Any]


class SessionRuntime(msgspec.Struct):
    """What the event loop knows of one session."""

    info: SessionInfo
    meta: MetaStat | None
    changed_at: float  # when the file was last seen to change
    open_since: float  # when the unindexed part began to wait
    retry: RetryState = NO_FAILURE
    forced: Forced | None = None
    status: dict[str, Any] | None = None

    def answer(self, result: Any) -> None:
        """Tell whoever forced a run how it ended: a `Done`, or an error of the tree."""
        forced, self.forced = self.forced, None
        if forced is not None and not forced.waiter.done():
            forced.waiter.set_result(result)


class Index(msgspec.Struct, frozen=True):
    """Index it now; `why` is "due", "max_wait" or "forced"."""

    why: str


class Wait(msgspec.Struct, frozen=True):
    """Decide again at `until`."""

    until: float
    why: str


class Skip(msgspec.Struct, frozen=True):
    """Nothing to do until the session changes."""

    why: str


def decide(session: SessionRuntime, settings: Settings, now: float) -> Index | Wait | Skip:
    """Index, wait or skip."""
    info, retry, forced = session.info, session.retry, session.forced is not None
    if not info.answered:  # before that no agent writes a session for good
        return Skip("no_answer")
    if not forced:
        if info.new_users < settings.min_new_user_messages:
            return Skip("below_threshold")
        if retry.refused_at is not None and info.new_users <= retry.refused_at:
            return Skip("refused")
        if 0 < retry.retry_at - now <= RETRY_MAX:
            return Wait(retry.retry_at, "back_off")
    latest = session.open_since + settings.index.max_wait_seconds
    ended = settled_at(session, settings, now)
    ready, why = (latest, "max_wait") if ended is None or ended > latest else (ended, "due")
    return Wait(ready, why) if now < ready else Index("forced" if forced else why)


def settled_at(session: SessionRuntime, settings: Settings, now: float) -> float | None:
    """When the newest turn counts as ended; None in the middle of one."""
    turn, index = session.info.turn_state, settings.index
    if turn is Turn.OPEN:
        return None
    quiet = index.error_quiet_seconds if turn is Turn.FAILED else index.quiet_seconds
    return session.changed_at + quiet if session.changed_at <= now + quiet else now


def back_off(failures: int) -> float:
    """Seconds to wait after that many failures in a row: a minute, doubling, at most six hours."""
    doublings = min(max(0, failures - 1), 16)  # a float ends at 1023 of them
    return min(60.0 * 2.0**doublings, 6 * 3600.0)


def after_failure(
    state: RetryState, error: IndexerdError, new_users: int, now: float
) -> RetryState:
    """Return the state after one more failure."""
    failures, refused = state.failures, None
    if isinstance(error, RefusedError | SessionEmptyError | NotFoundError):
        refused, pause = new_users, 0.0
    elif isinstance(error, ModelUnavailableError | ProviderDeniedError):
        pause = NO_MODEL_PAUSE
    elif isinstance(error, BudgetError):
        pause = error.retry_after
    elif isinstance(error, ProviderError) and error.retry_after is not None:
        pause = error.retry_after  # the provider's wish burns no attempt of the session
    elif isinstance(error, ProviderError) and error.throttled:
        pause = FIRST_PAUSE  # nor does a wish that was not put into seconds
    elif isinstance(error, WriteError | SessionUnreadableError):
        failures += 1  # nothing was paid, or what was paid is kept: soon again
        pause = min(SOON * 2.0 ** min(failures - 1, 10), back_off(1) * 5)
    else:
        failures += 1
        pause = back_off(failures)
    return RetryState(failures, now + pause, refused, error.kind)

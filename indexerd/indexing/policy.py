"""Decide when a session is indexed, and when it is retried after a failure. No I/O.

The threshold counts new user messages on the current path. A session is due a quiet time after the
agent's turn ended, and a longer one after a failed turn, since a retry often follows; a session
that never pauses is due after `max_wait_seconds`. Times are in seconds since the epoch.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec

from indexerd.entries import Turn
from indexerd.errors import (
    BudgetError,
    IndexerdError,
    ModelUnavailableError,
    NotFoundError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
)
from indexerd.sessions.info import SessionInfo
from indexerd.settings import Settings

NO_MODEL_PAUSE = 3600.0  # seconds; a reload of the configuration ends it sooner
_UNTIL_RELOAD = frozenset({"model_unavailable", "budget_exhausted"})


class RetryState(msgspec.Struct, array_like=True, frozen=True):
    """A session's consecutive failures, and when it is retried; kept over restarts."""

    failures: int = 0
    retry_at: float = 0.0
    refused_at: int | None = None  # new user messages when a model declined the session
    why: str = ""  # the kind of the newest error

    @property
    def ends_with_reload(self) -> bool:
        """Whether a reload ends the wait; a model that declined the content is not asked again."""
        return self.why in _UNTIL_RELOAD and self.refused_at is None


NO_FAILURE = RetryState()


class Forced(msgspec.Struct):
    """A user's request to index a session now."""

    until: float  # when to give up if the session is still in the middle of a turn
    waiter: asyncio.Future[Any]


class SessionRuntime(msgspec.Struct):
    """The state of one session in the event loop."""

    info: SessionInfo
    changed_at: float  # when the file was last seen to change
    open_since: float  # when its oldest unindexed message was seen
    retry: RetryState = NO_FAILURE
    forced: Forced | None = None
    status: dict[str, Any] | None = None

    def answer(self, result: Any) -> None:
        """Answer a forced run's caller with a `Done` or an IndexerdError."""
        forced, self.forced = self.forced, None
        if forced is not None and not forced.waiter.done():
            forced.waiter.set_result(result)


def decide(session: SessionRuntime, settings: Settings, now: float) -> tuple[float, str]:
    """Return when to index a session (infinity: not before it changes), and the reason."""
    info, retry, forced = session.info, session.retry, session.forced is not None
    if not info.answered:  # until then the agent may discard the session
        return math.inf, "no_answer"
    if not forced:
        if info.new_users < settings.min_new_user_messages:
            return math.inf, "below_threshold"
        if retry.refused_at is not None and info.new_users <= retry.refused_at:
            return math.inf, "refused"
        if retry.retry_at > now:
            return retry.retry_at, "back_off"
    # A session that has not changed since its last run is not waited for again.
    latest = min(session.open_since, session.changed_at) + settings.index.max_wait_seconds
    ended = settled_at(session, settings)
    ready, why = (latest, "max_wait") if ended is None or ended > latest else (ended, "due")
    return ready, "forced" if forced and ready <= now else why


def settled_at(session: SessionRuntime, settings: Settings) -> float | None:
    """Return when the newest turn counts as ended; None in the middle of one."""
    turn, index = session.info.turn, settings.index
    if turn is Turn.OPEN:
        return None
    quiet = index.error_quiet_seconds if turn is Turn.FAILED else index.quiet_seconds
    return session.changed_at + quiet


def after_failure(old: RetryState, error: IndexerdError, new_users: int, now: float) -> RetryState:
    """Return the state after another failed run: retry after a minute, doubling to six hours.

    Outages of models and a spent budget do not count as failures of the session.
    """
    if isinstance(error, RefusedError | SessionEmptyError | NotFoundError):
        return RetryState(old.failures, now, new_users, error.kind)
    if isinstance(error, ModelUnavailableError | ProviderDeniedError):
        return RetryState(old.failures, now + NO_MODEL_PAUSE, None, error.kind)
    if isinstance(error, BudgetError | ProviderError) and error.retry_after is not None:
        return RetryState(old.failures, now + error.retry_after, None, error.kind)
    failures = old.failures + 1
    pause = min(60.0 * 2.0 ** min(failures - 1, 9), 6 * 3600.0)
    return RetryState(failures, now + pause, None, error.kind)

"""What the daemon remembers of a session between decisions."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from indexerd.indexing.policy import View
from indexerd.indexing.retry import NO_FAILURE, RetryState
from indexerd.meta.cache import MetaStat
from indexerd.sessions.info import SessionInfo


class Forced(msgspec.Struct):
    """Somebody asked for this session now."""

    until: float  # a session in the middle of a turn is waited for until then
    waiters: list[asyncio.Future[Any]] = []


class SessionRuntime(msgspec.Struct):
    """One session, as the event loop knows it. Times in seconds since the epoch."""

    card: SessionInfo
    meta: MetaStat | None
    changed_at: float
    open_since: float
    retry: RetryState = NO_FAILURE
    forced: Forced | None = None
    status: dict[str, Any] | None = None

    def view(self) -> View:
        """Return what the policy looks at."""
        card = self.card
        return View(
            has_answer=card.answered,
            new_user_messages=card.new_users,
            turn=card.turn_state,
            changed_at=self.changed_at,
            open_since=self.open_since,
            retry_at=self.retry.retry_at,
            refused_at=self.retry.refused_at,
            forced=self.forced is not None,
        )

    def answer(self, result: Any) -> None:
        """Tell whoever forced a run how it ended: a `Done`, or an error of the tree."""
        forced, self.forced = self.forced, None
        for waiter in forced.waiters if forced else ():
            if not waiter.done():
                waiter.set_result(result)

"""When digests are made by themselves: at the end of a turn of a session that has grown.

In: word that a session's file grew. Out: calls of `Digests.make`, one session at a time. A session
that was there before and stays as it is, is left alone (S2.25): only growth is looked at, be it
while the daemon watches or since it last did. The moment is that of indexing, the turn's end and a
quiet time after it; the threshold is another one. Nothing is stored: what a failure or a restart
leaves undone is looked at again at the next turn's end; after a failure that may pass, before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from indexerd.core.policy import Limits, back_off, settled_at
from indexerd.core.reminders import Reminders
from indexerd.errors import IndexerdError
from indexerd.io.logs import Event
from indexerd.service.digests import Digests
from indexerd.service.known import Known
from indexerd.service.news import News
from indexerd.settings import Settings

FAILURES_MAX = 5  # in a row; after so many only new growth is a reason to try again
LONGEST_PAUSE = 30.0  # seconds between two looks at the clock


class AutoDigests:
    """Sees to it that digests are made, for one daemon."""

    def __init__(
        self,
        digests: Digests,
        known: dict[str, Known],
        *,
        settings: Callable[[], Settings],
        off: Callable[[], bool],
        news: News,
        clock: Callable[[], float],
    ) -> None:
        """`known` are the sessions there are, as the pipeline knows them; `off()`: nothing runs."""
        self._digests = digests
        self._known = known
        self._settings = settings
        self._off = off
        self._news = news
        self._clock = clock
        self._reminders = Reminders()
        self._failures: dict[str, int] = {}
        self._once = False
        self._wake = asyncio.Event()

    def grown(self, session_id: str) -> None:
        """Something was added to a session."""
        self._failures.pop(session_id, None)
        if self._settings().digest.enabled:
            self._remind(session_id, self._clock())

    def _remind(self, session_id: str, when: float) -> None:
        if self._reminders.remind(session_id, when):
            self._wake.set()

    async def run(self) -> None:
        """Make what falls due, until cancelled; without anything to do it only waits."""
        while True:
            self._wake.clear()
            await self.step()
            next_at = self._reminders.next_at
            if next_at is None:
                await self._wake.wait()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, min(next_at - self._clock(), LONGEST_PAUSE))):
                    await self._wake.wait()

    async def settle(self) -> None:
        """Make what is due or falls due by a turn's end, and then come back (`run --once`).

        What fails is not tried again.
        """
        self._once = True
        while (next_at := self._reminders.next_at) is not None:
            await asyncio.sleep(max(0.0, min(next_at - self._clock(), 1.0)))
            await self.step()

    async def step(self) -> None:
        """Look at every session whose moment has come."""
        for session_id in list(self._reminders.due(self._clock())):
            await self._look(session_id)

    async def _look(self, session_id: str) -> None:
        known = self._known.get(session_id)
        if known is None or self._off():
            return
        if not known.card.answered or known.card.messages <= self._least():
            return
        ready = settled_at(known.view(), self._clock(), Limits.of(self._settings()))
        if ready is None:  # more is to come, and is heard of
            return
        if ready > self._clock():
            self._remind(session_id, ready)
        else:
            await self._make(session_id)

    def _least(self) -> int:
        """Messages of a whole file up to which none of its paths can be due."""
        wanted = self._settings().digest
        return wanted.preserve_recent if wanted.token_trigger else wanted.trigger_threshold

    async def _make(self, session_id: str) -> None:
        try:
            await self._digests.make(session_id, manual=False)
        except IndexerdError as bad:
            self._failed(session_id, bad)
        except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
            self._news.defect(Event.DIGEST_FAILED, session_id, bug)

    def _failed(self, session_id: str, bad: IndexerdError) -> None:
        told: dict[str, Any] = {"kind": bad.kind, "message": str(bad), "retryable": bad.retryable}
        self._news.say(
            Event.DIGEST_FAILED, {"session": session_id, "reason": str(bad), "kind": bad.kind}
        )
        self._news.tell("digest.failed", session_id, told)
        failures = self._failures.get(session_id, 0) + 1
        if bad.retryable and failures < FAILURES_MAX and not self._once:
            self._failures[session_id] = failures
            wish = getattr(bad, "retry_after", None)
            self._remind(session_id, self._clock() + (wish or back_off(failures)))

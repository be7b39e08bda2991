"""When digests are made automatically: at the end of a turn of a session that has grown.

A session that was there before and stays as it is, is left alone. What fails is tried again at the
end of the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from indexerd.digests.summarize import Events
from indexerd.errors import IndexerdError
from indexerd.indexing.indexer import Failure
from indexerd.indexing.policy import SessionRuntime, settled_at
from indexerd.logs import Event
from indexerd.settings import Settings

LONGEST_PAUSE = 30.0  # seconds between two looks at the clock


class AutoDigests:
    """Makes digests when they fall due."""

    def __init__(
        self,
        make: Callable[[str], Awaitable[dict[str, Any]]],
        known: Mapping[str, SessionRuntime],
        *,
        settings: Callable[[], Settings],
        off: Callable[[], bool],
        events: Events,
        clock: Callable[[], float],
    ) -> None:
        """`make(session_id)` makes a digest; `known` are the daemon's sessions; `off`: none."""
        self._make, self._known, self._settings, self._off = make, known, settings, off
        self._events, self._clock = events, clock
        self.made: list[str] = []  # of this process: sessions
        self.failed: dict[str, Failure] = {}
        self._due: dict[str, float] = {}  # when to look at a session
        self._wake = asyncio.Event()

    def grown(self, session_id: str) -> None:
        """Something was added to a session."""
        self._due[session_id] = self._clock()
        self._wake.set()

    async def run(self) -> None:
        """Make what falls due, until cancelled."""
        while True:
            self._wake.clear()
            await self._step()
            pause = min(self._due.values()) - self._clock() if self._due else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause and max(0.001, min(pause, LONGEST_PAUSE))):
                    await self._wake.wait()

    async def settle(self) -> None:
        """Make what is due or falls due by a turn's end, each once, and return (`--once`)."""
        while self._due:
            await asyncio.sleep(max(0.0, min(min(self._due.values()) - self._clock(), 1.0)))
            await self._step()

    async def _step(self) -> None:
        now = self._clock()
        for session_id in [one for one, at in self._due.items() if at <= now]:
            del self._due[session_id]
            known = self._known.get(session_id)
            if known is None or self._off() or not self._settings().digest.enabled:
                continue
            try:
                await self._look(known)
            except IndexerdError as bad:
                self.failed[session_id] = Failure(bad.kind, bad.retryable)
                told = {"kind": bad.kind, "message": str(bad), "retryable": bad.retryable}
                self._events.publish("digest.failed", session_id, told)
                logged = {"session": session_id, "reason": str(bad), "kind": bad.kind}
                self._events.log(Event.DIGEST_FAILED, logged)
            except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
                self._events.defect(Event.DIGEST_FAILED, session_id, bug)

    async def _look(self, known: SessionRuntime) -> None:
        info, now, wanted = known.info, self._clock(), self._settings().digest
        least = wanted.preserve_recent if wanted.token_trigger else wanted.trigger_threshold
        ready = settled_at(known, self._settings())
        if not info.answered or info.messages <= least or ready is None:  # in the middle of a turn
            return
        if ready > now:
            self._due[info.session_id] = ready
            return
        found = await self._make(info.session_id)
        if found["segment"] is not None:
            self.made.append(info.session_id)
            if found["after"] > wanted.trigger_threshold:  # more than one segment takes
                self.grown(info.session_id)

"""Makes digests automatically, at the end of a turn of a session that has grown.

A session that does not change is left alone; a failure is retried at the end of the next turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from indexerd.errors import IndexerdError
from indexerd.indexing.indexer import Failure
from indexerd.indexing.policy import SessionRuntime, settled_at
from indexerd.logs import Event
from indexerd.references.services import Services


class AutoDigests:
    """`make(session_id)` makes a digest of one of the `known` sessions."""

    def __init__(
        self,
        services: Services,
        make: Callable[[str], Awaitable[dict[str, Any]]],
        known: Mapping[str, SessionRuntime],
        off: Callable[[], bool],
    ) -> None:
        self._settings, self._events = services.settings, services.events
        self._make, self._known, self._off = make, known, off
        self.made: list[str] = []  # session ids, since the start
        self.failed: dict[str, Failure] = {}
        self._due: dict[str, float] = {}  # when to look at a session
        self._wake = asyncio.Event()

    def grown(self, session_id: str) -> None:
        self._due[session_id] = time.time()
        self._wake.set()

    async def run(self, *, once: bool = False) -> None:
        """Make digests as they fall due, until cancelled; with `once` until none is left."""
        while True:
            self._wake.clear()
            now = time.time()
            for session_id in [one for one, at in self._due.items() if at <= now]:
                del self._due[session_id]
                await self._look(session_id)
            if once and not self._due:
                return
            pause = min(self._due.values()) - time.time() if self._due else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _look(self, session_id: str) -> None:
        known, settings = self._known.get(session_id), self._settings()
        wanted = settings.digest
        if known is None or self._off() or not wanted.enabled:
            return
        info, ready = known.info, settled_at(known, settings)
        least = wanted.preserve_recent if wanted.token_trigger else wanted.trigger_threshold
        if not info.answered or info.messages <= least or ready is None:  # in the middle of a turn
            return
        if ready > time.time():
            self._due[session_id] = ready
            return
        try:
            found = await self._make(session_id)
        except IndexerdError as bad:
            self.failed[session_id] = Failure(bad.kind, bad.retryable)
            fields = {"kind": bad.kind, "message": str(bad), "retryable": bad.retryable}
            self._events.publish("digest.failed", session_id, fields)
            logged = {"session": session_id, "reason": str(bad), "kind": bad.kind}
            self._events.log(Event.DIGEST_FAILED, logged)
        except Exception as bug:  # noqa: BLE001 - our own defect must not end the daemon
            self._events.defect(Event.DIGEST_FAILED, session_id, bug)
        else:
            if found["segment"] is not None:
                self.made.append(session_id)
                if found["after"] > wanted.trigger_threshold:  # more than one segment can cover
                    self.grown(session_id)

"""When digests are made automatically: at the end of a turn of a session that has grown.

A session that was there before and stays as it is, is left alone. Which long sessions wait
is noted in the store, so that the next daemon looks at them; a session that began since the last
one stopped counts as grown. What fails is tried again at the next turn's end; where that may pass,
before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from indexerd.digests.summarize import Events
from indexerd.errors import IndexerdError, StateError
from indexerd.indexing.indexer import Failure
from indexerd.indexing.policy import SessionRuntime, back_off, settled_at
from indexerd.indexing.queue import Reminders
from indexerd.logs import Event
from indexerd.settings import Settings
from indexerd.store.store import StateStore
from indexerd.times import iso_ms

TOPIC = "digest"  # of the store's notes
FAILURES_MAX = 5  # in a row; after so many only new growth is a reason to try again
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
        notes: StateStore,
        run: Callable[..., Awaitable[Any]],
        ready: Callable[[], Awaitable[object]],
        since: float,
    ) -> None:
        """`make(session_id)` is `Digests.make`; `known` are the sessions as the daemon knows them.

        `off()`: nothing runs. `run` does work in the thread of `notes`. `ready()` returns once all
        sessions are known. `since`, in seconds, is when the last daemon stopped.
        """
        self._make, self._known, self._settings, self._off = make, known, settings, off
        self._events, self._clock, self._since = events, clock, since
        self._notes, self._run, self._ready = notes, run, ready
        self.made: list[str] = []  # of this process: sessions
        self.failed: dict[str, Failure] = {}
        self._waiting: set[str] = set()  # as noted in the store
        self._reminders = Reminders()
        self._failures = Counter[str]()
        self._once = False
        self._wake = asyncio.Event()

    def grown(self, session_id: str) -> None:
        """Something was added to a session."""
        del self._failures[session_id]
        known = self._known.get(session_id)
        if known is not None and known.info.messages > self._least():
            self._remind(session_id, self._clock())

    def met(self, session_id: str) -> None:
        """A session was there at the start that no daemon knew: it may have begun meanwhile."""
        known = self._known.get(session_id)
        if known is not None and iso_ms(known.info.created_at) / 1000 >= self._since:
            self.grown(session_id)

    def _remind(self, session_id: str, when: float) -> None:
        if self._reminders.remind(session_id, when):
            self._wake.set()

    async def run(self) -> None:
        """Make what falls due, until cancelled."""
        await self._take_up()
        while True:
            self._wake.clear()
            await self.step()
            next_at = self._reminders.next_at
            pause = None if next_at is None else min(next_at - self._clock(), LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause and max(0.001, pause)):
                    await self._wake.wait()

    async def settle(self) -> None:
        """Make what is due or falls due by a turn's end, each once, and return (`--once`)."""
        self._once = True
        await self._take_up()
        while (next_at := self._reminders.next_at) is not None:
            await asyncio.sleep(max(0.0, min(next_at - self._clock(), 1.0)))
            await self.step()

    async def _take_up(self) -> None:
        """Take up what the last daemon left waiting."""
        await self._ready()
        with suppress(StateError):
            self._waiting = set(await self._run(self._notes.notes, TOPIC))
        for session_id in sorted(self._waiting):
            self._remind(session_id, self._clock())

    async def step(self) -> None:
        """Look at every session whose moment has come."""
        for session_id in self._reminders.due(self._clock()):
            known = self._known.get(session_id)
            if known is None or self._off() or not self._settings().digest.enabled:
                continue
            try:
                await self._look(known)
            except IndexerdError as bad:
                self._fail(session_id, bad)
            except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
                self._events.defect(Event.DIGEST_FAILED, session_id, bug)

    async def _look(self, known: SessionRuntime) -> None:
        session_id, info, now = known.info.session_id, known.info, self._clock()
        if not info.answered or info.messages <= self._least():
            return
        await self._note(session_id, waits=True)
        ready = settled_at(known, self._settings())
        if ready is None:  # the turn goes on, and will be seen to grow
            return
        if ready > now:
            self._remind(session_id, ready)
            return
        found = await self._make(session_id)
        if found["segment"] is not None:
            self.made.append(session_id)
            if found["after"] > self._settings().digest.trigger_threshold:
                self._remind(session_id, self._clock())  # more than one segment takes
                return
        await self._note(session_id, waits=False)

    def _least(self) -> int:
        """Messages of a whole file up to which none of its paths can be due."""
        wanted = self._settings().digest
        return wanted.preserve_recent if wanted.token_trigger else wanted.trigger_threshold

    def _fail(self, session_id: str, bad: IndexerdError) -> None:
        told = {"kind": bad.kind, "message": str(bad), "retryable": bad.retryable}
        logged = {"session": session_id, "reason": str(bad), "kind": bad.kind}
        self._events.log(Event.DIGEST_FAILED, logged)
        self._events.publish("digest.failed", session_id, told)
        self.failed[session_id] = Failure(bad.kind, bad.retryable)
        self._failures[session_id] += 1
        failures = self._failures[session_id]
        if bad.retryable and failures < FAILURES_MAX and not self._once:
            wish = getattr(bad, "retry_after", None)
            self._remind(session_id, self._clock() + (wish or back_off(failures)))

    async def _note(self, session_id: str, *, waits: bool) -> None:
        """Note in the store whether a session waits."""
        if waits != (session_id in self._waiting):
            (self._waiting.add if waits else self._waiting.discard)(session_id)
            with suppress(StateError):
                await self._run(self._notes.note, TOPIC, session_id, b"1" if waits else None)

"""One job from its start to its consequences: run it, and remember how it went.

A run that ends well clears the session's setback; a failure deepens it, and the ledger keeps
it over a restart. Whoever forced the run is told in either case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from indexerd.daemon.library import Library, Update
from indexerd.daemon.news import News
from indexerd.errors import IndexerdError, NotFoundError, StateError
from indexerd.indexing.indexing import Done, Indexer
from indexerd.indexing.jobs import Job
from indexerd.indexing.known import NONE, Known, Setback, after
from indexerd.logs import Event
from indexerd.models.base import Model
from indexerd.settings import Settings

TOPIC = "retry"
_UNTIL_RELOAD = frozenset({"model_unavailable", "budget_exhausted"})


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed. The error itself is not kept: its traceback holds what was sent."""

    kind: str
    retryable: bool


class Runner:
    """Runs jobs; several may be under way."""

    def __init__(
        self,
        *,
        indexer: Indexer,
        library: Library,
        news: News,
        read: Callable[..., Awaitable[Any]],
        clock: Callable[[], float],
    ) -> None:
        self.indexer = indexer
        self.outcomes: dict[str, Done | Failure] = {}  # of this process, newest per session
        self._library = library
        self._news = news
        self._read = read
        self._clock = clock
        self._setbacks: dict[str, Setback] = {}  # of sessions not met since the start
        self._under_way: dict[str, asyncio.Task[Done]] = {}

    async def load(self) -> None:
        """Take over the setbacks that the ledger kept."""
        held = await self._read(self._library.ledger.notes, TOPIC, _setback)
        # A restart reloads, too.
        self._setbacks |= {key: one for key, one in held.items() if not _lifted(one)}

    def setback(self, session_id: str) -> Setback:
        """The setback of a session that is met for the first time."""
        return self._setbacks.pop(session_id, NONE)

    def remember(self, known: Known) -> None:
        """A session went; should it come back, its setback is still known."""
        self.outcomes.pop(known.card.session_id, None)
        if known.setback != NONE:
            self._setbacks[known.card.session_id] = known.setback

    async def run(
        self, known: Known, job: Job, settings: Settings, models: list[Model]
    ) -> list[Update]:
        """Run one job to its end; what changed by it, nothing after a failure."""
        session_id = job.session_id
        self._news.indexing(known, job.why)
        try:
            work = self.indexer.run(session_id, settings, models, asked=job.forced)
            done = await self._stoppable(session_id, work)
            if done is None:
                answer(known, NotFoundError("the session was purged"))
                return []
            written = self._library.written
            updates: list[Update] = await self._read(written, session_id, done.directory)
        except IndexerdError as bad:
            await self._failed(known, bad)
            return []
        except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
            self._news.defect(Event.INDEX_FAILED, session_id, bug)
            await self._failed(known, IndexerdError(f"internal error: {type(bug).__name__}"))
            return []
        self.outcomes[session_id] = done
        await self._keep(known, NONE)
        self._news.indexed(known, done)
        answer(known, done)
        return updates

    async def _stoppable(self, session_id: str, work: Coroutine[Any, Any, Done]) -> Done | None:
        """How work ended; None where `stop` ended it."""
        task = self._under_way[session_id] = asyncio.create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or waiting.cancelling():  # it is we who are to end
                raise
            return None
        finally:
            task.cancel()
            self._under_way.pop(session_id, None)

    async def stop(self, session_id: str) -> None:
        """End a run under way. A write that has begun may still come to its end."""
        task = self._under_way.get(session_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def forget(self, session_id: str) -> None:
        """Forget how runs of a session went, and what they could not write yet."""
        self.indexer.drop(session_id)
        self.outcomes.pop(session_id, None)
        self._setbacks.pop(session_id, None)
        with suppress(StateError):
            await self._read(self._library.ledger.note, TOPIC, session_id, None)

    async def _failed(self, known: Known, error: IndexerdError) -> None:
        self.outcomes[known.card.session_id] = Failure(error.kind, error.retryable)
        setback = after(known.setback, error, known.card.new_users, self._clock())
        await self._keep(known, setback)
        self._news.failed(known, error, setback.retry_at)
        answer(known, error)

    async def _keep(self, known: Known, setback: Setback) -> None:
        """Remember a setback, or that there is none, over a restart."""
        if setback == known.setback:
            return
        known.setback = setback
        packed = msgspec.msgpack.encode(setback) if setback != NONE else None
        with suppress(StateError):  # the ledger is a cache: without it, it is tried again
            await self._read(self._library.ledger.note, TOPIC, known.card.session_id, packed)

    async def forgive(self, known: Known) -> None:
        """The configuration changed: what waited for a model or a price waits no longer."""
        if _lifted(known.setback):
            await self._keep(known, NONE)


_setback = msgspec.msgpack.Decoder(Setback).decode


def _lifted(setback: Setback) -> bool:
    """Whether a reload ends it. That a model declined the content is not forgotten."""
    return setback.why in _UNTIL_RELOAD and setback.refused_at is None


def answer(known: Known, result: Done | IndexerdError) -> None:
    """Tell whoever forced a run how it ended."""
    forced, known.forced = known.forced, None
    for waiter in forced.waiters if forced else ():
        if not waiter.done():
            waiter.set_result(result)

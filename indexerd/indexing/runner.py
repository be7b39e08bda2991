"""One job from its start to its consequences: run it, and remember how it went.

A run that ends well clears the session's retry state; a failure deepens it, and it is stored over
a restart. Whoever forced the run is told in either case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from indexerd.errors import IndexerdError, NotFoundError, StateError
from indexerd.indexing.indexer import Done, Indexer
from indexerd.indexing.queue import Job
from indexerd.indexing.retry import NO_FAILURE, RetryState, after_failure
from indexerd.indexing.runtime import SessionRuntime
from indexerd.logs import Event
from indexerd.models.base import Model
from indexerd.settings import Settings
from indexerd.store.store import StateStore

TOPIC = "retry"
_decode = msgspec.msgpack.Decoder(RetryState).decode


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed. The error itself is not kept: its traceback holds what was sent."""

    kind: str
    retryable: bool


class Listener(Protocol):
    """Is told how runs begin and end."""

    def indexing(self, session: SessionRuntime, why: str) -> None:
        """A run begins."""
        ...

    def indexed(self, session: SessionRuntime, done: Done) -> None:
        """A run ended well."""
        ...

    def failed(self, session: SessionRuntime, error: IndexerdError, retry_at: float) -> None:
        """A run failed."""
        ...

    def defect(self, event: Event, session_id: str, bug: Exception) -> None:
        """Something is wrong with this program."""
        ...


class Runner:
    """Runs jobs; several may be under way."""

    def __init__(
        self,
        *,
        indexer: Indexer,
        store: StateStore,
        written: Callable[[str, str], Any],
        listener: Listener,
        read: Callable[..., Awaitable[Any]],
        clock: Callable[[], float],
    ) -> None:
        """`written(session id, directory)` takes a new meta file in, in the reader's thread."""
        self.indexer = indexer
        self.outcomes: dict[str, Done | Failure] = {}  # of this process, newest per session
        self._store = store
        self._written = written
        self._listener = listener
        self._read = read
        self._clock = clock
        self._stored: dict[str, RetryState] = {}  # of sessions not met since the start
        self._under_way: dict[str, asyncio.Task[Done]] = {}

    async def load(self) -> None:
        """Take over the stored retry states."""
        held = await self._read(self._store.notes, TOPIC, _decode)
        # A restart reloads, too.
        self._stored |= {key: one for key, one in held.items() if not one.ends_with_reload}

    def retry_state(self, session_id: str) -> RetryState:
        """Return the retry state of a session that is met for the first time."""
        return self._stored.pop(session_id, NO_FAILURE)

    def remember(self, session: SessionRuntime) -> None:
        """A session went; should it come back, its retry state is still known."""
        self.outcomes.pop(session.card.session_id, None)
        if session.retry != NO_FAILURE:
            self._stored[session.card.session_id] = session.retry

    async def run(
        self, session: SessionRuntime, job: Job, settings: Settings, models: list[Model]
    ) -> Any:
        """Run one job to its end; returns what `written` said, [] after a failure."""
        session_id = job.session_id
        self._listener.indexing(session, job.why)
        try:
            work = self.indexer.run(session_id, settings, models, asked=job.forced)
            done = await self._stoppable(session_id, work)
            if done is None:
                session.answer(NotFoundError("the session was purged"))
                return []
            updates = await self._read(self._written, session_id, done.directory)
        except IndexerdError as bad:
            await self._failed(session, bad)
            return []
        except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
            self._listener.defect(Event.INDEX_FAILED, session_id, bug)
            await self._failed(session, IndexerdError(f"internal error: {type(bug).__name__}"))
            return []
        self.outcomes[session_id] = done
        await self._keep(session, NO_FAILURE)
        self._listener.indexed(session, done)
        session.answer(done)
        return updates

    async def _stoppable(self, session_id: str, work: Coroutine[Any, Any, Done]) -> Done | None:
        """Return how work ended; None where `stop` ended it."""
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
        self._stored.pop(session_id, None)
        with suppress(StateError):
            await self._read(self._store.note, TOPIC, session_id, None)

    async def _failed(self, session: SessionRuntime, error: IndexerdError) -> None:
        self.outcomes[session.card.session_id] = Failure(error.kind, error.retryable)
        state = after_failure(session.retry, error, session.card.new_users, self._clock())
        await self._keep(session, state)
        self._listener.failed(session, error, state.retry_at)
        session.answer(error)

    async def _keep(self, session: SessionRuntime, state: RetryState) -> None:
        """Store a retry state, or that there is none."""
        if state == session.retry:
            return
        session.retry = state
        packed = msgspec.msgpack.encode(state) if state != NO_FAILURE else None
        with suppress(StateError):  # without the store, a restart tries again
            await self._read(self._store.note, TOPIC, session.card.session_id, packed)

    async def lift(self, session: SessionRuntime) -> None:
        """The configuration changed: what waited for a model or a price waits no longer."""
        if session.retry.ends_with_reload:
            await self._keep(session, NO_FAILURE)

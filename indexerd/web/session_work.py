"""Work in threads for as long as somebody wants what comes of it.

In: work that takes a `Check`, and the request that it is for. Out: its result. At most `AT_ONCE`
sessions are read at a time, whoever asks; others wait. A client that hung up ends its work.

The work runs in a task of its own, for the server cancels a request's task again and again until
it has ended, which is no way to wait for a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from indexerd.models.threads import Check, stoppable

AT_ONCE = 2
LOOK_SECONDS = 0.5  # between looks whether the client is still there

_T = TypeVar("_T")


class Work:
    """The work of one app."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._doing: set[asyncio.Task[Any]] = set()

    async def streamed(self, work: Callable[[Check], _T]) -> _T:
        """The result; for a response whose task is cancelled when its client is gone."""
        task = self._begin(self._do(work))
        try:
            return await asyncio.shield(task)
        finally:
            task.cancel()  # does nothing where it is done

    async def asked(self, request: Request, work: Callable[[Check], _T]) -> _T:
        """The result; ClientDisconnect as soon as the client is seen to be gone."""
        task = self._begin(self._do(work))
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    raise ClientDisconnect
            return task.result()
        finally:
            task.cancel()

    def _begin(self, doing: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(doing)
        self._doing.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._doing.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits for it any more

    async def _do(self, work: Callable[[Check], _T]) -> _T:
        async with self._slots:
            return await stoppable(work)

"""What may wait: search text while there is some to be read, the store every few seconds.

In: word that something was read. Words are read in passes, with a rest after each, so that what
is appended meanwhile gathers, and while nothing is looked at: that a session has grown is told
before what was said in it is found. The store is brought up to date after the first of them, and
then seldom: it takes a whole tree for each session that grew by a line, and holds up the one
thread that reads. What the store does not know yet at a crash is read again, and nothing
is lost (A3). It never ends because our own disk is full or locked: `guarded` says so, and it tries
again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from indexerd.daemon.library import Library
from indexerd.daemon.reader import Reader

STORED_SECONDS = 5.0  # between two times that the store is brought up to date
GATHER, GATHER_MAX = 2.0, 1.0  # until words are read again: times as long as it took; seconds

LOOKS_FIRST = 0.25  # seconds; then words have their turn all the same

Guarded = Callable[[Coroutine[Any, Any, None]], Awaitable[bool]]
Calm = Callable[[float], Awaitable[bool]]


class Background:
    """Reads words and stores progress, for one library."""

    def __init__(
        self,
        library: Library,
        read: Reader,
        guarded: Guarded,
        calm: Callable[[float], Awaitable[bool]],
    ) -> None:
        """`guarded(work)` does work that needs our own disk; False where that fails.

        `calm(seconds)` comes back while no file is looked at, or after so long.
        """
        self._library = library
        self._read = read
        self._guarded = guarded
        self._calm = calm
        self._work = asyncio.Event()
        self._stored_at = -math.inf
        self._owed = False  # something was read since

    def wake(self) -> None:
        """There is something to do."""
        self._work.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if not await self._guarded(self._catch_up(began + STORED_SECONDS)):
                await asyncio.sleep(STORED_SECONDS)
                continue
            if self._library.texts.even:
                await asyncio.sleep(min(GATHER * (loop.time() - began), GATHER_MAX))
            if not self._library.texts.due:
                self._work.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._due if self._owed else None):
                        await self._work.wait()

    @property
    def _due(self) -> float:
        return self._stored_at + STORED_SECONDS

    async def _catch_up(self, until: float) -> None:
        loop, more = asyncio.get_running_loop(), True
        while more and loop.time() < until:
            await self._calm(LOOKS_FIRST)
            more = await self._read(self._library.texts.some)
        self._owed = loop.time() < self._due
        if not self._owed:
            self._stored_at = loop.time()
            await self._read(self._library.checkpoint)

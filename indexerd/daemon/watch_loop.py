"""Following the files: hints and scans in, what changed out.

In: word of a watcher that something may have changed, and the time. Out: lists of `Update`, handed
to `learn` in the order in which they were found. All work on files is done by the reader, in
bounded steps; what is read at the same time takes turns, so that one huge file holds up neither
the others nor the sign of life that the watchdog is fed by (F9, V2). It never ends because our own
disk is full or locked: it says so in `troubles`, and tries again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library, Update
from indexerd.daemon.reader import Reader
from indexerd.errors import StateError
from indexerd.logs import Event
from indexerd.settings import Settings
from indexerd.sources.census import PAUSE
from indexerd.sources.stores import watched
from indexerd.sources.watch import Watch

SETTLE_SECONDS = 0.02  # from a hint at a file that is not there to the look that believes it
RESCAN_GAP = 1.0  # between two scans
REST, REST_MAX = 1.0, 0.1  # after a look: times as long as it took; seconds
STALL_SECONDS = 60.0  # that one step of following the files may take

Learn = Callable[[list[Update]], None]


class WatchLoop:
    """Follows the files of one library."""

    def __init__(
        self,
        *,
        library: Library,
        watch: Watch,
        bus: EventBus,
        read: Reader,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        learn: Learn,
        owed: Callable[[], None],
    ) -> None:
        """`owed()` is called where something that was read could not be stored yet."""
        self.troubles: dict[str, str] = {}  # what is wrong with our own disk
        self.last_scan_at = 0.0
        self._library = library
        self._watch = watch
        self._bus = bus
        self._read = read
        self._settings = settings
        self._clock = clock
        self._learn = learn
        self._owed = owed
        self._dirty = asyncio.Event()
        self._rescan = False  # a hint said that hints were lost
        self._next_beat = math.inf
        self._turns: deque[Iterator[list[Update]]] = deque()  # what is being read
        self._absent: set[str] = set()  # hinted at, not there, and given time to come back
        self._look: Iterator[list[Update]] | None = None  # at hints, the last that was begun
        self._look_began = self._rest_until = 0.0
        self._calm = asyncio.Event()  # nothing is being read
        self._calm.set()

    def hint(self) -> None:
        """Something may have changed."""
        self._dirty.set()

    def rescan(self) -> None:
        """Hints alone will not tell all: compare everything again, soon."""
        self._rescan = True
        self._dirty.set()

    def stalled(self) -> bool:
        """Whether following the files has come to a halt: then the watchdog is not fed (V2)."""
        return asyncio.get_running_loop().time() > self._next_beat

    async def calm(self, patience: float) -> bool:
        """Come back when nothing is being looked at, or (False) after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._calm.wait()
        return self._calm.is_set()

    async def run(self, scan: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Follow until cancelled; `scan` is called for each reconciling scan."""
        loop = asyncio.get_running_loop()
        next_scan = loop.time()
        while True:
            self._beat(STALL_SECONDS)
            if loop.time() >= next_scan:
                await self.guarded("files", scan())
                next_scan = loop.time() + self._settings().watch.rescan_seconds
            if self._rescan:
                self._rescan = False
                next_scan = min(next_scan, loop.time() + RESCAN_GAP)
            if not self._turns:
                self._beat(next_scan - loop.time() + STALL_SECONDS)
                try:
                    async with asyncio.timeout_at(next_scan):
                        await self._dirty.wait()
                except TimeoutError:
                    continue
            await self.guarded("files", self._round())

    async def guarded(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do work that needs our own disk; where that fails, go on, and say so in `status`.

        It has failed as well while something is owed that was read and could not be stored: no
        file need grow again for that to be stored (A3).
        """
        bad: StateError | None = None
        try:
            await work
        except StateError as failed:
            bad = failed
        bad = bad or self._library.trouble
        if bad is None:
            self.troubles.pop(what, None)
            return
        if what not in self.troubles:
            self._bus.say(Event.WATCH_DEGRADED, {"reason": str(bad)})
        self.troubles[what] = str(bad)
        self._rescan = True
        self._owed()

    async def scan(self) -> None:
        """One reconciling scan: watch first, list second."""
        stores = await self._read(self._library.find_stores)
        await asyncio.to_thread(self._watch.arm, *watched(stores))
        self._bus.watching(self._watch.health())
        self._watch.take()  # what it hinted so far, the scan sees
        work = self._library.scan()
        self._turns.append(work)
        while work in self._turns:
            await self._round()
        self.last_scan_at = self._clock()

    async def _round(self) -> None:
        """One step of all that is under way; what was hinted meanwhile comes first."""
        try:
            if self._dirty.is_set():
                await self._hinted()
            for _ in range(len(self._turns)):
                await self._step(self._turns.popleft())
        finally:
            if not self._turns:
                self._calm.set()

    async def _step(self, work: Iterator[list[Update]]) -> None:
        loop = asyncio.get_running_loop()
        self._calm.clear()
        self._beat(STALL_SECONDS)
        updates = await self._read(next, work, None)
        if work is self._look and updates:  # a part of a huge file is none: others need not wait
            took = loop.time() - self._look_began
            self._rest_until = loop.time() + min(REST * took, REST_MAX)
        if updates is not None:
            self._turns.append(work)
            self._learn(updates)
        elif self._library.census.late:
            loop.call_later(PAUSE, self._dirty.set)

    async def _hinted(self) -> None:
        """Begin to look at what was hinted: at once, but for rests between long looks.

        While files are written to all the time, looks get fewer so, and each sees more. Where
        nothing is, there may be in a moment: the other half of a rename, or of a rewriting.
        """
        loop = asyncio.get_running_loop()
        if (rest := self._rest_until - loop.time()) > 0:
            if self._turns:
                return
            await asyncio.sleep(rest)
        self._dirty.clear()
        hints = self._watch.take()
        self._rescan = self._rescan or hints.rescan
        due, self._absent = self._absent, set()
        if not (hints.paths or due or self._library.census.late):
            return
        self._look, self._look_began = self._library.hinted(due, hints.paths - due), loop.time()
        await self._step(self._look)
        if absent := self._library.absent:
            loop.call_later(SETTLE_SECONDS, self._look_again, absent)

    def _look_again(self, paths: set[str]) -> None:
        self._absent |= paths
        self._dirty.set()

    def _beat(self, seconds: float) -> None:
        """Following the files gets on; the next sign comes within so many seconds."""
        self._next_beat = asyncio.get_running_loop().time() + seconds

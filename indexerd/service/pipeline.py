"""The whole flow: hints and scans in, meta files out, one way.

    watch -> library (tail, skim, state, catalog) -> policy -> jobs -> indexer -> library

Three loops run side by side: one follows the files, one keeps the time of waiting decisions,
one does what may wait (search text, checkpoints). Blocking work on files is done by one reader
thread, in bounded steps. Nothing here is stored: a restart comes to the same decisions again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from indexerd.core.cursor import Verdict
from indexerd.core.jobs import Job, Jobs
from indexerd.core.policy import Index, Limits, Skip, Wait, decide
from indexerd.core.reminders import Reminders
from indexerd.errors import (
    AlreadyRunningError,
    ConfigError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    NotFoundError,
    SessionEmptyError,
    StateError,
)
from indexerd.events import Turn
from indexerd.io.census import PAUSE
from indexerd.io.logs import Event
from indexerd.io.stores import watched
from indexerd.io.watch import Watch
from indexerd.llm.base import Model
from indexerd.llm.registry import Models
from indexerd.service.indexing import Done, Indexer
from indexerd.service.known import Forced, Known
from indexerd.service.library import Library, Update
from indexerd.service.news import News
from indexerd.service.reader import Reader
from indexerd.service.runner import Runner, answer
from indexerd.settings import Loaded, Settings

FORCE_PATIENCE = 60.0  # seconds a forced run waits for the end of a turn
SETTLE_SECONDS, RESCAN_GAP = 0.02, 1.0  # from a hint to the look there; between two scans
CHECKPOINT_SECONDS, DAY = 5.0, 86_400
STALL_SECONDS = 60.0  # that one step of following the files may take
LONGEST_PAUSE = 30.0  # seconds between two looks at the clock


class Pipeline:
    """The flow of one daemon, or of one `run --once`."""

    def __init__(
        self,
        *,
        library: Library,
        indexer: Indexer,
        watch: Watch,
        news: News,
        read: Reader,
        loaded: Loaded,
        models: Models,
        clock: Callable[[], float],
    ) -> None:
        self.read = read
        self.library = library
        self.runner = Runner(indexer=indexer, library=library, news=news, read=read, clock=clock)
        self.watch = watch
        self.news = news
        self.loaded = loaded
        self.models = models
        self.known: dict[str, Known] = {}
        self.jobs = Jobs(loaded.settings.index.concurrency)
        self.scanned = asyncio.Event()
        self.last_scan_at = 0.0
        self.troubles: dict[str, str] = {}  # what is wrong with our own disk
        self.on_row: Callable[[str, dict[str, Any] | None], None] = lambda _id, _row: None
        self.on_growth: Callable[[str], None] = lambda _id: None
        self.on_meeting: Callable[[str], None] = self.on_growth  # of what was there before us
        self.now = clock  # seconds since the epoch
        self._started = clock()
        self._dirty = asyncio.Event()
        self._rescan = False  # a hint said that hints were lost
        self._wake = asyncio.Event()
        self._idle_work = asyncio.Event()
        self._next_beat = math.inf
        self._reminders = Reminders()
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.loaded.settings

    @property
    def indexing_off(self) -> bool:
        """Whether a bad configuration keeps us from indexing (S0.26)."""
        return bool(self.loaded.problems)

    # -- loops ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled."""
        await self.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self.keep_time())
                group.create_task(self._background())
        finally:
            await self.stop()

    async def start(self) -> None:
        """Take over what ledger and catalog know."""
        await self.runner.load()
        self._learn(await self.read(self.library.load))

    async def stop(self) -> None:
        """Let go of what is under way; an interrupted run writes nothing."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def hint(self) -> None:
        """Something may have changed; called by the watcher's thread through the loop."""
        self._dirty.set()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        next_scan = loop.time()
        while True:
            self._beat(STALL_SECONDS)
            if loop.time() >= next_scan:
                await self._guarded("files", self.scan())
                next_scan = loop.time() + self.settings.watch.rescan_seconds
            if self._rescan:
                self._rescan = False
                next_scan = min(next_scan, loop.time() + RESCAN_GAP)
            self._beat(next_scan - loop.time() + STALL_SECONDS)
            try:
                async with asyncio.timeout_at(next_scan):
                    await self._dirty.wait()
            except TimeoutError:
                continue
            await self._guarded("files", self._drain())

    def _beat(self, seconds: float) -> None:
        """Following the files gets on; the next sign comes within so many seconds."""
        self._next_beat = asyncio.get_running_loop().time() + seconds

    def stalled(self) -> bool:
        """Whether following the files has come to a halt: then the watchdog is not fed (V2)."""
        return asyncio.get_running_loop().time() > self._next_beat

    async def _guarded(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do work that needs our own disk; where that fails, go on, and say so in `status`."""
        try:
            await work
        except StateError as bad:
            if what not in self.troubles:
                self.news.say(Event.WATCH_DEGRADED, {"reason": str(bad)})
            self.troubles[what] = str(bad)
            self._rescan = True
        else:
            self.troubles.pop(what, None)

    async def scan(self) -> None:
        """One reconciling scan: watch first, list second."""
        stores = await self.read(self.library.find_stores)
        await asyncio.to_thread(self.watch.arm, *watched(stores))
        self.news.watching(self.watch.health())
        self.watch.take()  # what it hinted so far, the scan sees
        async for updates in self.read.steps(self.library.scan()):
            self._beat(STALL_SECONDS)
            self._learn(updates)
            if self._dirty.is_set():
                await self._drain()
        self.last_scan_at = self.now()
        self.news.say(Event.WATCH_RESCAN, {"count": len(self.known)})
        if not self.scanned.is_set():
            self.scanned.set()
            for session_id in list(self.known):
                self._consider(session_id)

    async def _drain(self) -> None:
        """Look at what was hinted, once a moment has brought both halves of a rename."""
        await asyncio.sleep(SETTLE_SECONDS)
        self._dirty.clear()
        hints = self.watch.take()
        self._rescan = self._rescan or hints.rescan
        if hints.paths or self.library.census.late:
            async for updates in self.read.steps(self.library.hinted(hints.paths)):
                self._learn(updates)
        if self.library.census.late:
            asyncio.get_running_loop().call_later(PAUSE, self._dirty.set)

    async def keep_time(self) -> None:
        """Decide again on every session whose moment has come."""
        while True:
            now = self.now()
            for session_id in self._reminders.due(now):
                self._consider(session_id)
            self._wake.clear()
            # Never long: the clock may be set, and a laptop may sleep.
            next_at = self._reminders.next_at
            pause = LONGEST_PAUSE if next_at is None else min(next_at - now, LONGEST_PAUSE)
            try:
                async with asyncio.timeout(max(pause, 0.001)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _background(self) -> None:
        """What may wait: search text while there is some, the ledger every few seconds."""
        await self.scanned.wait()
        loop = asyncio.get_running_loop()
        while True:
            await self._guarded("ledger", self._catch_up(loop.time() + CHECKPOINT_SECONDS))
            if "ledger" in self.troubles:
                await asyncio.sleep(CHECKPOINT_SECONDS)
            elif not self.library.texts.unread:
                self._idle_work.clear()
                await self._idle_work.wait()

    async def _catch_up(self, until: float) -> None:
        more = True
        while more and asyncio.get_running_loop().time() < until:
            more = await self.read(self.library.texts.step)
        await self.read(self.library.checkpoint)

    # -- decisions -----------------------------------------------------------------------

    def _learn(self, updates: list[Update]) -> None:
        """Take in what the library found, tell whoever listens, and decide again."""
        now = self.now()
        for update in updates:
            card, key = update.card, update.session_id
            known = self.known.get(key)
            if card is None:
                self._forget(key)
            elif known is None:
                seen = min(card.mtime_ms / 1000, now)
                self.known[key] = Known(card, update.brief, seen, seen, self.runner.setback(key))
                (self.on_growth if self.scanned.is_set() else self.on_meeting)(key)
            else:
                self._grow(known, update, now)
            if update.row is not None or card is None:
                self.on_row(key, update.row)
            if self.scanned.is_set():
                self.news.session(update, was_known=known is not None)
            self._consider(key)
        if updates:
            self._idle_work.set()

    def _forget(self, session_id: str) -> None:
        """A session's file is gone; should it come back, what failed has not been forgotten."""
        self.jobs.withdraw(session_id)
        known = self.known.pop(session_id, None)
        if known is None:
            return
        self.runner.remember(known)
        if session_id not in self._running:
            answer(known, NotFoundError("the session's file is gone"))

    def _grow(self, known: Known, update: Update, now: float) -> None:
        below = known.card.new_users < self.settings.min_new_user_messages
        known.brief = update.brief
        if update.card is not None:
            known.card = update.card
        if update.change is not None and update.change.verdict is not Verdict.SAME:
            known.changed_at = now
            if below:
                known.open_since = now
            self.on_growth(update.session_id)

    def _consider(self, session_id: str) -> None:
        """Decide on one session, and see to it that the decision is kept."""
        known = self.known.get(session_id)
        if known is None or session_id in self._running or self.indexing_off:
            return
        if not self.scanned.is_set():  # what the ledger says may be out of date
            return
        match decide(known.view(), self.now(), Limits.of(self.settings)):
            case Index(why):
                self._offer(known, why)
            case Wait(until):
                self.jobs.withdraw(session_id)
                self._wait(known, until)
            case Skip(why):
                self.jobs.withdraw(session_id)
                if known.forced:
                    answer(known, SessionEmptyError(f"there is no answer in it yet ({why})"))

    def _offer(self, known: Known, why: str) -> None:
        """Queue a session, unless it came by itself and no model could take it."""
        session_id, forced = known.card.session_id, known.forced is not None
        if self.library.files.exclusions.forbid(known.card):
            return
        if forced or self._takers(known):
            self.news.say(Event.INDEX_QUEUED, {"session": session_id, "reason": why})
            self.jobs.offer(Job(session_id, why, known.card.modified_ms, forced))
            self._pump()

    def _takers(self, known: Known) -> list[Model]:
        """The models that may take a session by itself: an old one stays on this machine."""
        age = self._started - known.card.modified_ms / 1000
        old = age > self.settings.index.backfill_days * DAY
        return [one for one in self.models.available() if not (old and one.remote)]

    def _wait(self, known: Known, until: float) -> None:
        """Look again later; whoever forced a run is not kept waiting for ever."""
        if known.forced:
            if known.card.turn_state is Turn.OPEN and self.now() >= known.forced.until:
                answer(known, DeadlineError("the session is still in the middle of a turn"))
                self._consider(known.card.session_id)
                return
            until = min(until, known.forced.until)
        if self._reminders.remind(known.card.session_id, until):
            self._wake.set()

    def decide_due(self) -> bool:
        """Decide on every session not tried yet whose moment has come; says whether one runs."""
        for session_id in self.known.keys() - self.runner.outcomes.keys():
            self._consider(session_id)
        return bool(self._running)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Jobs under way."""
        return [*self._running.values()]

    # -- jobs ----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start what has its turn and finds room."""
        while (job := self.jobs.take()) is not None:
            self._running[job.session_id] = asyncio.create_task(self._job(job))

    async def _job(self, job: Job) -> None:
        session_id = job.session_id
        known = self.known.get(session_id)
        try:
            if known is not None:
                usable = self.models.available() if job.forced else self._takers(known)
                update = await self.runner.run(known, job, self.settings, usable)
                self._learn([update] if update else [])
        finally:
            self.jobs.done(session_id)
            self._running.pop(session_id, None)
        self._consider(session_id)
        self._pump()

    # -- asked for -----------------------------------------------------------------------

    def force(self, session_id: str) -> asyncio.Future[Done | IndexerdError]:
        """Index a session as soon as its turn has ended, below the threshold too.

        Raises ConfigError, ModelUnavailableError, NotFoundError, or AlreadyRunningError.
        """
        self.refuse_if_off()
        known = self.known.get(session_id)
        if known is None:
            raise NotFoundError("the session's file is gone")
        if session_id in self._running or known.forced:
            raise AlreadyRunningError("Session indexing already in progress")
        waiter: asyncio.Future[Done | IndexerdError] = asyncio.get_running_loop().create_future()
        known.forced = Forced(self.now() + FORCE_PATIENCE, [waiter])
        self._consider(session_id)
        return waiter

    def refuse_if_off(self) -> None:
        """Raise what keeps every session from being indexed: ConfigError, ModelUnavailableError."""
        if self.indexing_off:
            raise ConfigError(self.loaded.problems)
        if not self.models.available():
            missing = "; ".join(f"{key}: {why}" for key, why in self.models.missing.items())
            raise ModelUnavailableError(f"Missing configured model(s): {missing}")

    async def rewritten(self, session_id: str, directory: str) -> None:
        """A sidecar was written by us."""
        self._learn([await self.read(self.library.written, session_id, directory)])

    async def reconsider(self) -> None:
        """What is not to be read is another now: drop that, and look for what may be read."""
        self._learn(await self.read(self.library.reconsider))
        self._rescan = True  # roots and exclusions may be others
        self._dirty.set()

    async def reload(self, loaded: Loaded, models: Models) -> None:
        """Take new settings; what waited for a model or a price waits no longer."""
        old, self.loaded, self.models = self.models, loaded, models
        self.jobs.concurrency = loaded.settings.index.concurrency
        await self.reconsider()  # before anything is sent
        for session_id, known in list(self.known.items()):
            await self.runner.forgive(known)
            self._consider(session_id)
        await old.aclose()

"""From a file event to a stored row, and from a due session to an index run.

    append: watch -> library (tail, agent, state, store: cursor and row in one transaction)
            -> _learn -> bus -> unix server
    index:  policy -> queue -> indexer (transcript, model, check, meta file) -> library -> bus

One loop follows the files, another reads texts for the search index; a single thread reads files
for both, in bounded steps. Nothing here is stored: a restart makes the same decisions again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic, time
from typing import Any, TypeVar

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.files import Update
from indexerd.daemon.library import Library
from indexerd.daemon.process import trim
from indexerd.entries import Turn
from indexerd.errors import (
    AlreadyRunningError,
    ConfigError,
    DeadlineError,
    IndexerdError,
    ModelUnavailableError,
    NotFoundError,
    SessionEmptyError,
    StateError,
    UsageError,
)
from indexerd.indexing.indexer import Done, Indexer
from indexerd.indexing.policy import NO_FAILURE, Forced, SessionRuntime, decide
from indexerd.meta.session_row import Row
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.registry import Models
from indexerd.settings import Loaded, Settings
from indexerd.sources.roots import watched
from indexerd.sources.tail import Verdict
from indexerd.sources.watch import Watch

FORCE_PATIENCE = 60.0  # seconds a forced run waits for the end of a turn
DAY = 86_400
LONGEST_PAUSE = 300.0  # seconds between two decisions: a laptop may sleep, a clock may be set
RESCAN_GAP = 1.0  # seconds between two scans
RETRY_SECONDS = 2.0  # after our own disk refused a write
GATHER, GATHER_MAX = 0.5, 1.0  # pause after reading texts: share of that time; most seconds
FILES_FIRST = 0.03  # seconds that texts wait while there are files to read
_MID_TURN = "the session is still in the middle of a turn"
ASKED_PATIENCE = 0.25  # seconds a request waits for its directory's disk
STALL_SECONDS = 60.0  # after which a step of the reader counts as hanging

_T = TypeVar("_T")


class Pipeline:
    """Follows the files, indexes their texts, and indexes the sessions that are due."""

    def __init__(
        self,
        *,
        library: Library,
        budget: Budget,
        writer: MetaWriter,
        watch: Watch,
        bus: EventBus,
        loaded: Loaded,
        models: Models,
    ) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reader")
        # These look at projects, which may be on a mount that does not answer.
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="projects")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="asked")
        self._stalled_at = math.inf  # when the thread's current work counts as hanging, `monotonic`
        self.library = library
        self.indexer = Indexer(library, self.read, budget, writer, bus)
        self.watch = watch
        self.bus = bus
        self.loaded = loaded
        self.refused: tuple[dict[str, str], ...] = ()  # problems of the last reload
        self.models = models
        self.known: dict[str, SessionRuntime] = {}
        self.jobs: dict[str, str] = {}  # sessions to index, with reasons; computed, never stored
        self._order: list[tuple[bool, int, str]] = []  # heap: those asked for, then the newest
        self.running: dict[str, asyncio.Task[None]] = {}
        self.scanned = asyncio.Event()
        self.troubles: dict[str, str] = {}  # why our own disk cannot be written, by failing loop
        self.last_scan_at = 0.0  # end of the last scan, in seconds since the epoch
        self.on_rows: Callable[[dict[str, Row | None]], None] = lambda _: None
        self.on_change: Callable[[], object] = lambda: None  # new texts, or a purge
        self.on_growth: Callable[[str], None] = lambda _id: None
        self.only_reads = False  # `run --once` reads all texts before it starts to index
        self.dirty = asyncio.Event()  # there are files to read
        self.unread = asyncio.Event()  # there are texts to read, to commit or to wipe
        self._unplaced = asyncio.Event()  # projects may have moved, or there are new ones
        self._placed = -1  # version of the projects that the rows have
        self._started = time()
        self._scan_at = 0.0  # by `monotonic`
        self._scanning = False
        self._timers: dict[str, asyncio.TimerHandle] = {}  # of decisions, by session

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def indexing_off(self) -> bool:
        return bool(self.loaded.problems)

    @property
    def stalled(self) -> bool:
        """Whether the reader's thread hangs, as on a mount that does not answer."""
        return monotonic() > self._stalled_at

    @property
    def missing_models(self) -> str:
        return "; ".join(f"{key}: {why}" for key, why in self.models.missing.items())

    # -- files

    async def read(self, work: Callable[..., _T], *args: Any) -> _T:
        """Do work in the single thread that reads files and writes store and index.

        Then wakes the loops that have more to do.
        """

        def watched_work() -> _T:
            self._stalled_at = monotonic() + STALL_SECONDS
            try:
                return work(*args)
            finally:
                self._stalled_at = math.inf

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, watched_work)
        finally:
            if self.library.index.pending:
                self.unread.set()
            if self.library.files.busy or self.library.files.rest_at < math.inf:
                self.dirty.set()

    async def start(self) -> None:
        """Load the stored state."""
        await self.indexer.load()
        self._learn(await self.read(self.library.load))

    async def stop(self) -> None:
        """Cancel the current runs; an interrupted run writes nothing."""
        self.watch.close()
        for task in self.running.values():
            task.cancel()
        await asyncio.gather(*self.running.values(), return_exceptions=True)

    async def follow(self) -> None:
        """Follow the files until cancelled; return if a cache is damaged."""
        await self.start()
        await self._repeat(self.look)

    async def index_texts(self) -> None:
        """Read texts for the search index until cancelled; return if a cache is damaged."""
        await self.scanned.wait()
        await self._repeat(self._read_texts)

    async def follow_projects(self) -> None:
        """Find out where projects are now, until cancelled; return if a cache is damaged."""
        await self.scanned.wait()
        await self._repeat(self._place_next)

    async def _place_next(self) -> None:
        await self._unplaced.wait()
        self._unplaced.clear()
        await self.place_all()

    async def place_all(self) -> None:
        """Look where the projects of all sessions are."""

        def look() -> None:
            known = {*self.library.store.directories().values()}
            cwds = (cwd for cwd in known if cwd.startswith("/"))
            self.library.projects.look(cwds, int(1000 * time()))

        await self._place(look)

    async def move(self, old: str, new: str, *, undo: bool) -> int:
        """Note that a directory has moved; return how many sessions that changes."""

        def move() -> None:
            if not undo and not Path(new).is_dir():
                raise UsageError(f"{new} is not a directory", hint="move it first")
            self.library.projects.move(old, new, at=int(1000 * time()), undo=undo)

        return await self._place(move)

    async def _place(self, change: Callable[[], None]) -> int:
        """Do this in the thread for projects; write the rows of the sessions that it moves."""
        projects, store = self.library.projects, self.library.store

        def changed() -> tuple[int, list[str]]:
            change()
            version = projects.version
            return version, projects.stale(store.places()) if version != self._placed else []

        version, stale = await asyncio.get_running_loop().run_in_executor(self._looking, changed)
        if stale:
            self._learn(await self.read(self.library.rewrite, stale))
        self._placed = version
        return len(stale)

    async def asked(self, directory: str) -> str:
        """Return the project of a directory where someone works; as known, if its disk hangs."""
        projects, loop = self.library.projects, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ASKED_PATIENCE):
                return await loop.run_in_executor(self._asking, projects.asked, directory)
        except TimeoutError:
            return projects.project(directory)

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat work; retry while our own disk is full or locked."""
        while not self.library.damaged:
            try:
                await work()
                self.troubles.pop(work.__name__, None)
            except StateError as bad:
                if work.__name__ not in self.troubles:
                    self.bus.log("watch.degraded", {"reason": str(bad)})
                self.troubles[work.__name__] = str(bad)
                await asyncio.sleep(RETRY_SECONDS)

    def rescan(self) -> None:
        """Scan again soon, since hints alone will not show all changes."""
        self._scan_at = min(self._scan_at, monotonic() + RESCAN_GAP)
        self.dirty.set()

    async def look(self) -> None:
        """Read hinted files first, then queued ones, or wait for more."""
        library = self.library
        self.dirty.clear()
        if monotonic() >= self._scan_at and not self._scanning:
            await self._begin_scan()
        paths, rescan = self.watch.take()
        if rescan:
            self.rescan()
        again_at, rest_at = library.discovery.again_at, library.files.rest_at
        if paths or monotonic() >= again_at:
            self._learn(await self.read(library.hinted, paths))
        elif library.files.busy:
            self._learn(await self.read(library.step))
        elif self._scanning:
            await self._end_scan()
        elif monotonic() >= rest_at:
            await self.read(library.files.rest)
            trim()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._scan_at, again_at, rest_at) - monotonic()):
                    await self.dirty.wait()

    async def _begin_scan(self) -> None:
        """Watch first, and list after that, so that no change is missed."""
        began = monotonic()
        roots = await self.read(self.library.find_roots)
        self.watch.open()
        self.watch.take()  # the scan sees all that was hinted so far
        await self.read(self.watch.arm, *watched(roots))
        await self.read(self.library.scan, self.watch.add)
        self.bus.watching(self.watch.settle())
        self._scan_at = began + self.settings.watch.rescan_seconds
        self._scanning = True

    async def _end_scan(self) -> None:
        is_first = not self.scanned.is_set()
        if is_first:
            self._learn(await self.read(self.library.end_first_scan))
        self._scanning = False
        self._unplaced.set()
        self.last_scan_at = time()
        self.unread.set()
        self.bus.log("watch.rescan", {"count": len(self.known)})
        if is_first:
            self.scanned.set()
            self._consider_all()

    async def _read_texts(self) -> None:
        """Index some texts, commit, and pause, so that appends are batched."""
        texts = self.library.texts
        if not texts.due:
            await self.unread.wait()
        if self.dirty.is_set() or self.library.files.busy:
            await asyncio.sleep(FILES_FIRST)
        began = monotonic()
        self.unread.clear()
        more = await self.read(texts.read_some)
        if texts.ripe:
            await asyncio.to_thread(self.library.index.commit)
            self.on_change()
            await asyncio.to_thread(trim)
        if not more:
            await asyncio.sleep(min(GATHER * (monotonic() - began), GATHER_MAX))

    # -- sessions

    def _learn(self, updates: list[Update]) -> None:
        """Apply and publish the library's updates, and decide on each session again."""
        now = time()
        if updates:
            self.unread.set()
            rows = ((new.session_id, new.row) for new in updates if new.row or new.info is None)
            self.on_rows(dict(rows))
        for update in updates:
            info, key = update.info, update.session_id
            known = self.known.get(key)
            if info is None:
                self.jobs.pop(key, None)
                self.known.pop(key, None)
                if known and key not in self.running:
                    known.answer(NotFoundError("the session's file is gone"))
            elif known is None:
                seen, retry = min(info.mtime_ms / 1000, now), self.indexer.retries.get(key)
                self.known[key] = SessionRuntime(info, seen, seen, retry or NO_FAILURE)
                if self.scanned.is_set():  # older sessions wait until they grow
                    self.on_growth(key)
                    self._unplaced.set()
            else:
                if update.verdict is not Verdict.SAME:
                    known.changed_at = now
                    if known.info.new_users < self.settings.min_new_user_messages:
                        known.open_since = now
                    self.on_growth(key)
                known.info = info
            if self.scanned.is_set():
                self.bus.session(update, was_known=known is not None)
            self.consider(key)

    def consider(self, session_id: str) -> None:
        """Queue a session, decide on it again later, or leave it until it changes."""
        if timer := self._timers.pop(session_id, None):
            timer.cancel()
        known = self.known.get(session_id)
        if known is None or session_id in self.running or self.indexing_off:
            return
        if not self.scanned.is_set():  # the store may be out of date
            return
        now = time()
        when, why = decide(known, self.settings, now)
        info = known.info
        if when <= now:
            excluded = self.library.files.exclusions.match(info.path, info.cwd, session_id)
            if not excluded and (known.forced or self._models_for(known)):
                self.bus.log("index.queued", {"session": session_id, "reason": why})
                if why != self.jobs.get(session_id):  # else it is in the heap already
                    heappush(self._order, (not known.forced, -info.modified_ms, session_id))
                self.jobs[session_id] = why
                self._start_runs()
            return
        self.jobs.pop(session_id, None)
        if when == math.inf:
            known.answer(SessionEmptyError(f"the session has no answer yet ({why})"))
            return
        if known.forced and info.turn is Turn.OPEN:
            if now >= known.forced.until:
                known.answer(DeadlineError(_MID_TURN, hint="try again when its agent has answered"))
            else:
                when = min(when, known.forced.until)
        pause = min(when - now, LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        self._timers[session_id] = loop.call_later(pause, self.consider, session_id)

    def _models_for(self, known: SessionRuntime) -> list[Model]:
        """Return the models for an automatic run: only local ones if the session is old."""
        age = self._started - known.info.modified_ms / 1000
        old = age > self.settings.index.backfill_days * DAY
        return [model for model in self.models.available() if not (old and model.remote)]

    def _start_runs(self) -> None:
        room = self.settings.index.concurrency
        while not self.only_reads and len(self.running) < room and self.jobs:
            session_id = heappop(self._order)[-1]
            if why := self.jobs.pop(session_id, ""):  # else it was run, or is not due any more
                run = self._run(session_id, why, self.known[session_id])
                self.running[session_id] = asyncio.create_task(run)

    async def _run(self, session_id: str, why: str, known: SessionRuntime) -> None:
        try:
            if self.known.get(session_id) is not known:  # it vanished before this began
                known.answer(NotFoundError("the session's file is gone"))
            else:
                began = time()
                usable = self.models.available() if known.forced else self._models_for(known)
                updates = await self.indexer.run(known, why, self.settings, usable)
                if updates:  # newer messages have waited since this run began
                    known.open_since = began
                self._learn(updates)
        finally:
            self.running.pop(session_id, None)
        self.consider(session_id)
        self._start_runs()

    async def end_run(self, session_id: str) -> None:
        """Cancel a session's run; a write that has begun may still complete."""
        if task := self.running.get(session_id):
            task.cancel()
            await asyncio.wait([task])
            self._start_runs()

    def force(self, session_id: str) -> asyncio.Future[Done | IndexerdError]:
        """Index a session as soon as its turn has ended, even below the threshold.

        Raises ConfigError, ModelUnavailableError, NotFoundError, or AlreadyRunningError.
        """
        self.refuse_if_off()
        known = self.known.get(session_id)
        if known is None:
            raise NotFoundError("the session's file is gone")
        if session_id in self.running or known.forced:
            raise AlreadyRunningError("Session indexing already in progress")
        waiter: asyncio.Future[Done | IndexerdError] = asyncio.get_running_loop().create_future()
        known.forced = Forced(time() + FORCE_PATIENCE, waiter)
        self.consider(session_id)
        return waiter

    def refuse_if_off(self) -> None:
        """Raise ConfigError or ModelUnavailableError if no session can be indexed."""
        if self.indexing_off:
            raise ConfigError(self.refused or self.loaded.problems)
        if not self.models.available():
            raise ModelUnavailableError(f"Missing configured model(s): {self.missing_models}")

    def due(self) -> list[str]:
        least = self.settings.min_new_user_messages
        infos = ((key, known.info) for key, known in self.known.items())
        return [key for key, info in infos if info.answered and info.new_users >= least]

    async def rewritten(self, session_id: str, directory: str) -> None:
        self._learn(await self.read(self.library.written, session_id, directory))

    async def reconsider(self) -> None:
        """Drop newly excluded sessions, and find those that are no longer excluded.

        Raises StateError if they could not be dropped yet; a later step tries again.
        """
        await self.read(self.library.reconsider)
        self.rescan()
        self._learn(await self.read(self.library.flush))

    async def reload(self, loaded: Loaded, models: Models) -> None:
        """Apply new settings; sessions no longer wait for a model or the budget."""
        self.loaded, self.models = loaded, models
        with suppress(StateError):
            await self.reconsider()  # before anything is sent
        for known in list(self.known.values()):
            if known.retry.ends_with_reload:
                await self.indexer.keep(known, NO_FAILURE)
        self._consider_all()

    def _consider_all(self) -> None:
        for session_id in list(self.known):
            self.consider(session_id)

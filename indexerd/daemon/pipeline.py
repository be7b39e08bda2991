"""From a file event to a stored row, and from a due session to an index run.

    append: watch -> library (tail, agent, state, store: cursor and row in one transaction)
            -> _learn -> bus -> unix server
    index:  policy -> queue -> indexer (transcript, model, check, meta file) -> library -> bus

One loop follows the files and reads words for the search index, another makes decisions when they
are due. Blocking work on files is done by one reader thread, in bounded steps. Nothing here is
stored: after a restart the same decisions are made again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library, Update
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
from indexerd.indexing.indexer import Done, Indexer
from indexerd.indexing.policy import NO_FAILURE, Forced, SessionRuntime, decide
from indexerd.indexing.queue import Job, JobQueue, Reminders
from indexerd.logs import Event
from indexerd.models.base import Model
from indexerd.models.registry import Models
from indexerd.settings import Loaded, Settings
from indexerd.sources.cursor import Verdict
from indexerd.sources.stores import watched
from indexerd.sources.watch import Watch

FORCE_PATIENCE = 60.0  # seconds a forced run waits for the end of a turn
DAY = 86_400
AT_ONCE = 200  # sessions that are taken in, or decided on, before the loop gets its turn
LONGEST_PAUSE = 30.0  # seconds between two looks at the clock
RESCAN_GAP = 1.0  # between two scans
REST_MAX = 0.05  # after a look at hints, which rests as long as it took: the next sees more
RETRY_SECONDS = 2.0  # until what our own disk did not take is tried again
GATHER, GATHER_MAX = 2.0, 1.0  # until words are read again: times as long as it took; seconds
HINTS_FIRST = 0.25  # seconds that words wait while there is always something to look at
STALL_SECONDS = 60.0  # that one step of the reader may take

_T = TypeVar("_T")


class Reader:
    """The one thread that reads files: trees, the store and index writes are its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reader")

    async def __call__(self, work: Callable[..., _T], *args: Any) -> _T:
        """Do one piece of work in order; it should be bounded, others wait."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self._thread.shutdown()


class Pipeline:
    """The flow."""

    def __init__(
        self,
        *,
        library: Library,
        indexer: Indexer,
        watch: Watch,
        bus: EventBus,
        read: Reader,
        loaded: Loaded,
        models: Models,
        clock: Callable[[], float],
    ) -> None:
        self.reader = read
        self.library = library
        self.indexer = indexer
        self.watch = watch
        self.bus = bus
        self.loaded = loaded
        self.models = models
        self.known: dict[str, SessionRuntime] = {}
        self.jobs = JobQueue()
        self.scanned = asyncio.Event()
        self.last_scan_at = 0.0  # when the last scan ended, in seconds since the epoch
        self.on_row: Callable[[str, dict[str, Any] | None], None] = lambda _id, _row: None
        self.on_growth: Callable[[str], None] = lambda _id: None
        self.now = clock  # seconds since the epoch
        self._started = clock()
        self._dirty = asyncio.Event()  # something is to be looked at
        self._scan_at = self._hints_at = self._words_at = self._retry_at = 0.0  # monotonic
        self._busy_until = math.inf  # of the step under way
        self._scanning = False
        self._words_due = True
        self._commit: asyncio.Task[None] | None = None  # has words be found, beside all else
        self._words_trouble = ""
        self._wake = asyncio.Event()  # a decision is to be made sooner
        self._reminders = Reminders()
        self.running: dict[str, asyncio.Task[None]] = {}

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.loaded.settings

    @property
    def indexing_off(self) -> bool:
        """Whether a bad configuration keeps us from indexing."""
        return bool(self.loaded.problems)

    @property
    def trouble(self) -> str:
        """What is wrong with our own disk."""
        return str(self.library.trouble or self._words_trouble)

    @property
    def missing_models(self) -> str:
        """Why each configured model cannot be used."""
        return "; ".join(f"{key}: {why}" for key, why in self.models.missing.items())

    async def read(self, work: Callable[..., _T], *args: Any) -> _T:
        """Do work in the reader's thread; what it came upon is looked at then."""
        try:
            return await self.reader(work, *args)
        finally:
            if self.library.index.pending:  # words, which are to be found
                self._owe_words()
            if self.library.busy or self._words_due:
                self._dirty.set()

    # -- following the files -----------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled; ends by itself where a cache is damaged."""
        await self.start()
        try:
            await self._follow()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Take over what store and index know."""
        await self.indexer.load()
        updates = await self.read(self.library.load)
        for at in range(0, len(updates), AT_ONCE):
            self._learn([one for one in updates[at : at + AT_ONCE] if self._is_new(one)])
            await asyncio.sleep(0)

    def _is_new(self, update: Update) -> bool:
        """Whether nobody changed or dropped a session while others were taken in."""
        key = update.session_id
        return key not in self.known and self.library.files.info(key) is not None

    async def stop(self) -> None:
        """Let go of what is under way; an interrupted run writes nothing."""
        running = [*self.running.values(), *([self._commit] if self._commit else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def hint(self) -> None:
        """Something may have changed."""
        self._dirty.set()

    def rescan(self) -> None:
        """Hints alone will not tell all: compare everything again, soon."""
        self._scan_at = min(self._scan_at, monotonic() + RESCAN_GAP)
        self._dirty.set()

    def stalled(self) -> bool:
        """Whether following the files has come to a halt: then the watchdog is not fed."""
        return monotonic() > self._busy_until

    def owe(self) -> None:
        """Words are still to be read, or to be taken out of our files."""
        self._owe_words()
        self._dirty.set()

    def _owe_words(self) -> None:
        if not self._words_due:
            self._words_due, self._words_at = True, max(self._words_at, monotonic())

    async def _follow(self) -> None:
        while not self.library.damaged:
            try:
                await self._do_next()
            except StateError as bad:  # our own disk must not end it
                self._note_trouble(bad)
                await asyncio.sleep(RETRY_SECONDS)

    async def _do_next(self) -> None:
        """Look at what was hinted first, then at what a scan queued, then read words."""
        library, now = self.library, monotonic()
        self._dirty.clear()
        if now >= self._scan_at and not self._scanning:
            await self._begin_scan()
            self._scanning = True
        if self._commit is not None and self._commit.done():
            self._commit.result()  # raises a defect
            self._commit = None
        words = self._may_read_words and now >= self._words_at
        if words and now >= self._words_at + HINTS_FIRST:
            await self._read_words()
        elif now >= self._hints_at and await self._take_hints():
            self._hints_at = monotonic() + min(monotonic() - now, REST_MAX)
        elif library.busy or (library.trouble and now >= self._retry_at):
            await self._turn(library.step)
        elif self._scanning and not library.scanning:
            self._scanning = False
            await self._end_scan()
        elif words:
            await self._read_words()
        else:
            await self._pause()

    async def _pause(self) -> None:
        """Wait for a hint, or the next moment at which there is something to do."""
        times = [math.inf if self._scanning else self._scan_at, self.library.late]
        times += [self._hints_at] if self._hints_at > monotonic() else []
        times += [self._retry_at] if self.library.trouble else []
        times += [self._words_at] if self._may_read_words else []
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(times) - monotonic())):
                await self._dirty.wait()

    @property
    def _may_read_words(self) -> bool:
        return self._words_due and self._commit is None and self.scanned.is_set()

    async def scan(self) -> None:
        """One reconciling scan, to its end."""
        await self._begin_scan()
        while self.library.busy or self.library.scanning:
            await self._turn(self.library.step)
        await self._end_scan()

    async def _begin_scan(self) -> None:
        """Watch first, list second."""
        began, self._scan_at = monotonic(), 0.0  # where our own disk fails: again, and soon
        stores = await self._step(self.library.find_stores)
        self.watch.open()
        self.watch.take()  # what it hinted so far, the scan sees
        await self._step(self.watch.arm, *watched(stores))
        await self._step(self.library.scan, self.watch.add)
        self.bus.watching(self.watch.settle())
        self._scan_at = began + self.settings.watch.rescan_seconds

    async def _end_scan(self) -> None:
        self.last_scan_at = self.now()
        self._owe_words()  # a file that was away may be back, as it was
        self.bus.log(Event.WATCH_RESCAN, {"count": len(self.known)})
        if not self.scanned.is_set():
            self.scanned.set()
            for number, session_id in enumerate(list(self.known)):
                self.consider(session_id)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _take_hints(self) -> bool:
        """Look at what was hinted; whether there was anything."""
        paths, rescan = self.watch.take()
        if rescan:
            self.rescan()
        if not paths and self.library.late > monotonic():
            return False
        await self._turn(self.library.hinted, paths)
        return True

    async def _turn(self, work: Callable[..., list[Update]], *args: Any) -> None:
        """Read and store a part of what is queued, and tell of it."""
        before = self.library.trouble
        self._learn(await self._step(work, *args))
        if bad := self.library.trouble:
            self._retry_at = monotonic() + RETRY_SECONDS
            if not before:
                self.bus.log(Event.WATCH_DEGRADED, {"reason": str(bad)})

    async def _read_words(self) -> None:
        """Read words for the search index, for a bounded time; then let appends gather."""
        began, pause = monotonic(), RETRY_SECONDS
        try:
            more, self._words_due = await self._step(self.library.read_words)
            pause = 0.0 if more else min(GATHER * (monotonic() - began), GATHER_MAX)
            if self.library.texts.ripe:
                self._commit = asyncio.create_task(self._commit_words(began))
            else:
                self._words_trouble = ""
        except StateError as bad:
            self._note_trouble(bad)
        self._words_at = monotonic() + pause

    async def _commit_words(self, began: float) -> None:
        """Have what was read be found, while the reader's thread does other work."""
        pause = RETRY_SECONDS
        try:
            await asyncio.to_thread(self.library.index.commit)
            self._words_due = self._words_due or self.library.texts.due
            self._words_trouble, pause = "", min(GATHER * (monotonic() - began), GATHER_MAX)
        except StateError as bad:
            self._note_trouble(bad)
        self._words_at = monotonic() + pause
        self._dirty.set()

    def _note_trouble(self, bad: StateError) -> None:
        if not self._words_trouble:
            self.bus.log(Event.WATCH_DEGRADED, {"reason": str(bad)})
        self._words_trouble, self._words_due = str(bad), True

    async def _step(self, work: Callable[..., _T], *args: Any) -> _T:
        """One bounded step of the reader; the watchdog is not fed while it hangs."""
        self._busy_until = monotonic() + STALL_SECONDS
        try:
            return await self.reader(work, *args)
        finally:
            self._busy_until = math.inf

    # -- decisions -----------------------------------------------------------------------

    def _learn(self, updates: list[Update]) -> None:
        """Take in what the library found, tell whoever listens, and decide again."""
        now = self.now()
        if updates:
            self._owe_words()
        for update in updates:
            info, key = update.info, update.session_id
            known = self.known.get(key)
            if info is None:
                self._forget(key)
            elif known is None:
                seen = min(info.mtime_ms / 1000, now)
                self.known[key] = SessionRuntime(
                    info, update.meta, seen, seen, self.indexer.retries.get(key, NO_FAILURE)
                )
                if self.scanned.is_set():  # what was there before us waits until it grows
                    self.on_growth(key)
            else:
                self._grow(known, update, now)
            if update.row is not None or info is None:
                self.on_row(key, update.row)
            if self.scanned.is_set():
                self.bus.session(update, was_known=known is not None)
            self.consider(key)

    def _forget(self, session_id: str) -> None:
        """A session's file is gone; should it come back, what failed has not been forgotten."""
        self.jobs.withdraw(session_id)
        known = self.known.pop(session_id, None)
        if known is None:
            return
        if session_id not in self.running:
            known.answer(NotFoundError("the session's file is gone"))

    def _grow(self, known: SessionRuntime, update: Update, now: float) -> None:
        below = known.info.new_users < self.settings.min_new_user_messages
        known.meta = update.meta
        if update.info is not None:
            known.info = update.info
        if update.change is not None and update.change.verdict is not Verdict.SAME:
            known.changed_at = now
            if below:
                known.open_since = now
            self.on_growth(update.session_id)

    def consider(self, session_id: str) -> None:
        """Decide on one session, and see to it that the decision is kept."""
        known = self.known.get(session_id)
        if known is None or session_id in self.running or self.indexing_off:
            return
        if not self.scanned.is_set():  # what the store says may be out of date
            return
        now = self.now()
        when, why = decide(known, self.settings, now)
        if when <= now:
            self._offer(known, why)
            return
        self.jobs.withdraw(session_id)
        if when < math.inf:
            self._wait(known, when)
        else:
            known.answer(SessionEmptyError(f"there is no answer in it yet ({why})"))

    def _offer(self, known: SessionRuntime, why: str) -> None:
        """Queue a session, unless it came by itself and no model could take it."""
        session_id, forced = known.info.session_id, known.forced is not None
        exclusions, info = self.library.files.exclusions, known.info
        if exclusions.forbid(info.path, info.cwd, session_id):
            return
        if forced or self._takers(known):
            self.bus.log(Event.INDEX_QUEUED, {"session": session_id, "reason": why})
            self.jobs.offer(Job(session_id, why, known.info.modified_ms, forced))
            self._pump()

    def _takers(self, known: SessionRuntime) -> list[Model]:
        """The models that may take a session by itself: an old one stays on this machine."""
        age = self._started - known.info.modified_ms / 1000
        old = age > self.settings.index.backfill_days * DAY
        return [one for one in self.models.available() if not (old and one.remote)]

    def _wait(self, known: SessionRuntime, until: float) -> None:
        """Look again later; whoever forced a run is not kept waiting for ever."""
        if known.forced and known.info.turn_state is Turn.OPEN:
            if self.now() >= known.forced.until:
                known.answer(DeadlineError("the session is still in the middle of a turn"))
                self.consider(known.info.session_id)
                return
            until = min(until, known.forced.until)
        if self._reminders.remind(known.info.session_id, until):
            self._wake.set()

    async def keep_time(self) -> None:
        """Decide again on every session whose moment has come."""
        while True:
            now = self.now()
            for session_id in self._reminders.due(now):
                self.consider(session_id)
            self._wake.clear()
            # Never long: the clock may be set, and a laptop may sleep.
            next_at = self._reminders.next_at
            pause = LONGEST_PAUSE if next_at is None else min(next_at - now, LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.001)):
                    await self._wake.wait()

    # -- jobs ----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start what has its turn and finds room."""
        room = self.settings.index.concurrency
        while len(self.running) < room and (job := self.jobs.take()) is not None:
            known = self.known.get(job.session_id)
            if known is not None:
                self.running[job.session_id] = asyncio.create_task(self._job(job, known))

    async def _job(self, job: Job, known: SessionRuntime) -> None:
        session_id = job.session_id
        try:
            if self.known.get(session_id) is not known:  # it went before this began
                known.answer(NotFoundError("the session's file is gone"))
            else:
                began = self.now()
                usable = self.models.available() if job.forced else self._takers(known)
                updates = await self.indexer.run(known, job, self.settings, usable)
                if updates:  # what came meanwhile waits anew, not since before this run
                    known.open_since = began
                self._learn(updates)
        finally:
            self.running.pop(session_id, None)
        self.consider(session_id)
        self._pump()

    async def end_run(self, session_id: str) -> None:
        """End a run under way. A write that has begun may still come to its end."""
        if task := self.running.get(session_id):
            task.cancel()
            await asyncio.wait([task])
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
        if session_id in self.running or known.forced:
            raise AlreadyRunningError("Session indexing already in progress")
        waiter: asyncio.Future[Done | IndexerdError] = asyncio.get_running_loop().create_future()
        known.forced = Forced(self.now() + FORCE_PATIENCE, waiter)
        self.consider(session_id)
        return waiter

    def refuse_if_off(self) -> None:
        """Raise what keeps every session from being indexed: ConfigError, ModelUnavailableError."""
        if self.indexing_off:
            raise ConfigError(self.loaded.problems)
        if not self.models.available():
            raise ModelUnavailableError(f"Missing configured model(s): {self.missing_models}")

    def due(self) -> list[str]:
        """Return the sessions that have enough new messages."""
        least = self.settings.min_new_user_messages
        infos = ((session_id, known.info) for session_id, known in self.known.items())
        return [one for one, info in infos if info.answered and info.new_users >= least]

    async def rewritten(self, session_id: str, directory: str) -> None:
        """A sidecar was written by us."""
        self._learn(await self.read(self.library.written, session_id, directory))

    async def reconsider(self) -> None:
        """What is not to be read is another now: drop that, and look for what may be read.

        Raises StateError where it could not be dropped yet; that is tried again.
        """
        await self.read(self.library.reconsider)
        self._learn(await self.read(self.library.step, 0))
        self.rescan()  # roots and exclusions may be others
        if self.library.trouble is not None:
            raise self.library.trouble

    async def reload(self, loaded: Loaded, models: Models) -> None:
        """Take new settings; what waited for a model or a price waits no longer."""
        self.loaded, self.models = loaded, models
        with suppress(StateError):
            await self.reconsider()  # before anything is sent
        for number, (session_id, known) in enumerate(list(self.known.items())):
            await self.indexer.lift(known)
            self.consider(session_id)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

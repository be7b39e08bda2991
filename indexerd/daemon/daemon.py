"""The life of the daemon: lock, parts, socket, signals, ready, watchdog, end.

The order matters. The lock comes first, so that no file of a running daemon is touched; the socket
answers before systemd gets READY; the event loop pings the watchdog, but only while the reader
thread makes progress.

A damaged cache, or a removed state directory, ends a daemon with RESTART: the next daemon in the
same process makes a new cache.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.health import Status
from indexerd.daemon.library import Library
from indexerd.daemon.methods import Api
from indexerd.daemon.once import Report, run_once
from indexerd.daemon.open_session import open_session
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.process import Footprint, claim_directory, make_private, raise_file_limit
from indexerd.daemon.purge import Purge
from indexerd.daemon.sdnotify import Notifier
from indexerd.daemon.sidecars import Sidecars
from indexerd.daemon.unix_server import UnixServer
from indexerd.daemon.web_supervisor import WebSupervisor
from indexerd.digests.auto import AutoDigests
from indexerd.disk import hold
from indexerd.errors import DamagedError, IndexerdError, WriteError
from indexerd.indexing.indexer import Indexer
from indexerd.logs import Event
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.registry import Models
from indexerd.models.telemetry import Telemetry
from indexerd.paths import Places
from indexerd.privacy.exclusions import at_home
from indexerd.references.injection_cache import InjectionCache
from indexerd.references.services import Services
from indexerd.search.index import TextIndex
from indexerd.settings import Loaded, Settings, read_config, remember
from indexerd.sources.session_reader import SessionReaderPool
from indexerd.sources.stores import stores
from indexerd.sources.watch import Watch
from indexerd.store.store import StateStore

RESTART = -1  # result of `serve`: start again in this process, once
TICK_SECONDS = 4.0  # between two checks of the socket file and the reader
SWITCH_SECONDS = 0.0005  # after which a busy reader thread yields to the event loop
_FORMER = ("ledger.sqlite", "catalog.sqlite")  # caches of earlier versions


@dataclass(frozen=True, slots=True)
class Start:
    """The arguments of a daemon."""

    places: Places
    loaded: Loaded
    env: Mapping[str, str]
    home: Path
    set_logging: Callable[[Settings], None]
    view: Sequence[str] = ()  # the web view's command; its address is appended


class Daemon:
    """All parts of one daemon process."""

    def __init__(self, start: Start, *, watching: bool = True) -> None:
        places, self._start = start.places, start
        self._loaded = start.loaded
        make_private(places.state_dir)
        remember(start.loaded, places.state_dir)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = hold(places.lock)
        self.bus = bus = EventBus()
        self._drop_former(places.state_dir)
        self._store = StateStore(places.store, lambda why: self._damaged(places.store, why))
        self._texts = TextIndex(places.search, self._store, self._damaged)
        record = Telemetry(places.telemetry).append
        self.budget = Budget(places.budget, self._settings, time.time, bus.log, record)
        self.budget.load()
        self._forgotten = Forgotten(places.state_dir)
        self._writer = MetaWriter(self._forgotten.agents)
        self.library = library = self._library()
        found = library.find_stores()
        metas = dict.fromkeys(one.meta for one in found if Path(one.sessions).exists())
        self._claims = [claim_directory(Path(meta)) for meta in metas]
        self.pipeline = self._pipeline(watching=watching)
        self.answers = Answers(self._texts, home=library.home, behind=lambda: library.texts.unread)
        self.pipeline.on_row = self.answers.index.changed
        self.web = WebSupervisor(start.view, start.env, lambda: self._settings().web.listen, bus)
        self.status = Status(self.pipeline, self.budget, self.web)
        self.api = self._api()
        self.auto_digests = AutoDigests(
            lambda session_id: self.api.digests.make(session_id, manual=False),
            self.pipeline.known,
            settings=self._settings,
            off=lambda: self.pipeline.indexing_off,
            events=bus,
        )
        self.pipeline.on_growth = self.auto_digests.grown

    def _library(self) -> Library:
        start, bus = self._start, self.bus
        library = Library(
            self._store,
            self._texts,
            stores=lambda: stores(self._settings(), start.env, start.home),
            exclude=lambda: at_home(self._settings().privacy.exclude, start.home),
            report=lambda session, why: bus.log(
                Event.META_INVALID, {"session": session, "reason": why}
            ),
            defect=lambda path, bug: bus.defect(Event.SESSION_QUARANTINED, "", bug, path=path),
            patterns=lambda: self._settings().redact.extra_patterns,
        )
        library.files.exclusions.forgotten = self._forgotten.agents
        return library

    def _pipeline(self, *, watching: bool) -> Pipeline:
        indexer = Indexer(
            self.library,
            read=lambda work, *args: self.pipeline.read(work, *args),  # noqa: PLW0108 - made later
            budget=self.budget,
            writer=self._writer,
            events=self.bus,
        )
        return Pipeline(
            library=self.library,
            indexer=indexer,
            watch=Watch(self._settings().watch.mode if watching else "poll", self._hint),
            bus=self.bus,
            loaded=self._loaded,
            models=Models(self._settings(), self._start.env),
        )

    def _api(self) -> Api:
        pipeline, answers, writer = self.pipeline, self.answers, self._writer
        injected = InjectionCache(self._store, pipeline.read)
        pool = SessionReaderPool(partial(open_session, self.library), pipeline.read)
        sidecars = Sidecars(pipeline, answers, pool, writer, self.budget.record)
        services = Services(
            rows=answers,
            pool=pool,
            settings=self._settings,
            models=self._models,
            summarizers=self._summarizers,
            budget=self.budget,
            events=self.bus,
            excluded=lambda: at_home(self._settings().digest.exclude, self._start.home),
            writer=writer,
            injected=injected,
            on_history=sidecars.opened,
        )
        purge = Purge(pipeline, answers, sidecars, writer, self._forgotten, injected.forget)
        return Api(answers, services, pipeline, sidecars, purge, self.status.report)

    def _models(self) -> list[Model]:
        """Models for a question; with a broken configuration only local ones."""
        usable = self.pipeline.models.available()
        return [one for one in usable if not (one.remote and self.pipeline.indexing_off)]

    def _summarizers(self) -> list[Model]:
        """Models for digests and compaction."""
        key = self._settings().digest.model
        if not key:
            return self._models()
        model = self.pipeline.models.get(key)
        return [] if self.pipeline.indexing_off and model.remote else [model]

    def _settings(self) -> Settings:
        return self._loaded.settings

    def _hint(self) -> None:
        """Wake the loop; called in any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.pipeline.dirty.set)

    def _damaged(self, path: Path, why: str) -> None:
        self.bus.log(Event.CACHE_DAMAGED, {"path": str(path), "reason": why})
        self._hint()

    def _drop_former(self, directory: Path) -> None:
        for name in _FORMER:
            found = [one for one in directory.glob(f"{name}*") if one.is_file()]
            for one in found:
                with suppress(OSError):
                    one.unlink()
            if found:
                self.bus.log(Event.CACHE_REPLACED, {"path": str(directory / name)})

    def _sweep(self) -> None:
        for store in self.library.stores():
            try:
                self._writer.sweep(Path(store.meta))
            except WriteError as bad:  # a full or read-only disk: reading continues
                self.bus.log(Event.WATCH_DEGRADED, {"path": store.meta, "reason": str(bad)})

    async def once(self) -> Report:
        """One pass, without socket and watcher."""
        try:
            self._sweep()
            return await run_once(self.pipeline, self.auto_digests)
        finally:
            await self._end()

    async def serve(self) -> int:
        """Run until a signal; return the exit code, or RESTART."""
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        raise_file_limit()
        bus, path, notifier = self.bus, self._start.places.socket, Notifier(self._start.env)
        stopping = self._handle_signals()
        server = UnixServer(
            path,
            self.api.handle,
            lambda why: bus.log(Event.SOCKET_REJECTED, {"reason": why}),
            lambda method, error: bus.defect(Event.SOCKET_REJECTED, method, error),
        )
        try:
            self._sweep()
            bus.log(Event.DAEMON_STARTED, {"pid": os.getpid()})
            self._log_problems(self._loaded)
            if not self.pipeline.models.available():
                reason = f"Missing configured model(s): {self.pipeline.missing_models}"
                bus.log(Event.CONFIG_INVALID, {"reason": reason})
            await server.start()
            notifier.ready()
            bus.log(Event.DAEMON_READY, {"path": str(path)})
            return await self._run(self._tend(server, notifier), stopping, notifier)
        finally:
            await server.close()
            await self._end()
            bus.log(Event.DAEMON_STOPPED, {})

    async def _run(
        self, tend: Coroutine[Any, Any, None], stopping: asyncio.Event, notifier: Notifier
    ) -> int:
        """Run all parts until one of them ends; return 1 if it should not have."""
        pipeline, digests = self.pipeline, self.auto_digests
        parts = (pipeline.follow(), pipeline.index_texts(), digests.run(), self.web.run(), tend)
        tasks = [asyncio.ensure_future(one) for one in (*parts, stopping.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code = 0 if stopping.is_set() else 1
        if code and (self.library.damaged or not self._lock.is_valid()):
            code = RESTART
        else:
            notifier.stopping()
            self.bus.log(Event.DAEMON_STOPPING, {})
        for task in tasks:
            task.cancel()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            damage = code == RESTART and isinstance(end, DamagedError)
            if isinstance(end, Exception) and not damage:
                self.bus.defect(Event.DAEMON_STOPPING, "", end)
                code = 1
        return code

    async def _end(self) -> None:
        await self.pipeline.stop()
        await self.pipeline.reader(self.library.close)
        for release in self._claims:
            release()
        self._lock.release()

    async def _tend(self, server: UnixServer, notifier: Notifier) -> None:
        """Check reader, memory, state and socket file every few seconds.

        Returns when the state directory was removed.
        """
        pause = min(TICK_SECONDS, (notifier.watchdog_seconds or TICK_SECONDS * 4) / 4)
        pipeline, footprint, blocked, state = self.pipeline, Footprint(), "", ""
        while self._lock.is_valid():
            if not pipeline.reader.stalled():
                notifier.watchdog()
            if pipeline.scanned.is_set():
                footprint.tend()
            before, state = state, self.status.state()
            if before not in ("", state):
                self.bus.publish("status.changed", None, {"state": state, "previous": before})
            count = len(pipeline.known)
            notifier.status(f"{count} session{'s' * (count != 1)}, {len(pipeline.jobs)} queued")
            was_blocked, blocked = blocked, ""
            try:
                await server.check()
            except IndexerdError as bad:  # something else is in the socket's place
                blocked = str(bad)
                if blocked != was_blocked:
                    server.reject(blocked)
            await asyncio.sleep(pause)
        self.bus.log(Event.WATCH_DEGRADED, {"reason": "the state directory was removed"})

    def _handle_signals(self) -> asyncio.Event:
        """Reload at SIGHUP; return an event that SIGTERM and SIGINT set."""
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def stop() -> None:
            if stopping.is_set():  # the second signal
                os._exit(130)
            stopping.set()

        loop.add_signal_handler(signal.SIGTERM, stop)
        loop.add_signal_handler(signal.SIGINT, stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self.reload()))
        return stopping

    async def reload(self) -> None:
        """Read the configuration again; a broken one changes nothing."""
        loaded = await asyncio.to_thread(read_config, self._start.places, self._start.env)
        if loaded.problems:
            self._log_problems(loaded)
            return
        self._loaded = loaded
        remember(loaded, self._start.places.state_dir)
        self.budget.reset_denials()
        self._start.set_logging(loaded.settings)
        await self.pipeline.reload(loaded, Models(loaded.settings, self._start.env))
        self.web.reloaded.set()
        self.bus.log(Event.DAEMON_CONFIG_RELOADED, {})

    def _log_problems(self, loaded: Loaded) -> None:
        for bad in loaded.problems:
            reason = f"{bad['file']}: {bad['key']}: {bad['message']}"
            self.bus.log(Event.CONFIG_INVALID, {"reason": reason})

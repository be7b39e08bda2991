"""The daemon's life cycle: lock, parts, socket, signals, readiness, watchdog, shutdown.

The order matters. The lock comes first, so that no file of a running daemon is touched; the socket
answers before systemd gets READY; the watchdog is pinged only while the reader thread works.

If a cache is damaged, the state directory was removed, or a part failed, the daemon ends with
DamagedError. The process then replaces itself with a new one, which rebuilds damaged caches.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.amounts import count
from indexerd.archive.copies import Archive
from indexerd.daemon.answers import Answers, Row
from indexerd.daemon.archive import Keeper
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.fleet import FleetPart
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.health import Status
from indexerd.daemon.library import Library
from indexerd.daemon.methods import Api
from indexerd.daemon.once import Report, Show, run_once
from indexerd.daemon.open_session import open_session
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.process import Footprint, Notifier, claim, make_private, raise_file_limit
from indexerd.daemon.purge import Purge
from indexerd.daemon.sidecars import Sidecars
from indexerd.daemon.unix_server import UnixServer
from indexerd.daemon.web_supervisor import WebSupervisor
from indexerd.digests.digest import AutoDigests
from indexerd.disk import hold, holds
from indexerd.errors import DamagedError, IndexerdError, WriteError
from indexerd.logs import LOG
from indexerd.meta.writer import MetaWriter
from indexerd.models.attempts import append_row
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.registry import Models
from indexerd.paths import Places
from indexerd.references.inject import InjectionCache
from indexerd.references.services import Services
from indexerd.search.meaning import Meaning
from indexerd.settings import Loaded, Settings, read_config, remember
from indexerd.sources.session_reader import SessionReaderPool
from indexerd.sources.watch import Watch

TICK_SECONDS = 4.0  # between two checks of the socket file and the reader
SWITCH_SECONDS = 0.0005  # after which a busy reader thread yields to the event loop


class Daemon:
    """All parts of one daemon process."""

    def __init__(
        self,
        places: Places,
        loaded: Loaded,
        env: Mapping[str, str],
        home: Path,
        *,
        view: Sequence[str] = (),
        watching: bool = True,
    ) -> None:
        """`view` is the command that starts the web view; the address is appended."""
        self._places, self._loaded, self._env, self._home = places, loaded, env, home
        self._watching = watching
        self._set_logging()
        make_private(places.state_dir)
        remember(loaded, places.state_dir)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = hold(places.lock)
        self.bus = bus = EventBus()
        record = partial(append_row, places.telemetry)
        self.budget = Budget(places.budget, self._settings, time.time, bus.log, record)
        self.budget.load()
        self._forgotten = Forgotten(places.state_dir)
        self._archive = Archive(places.archive)
        self._writer = MetaWriter(self._forgotten.agents)
        self.library = library = Library(places, self._settings, env, home, bus)
        library.files.exclusions.forgotten = self._forgotten.agents
        existing = filter(lambda root: os.path.exists(root.sessions), library.find_roots())  # noqa: PTH110 - never raises
        self._claims = claim(root.meta for root in existing)
        self.pipeline = Pipeline(
            library=library,
            budget=self.budget,
            writer=self._writer,
            watch=Watch(self._settings().watch.mode if watching else "poll", self._hint),
            bus=bus,
            loaded=loaded,
            models=Models(loaded.settings, env),
        )
        self.meaning = meaning = Meaning(library.index, places.vectors)
        self.answers = Answers(
            library.index, home=library.home, behind=lambda: library.texts.unread, meaning=meaning
        )
        self.pipeline.on_rows = self._on_rows
        self.web = WebSupervisor(view, lambda: self._settings().web.listen, bus)
        self.api = self._api()
        self.auto_digests = AutoDigests(
            self.api.digests, self.pipeline.known, lambda: self.pipeline.indexing_off
        )
        self.pipeline.on_growth = self.auto_digests.grown

    def _on_rows(self, rows: dict[str, Row | None]) -> None:
        self.answers.renamed(rows)
        self.meaning.change(gone=None in rows.values())

    def _api(self) -> Api:
        pipeline, answers, writer = self.pipeline, self.answers, self._writer
        injected = InjectionCache(self.library.store, pipeline.read)
        pool = SessionReaderPool(partial(open_session, self.library), pipeline.read)
        sidecars = Sidecars(pipeline, answers, pool, writer, self.budget.record)
        services = Services(
            rows=answers,
            pool=pool,
            settings=self._settings,
            models=self._models,
            summarizers=lambda: self._models(self._settings().digest.model),
            budget=self.budget,
            events=self.bus,
            writer=writer,
            injected=injected,
            on_history=sidecars.opened,
        )
        forgotten, archive = self._forgotten, self._archive
        purge = Purge(pipeline, answers, writer, forgotten, archive, injected.forget)
        self.keeper = Keeper(pipeline, archive)
        self.fleet = FleetPart(pipeline, purge, self._places.state_dir / "fleet.json")
        others = self.fleet.problems, self.keeper.problems, self.web.problems
        self.status = Status(pipeline, self.budget, archive, self.meaning, others)
        return Api(
            answers,
            services,
            pipeline=pipeline,
            sidecars=sidecars,
            purge=purge,
            fleet=self.fleet,
            status=self.status.answer,
        )

    def _models(self, key: str = "") -> list[Model]:
        """Return this model or all; with a broken configuration, only local ones."""
        models, off = self.pipeline.models, self.pipeline.indexing_off
        usable = [models.get(key)] if key else models.available()
        return [model for model in usable if not (model.remote and off)]

    def _settings(self) -> Settings:
        return self._loaded.settings

    def _set_logging(self) -> None:
        log, places = self._settings().log, self._places
        level = log.level if self._watching or log.level != "info" else "warning"
        LOG.configure(level, log.format, log_file=places.log, stderr=sys.stderr)

    def _hint(self) -> None:
        """Wake the loop; called in any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.pipeline.dirty.set)

    def _sweep(self) -> None:
        for root in self.library.files.roots:
            try:
                self._writer.sweep(Path(root.meta))
            except WriteError as bad:  # a full or read-only disk: reading continues
                self.bus.log("watch.degraded", {"path": root.meta, "reason": str(bad)})

    async def once(self, show: Show) -> Report:
        """Try each due session once; `show` is told how far it got."""
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._sweep()
            report = await run_once(self.pipeline, self.auto_digests, show)
            if self._settings().archive.enabled:
                show("Copying to the archive", 0, 0)
                await self.keeper.once()
            return report
        finally:
            await self._end()

    async def serve(self) -> None:
        """Run until a signal, or until DamagedError (see above)."""
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        raise_file_limit()
        bus, path, notifier = self.bus, self._places.socket, Notifier(self._env)
        stopping = self._handle_signals()
        server = UnixServer(
            path,
            self.api.handle,
            lambda why: bus.log("socket.rejected", {"reason": why}),
            lambda method, error: bus.defect("socket.rejected", method, error),
        )
        try:
            self._sweep()
            bus.log("daemon.started", {"pid": os.getpid()})
            self._log_problems(self._loaded)
            if not self.pipeline.models.available():
                reason = f"Missing configured model(s): {self.pipeline.missing_models}"
                bus.log("config.invalid", {"reason": reason})
            await server.start()
            notifier.send("READY=1")
            bus.log("daemon.ready", {"path": str(path)})
            await self._run(self._tend(server, notifier), stopping, notifier)
        finally:
            await server.close()
            await self._end()
            bus.log("daemon.stopped", {})
        if not stopping.is_set():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)  # from now on it ends the process
            await asyncio.sleep(0.1)  # until the loop knows of one that came before
        if not stopping.is_set():
            raise DamagedError("the daemon had to stop", hint="see `indexerd logs`")

    async def _run(
        self, tend: Coroutine[Any, Any, None], stopping: asyncio.Event, notifier: Notifier
    ) -> None:
        """Run all parts until one of them ends."""
        pipeline, digests = self.pipeline, self.auto_digests
        parts = [pipeline.follow(), pipeline.index_texts(), digests.run(), self.web.run()]
        parts += [pipeline.follow_projects(), self.fleet.run(), self.keeper.run(), tend]
        parts += [self.meaning.follow(self._is_reading)]
        tasks = [asyncio.ensure_future(part) for part in (*parts, stopping.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            notifier.send("STOPPING=1")
            self.bus.log("daemon.stopping", {})
        for task in tasks:
            task.cancel()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            if end and not isinstance(end, bool | DamagedError | asyncio.CancelledError):
                self.bus.defect("daemon.stopping", "", end)

    def _is_reading(self) -> bool:
        """Whether there are texts that are not in the index yet."""
        return not self.pipeline.scanned.is_set() or self.library.texts.unread > 0

    async def _end(self) -> None:
        self.meaning.stop()
        await self.pipeline.stop()
        await self.pipeline.read(self.library.close)
        self._claims.close()
        os.close(self._lock)

    async def _tend(self, server: UnixServer, notifier: Notifier) -> None:
        """Check reader, memory, state and socket file every few seconds.

        Returns when the state directory was removed, or a cache is damaged.
        """
        pause = min(TICK_SECONDS, (notifier.watchdog_seconds or TICK_SECONDS * 4) / 4)
        pipeline, footprint, state = self.pipeline, Footprint(), ""
        places, library = self._places, self.library
        while holds(places.lock, self._lock) and not library.damaged:
            if not pipeline.stalled:
                notifier.send("WATCHDOG=1")
            if pipeline.scanned.is_set():
                footprint.tend()
            before, state = state, self.status.state()
            if before not in ("", state):
                self.bus.publish("status.changed", None, {"state": state, "previous": before})
            sessions = count(len(pipeline.known), "session")
            notifier.send(f"STATUS={sessions}, {len(pipeline.jobs)} queued")
            with suppress(IndexerdError):  # something else is in the socket's place
                await server.check()
            await asyncio.sleep(pause)
        why = "a cache is damaged" if library.damaged else "the state directory was removed"
        self.bus.log("watch.degraded", {"reason": why})

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
        """Read the configuration again; an invalid one changes nothing."""
        loaded = await asyncio.to_thread(read_config, self._places, self._env)
        self.pipeline.refused = loaded.problems
        if loaded.problems:
            self._log_problems(loaded)
            return
        old, self._loaded = self._settings(), loaded
        remember(loaded, self._places.state_dir)
        self.budget.reset_denials()
        self._set_logging()
        await self.pipeline.reload(loaded, Models(loaded.settings, self._env))
        self.web.reloaded.set()
        self.fleet.reload(old)
        self.keeper.reload()
        self.bus.log("daemon.config_reloaded", {})

    def _log_problems(self, loaded: Loaded) -> None:
        for bad in loaded.problems:
            reason = f"{bad['file']}: {bad['key']}: {bad['message']}"
            self.bus.log("config.invalid", {"reason": reason})

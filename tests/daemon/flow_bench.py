"""The flow of one daemon in this process: real files, reader, caches and models; hints by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library
from indexerd.daemon.pipeline import Pipeline, Reader
from indexerd.indexing.indexer import Indexer
from indexerd.logs import get_logger
from indexerd.meta.writer import MetaWriter
from indexerd.models.budget import Budget
from indexerd.models.registry import Models
from indexerd.models.telemetry import Telemetry
from indexerd.settings import Index, Loaded, Settings
from indexerd.settings import Watch as Watching
from indexerd.sources.stores import Store
from indexerd.sources.watch import Health, Hints, Watch
from tests.e2e.world import PATIENCE, Session
from tests.store.rows import caches


class HandWatch:
    """A watcher that is told by a test what it hints at."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def arm(self, *_: Any) -> None:
        """Nothing is watched."""

    def take(self) -> Hints:
        """Give the paths that were named since the last time."""
        paths, self.paths = frozenset(self.paths), set()
        return Hints(paths, rescan=False)

    def health(self) -> Health:
        """All is well."""
        return Watch("poll", lambda: None, time.time).health()


class Flow:
    """One pi store and a pipeline over it. `offset` is how far the clock was set, in seconds."""

    def __init__(
        self,
        root: Path,
        *,
        quiet: float = 0.05,
        rescan: float = 3600.0,
        settings: Settings | None = None,
        log: Any = None,
    ) -> None:
        """`settings` take the place of `quiet` and `rescan`; `log` hears what is logged."""
        self.folder = root / "agent/sessions/--w--"
        self.metas = root / "agent/sessions-meta"
        self.folder.mkdir(parents=True)
        self.offset = 0.0
        self.watch = HandWatch()
        self.reader = Reader()
        self.bus = EventBus(log or get_logger(), self.clock)
        self.settings = settings or Settings(
            model_keys=["local/extractive"],
            index=Index(quiet_seconds=quiet),
            watch=Watching(rescan_seconds=rescan),
        )
        self.library = Library(
            *caches(root),
            stores=lambda: [Store("pi", str(root / "agent/sessions"), str(self.metas))],
            exclude=list,
            report=lambda *_: None,
            defect=_no_defect,
        )
        self.budget = Budget(root / "budget.jsonl", lambda: self.settings, self.clock, self.bus.log)
        self.indexer = Indexer(
            self.library,
            read=self.reader,
            budget=self.budget,
            telemetry=Telemetry(root / "telemetry.jsonl"),
            writer=MetaWriter(),
            events=self.bus,
            clock=self.clock,
        )
        self.pipeline = Pipeline(
            library=self.library,
            indexer=self.indexer,
            watch=cast("Watch", self.watch),
            bus=self.bus,
            read=self.reader,
            loaded=Loaded(self.settings),
            models=Models(self.settings, {}),
            clock=self.clock,
        )

    def clock(self) -> float:
        """Seconds since the epoch, as somebody may have set them."""
        return time.time() + self.offset

    def session(self, turns: int = 0) -> Session:
        """A session of the store."""
        session = Session(self.folder)
        session.talk(turns)
        return session

    def hint(self, session: Session) -> None:
        """The watcher saw this session's file change."""
        self.watch.paths.add(str(session.path))
        self.pipeline.hint()

    def running(self, work: Callable[[], Any]) -> None:
        """Do asynchronous work while the pipeline runs."""

        async def run() -> None:
            flow = asyncio.create_task(self.pipeline.run())
            doing = asyncio.ensure_future(work())
            try:
                await asyncio.wait([flow, doing], return_when=asyncio.FIRST_COMPLETED)
                assert doing.done(), flow.exception()
                await doing
            finally:
                doing.cancel()
                flow.cancel()
                with suppress(asyncio.CancelledError):
                    await flow

        self.alone(run)

    def alone(self, work: Callable[[], Any]) -> None:
        """Do asynchronous work without a pipeline that runs, and let go of everything."""
        try:
            asyncio.run(work())
        finally:
            self.reader.close()
            self.library.close()


async def until(found: Callable[[], Any], what: str) -> None:
    """Let the loop go on until something is so."""
    end = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < end, f"{what} did not happen within {PATIENCE} s"
        await asyncio.sleep(0.01)


def _no_defect(path: str, bug: Exception) -> None:
    raise AssertionError(path) from bug

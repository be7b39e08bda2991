"""A day of the flow in seconds: real files, caches and books, and an event loop whose time jumps.

Whenever nothing is under way but waiting, the loop's time goes to the next moment that is waited
for, and the daemon's clock goes with it. Work in threads, and calls that are real requests, are
waited for without letting any time pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexerd.logs import Event, get_logger
from indexerd.models.base import Model, Prompt, Reply
from indexerd.settings import Settings
from tests.daemon.flow_bench import Flow

START = 1_800_000_000.0  # 08:00 UTC
HOUR, DAY = 3600.0, 86_400.0
_REAL = 0.05  # seconds that a thread or a request is waited for at once


class _Selector(selectors.DefaultSelector):
    """Waits for what is really under way; where nothing is, time goes on instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.loop.busy or timeout is None:
            return super().select(_REAL if timeout is None else min(timeout, _REAL))
        found = super().select(0)
        if not found:
            self.loop.seconds += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only where everybody waits for it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.busy = 0  # works under way that take real time
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self.seconds

    def run_in_executor(  # type: ignore[override] # a clock of ours has no threads
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Work in a thread takes no time of the loop's."""
        self.busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _future: object) -> None:
        self.busy -= 1


class Watched:
    """A model whose calls are counted, with the moment of each; `real` ones are real requests."""

    def __init__(self, inner: Model, storm: Storm, *, real: bool) -> None:
        self.key, self.remote = inner.key, inner.remote
        self.inner = inner
        self.calls: list[float] = []  # when
        self.asked: list[str] = []  # what for
        self.under_way = self.most = 0
        self._storm = storm
        self._real = real

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Count, and pass on."""
        self.calls.append(self._storm.clock())
        self.asked.append(prompt.user)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self._storm.loop.busy += self._real
        try:
            return await self.inner.generate(prompt, timeout=timeout)
        finally:
            self._storm.loop.busy -= self._real
            self.under_way -= 1

    async def aclose(self) -> None:
        """Pass on."""
        await self.inner.aclose()


class CountedLog:
    """Counts lines by event, and passes them on to the real log."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()
        self.warnings = 0

    def log(self, level: int, event: str, **fields: Any) -> None:
        """One line."""
        if level >= 20:
            self.lines[str(event)] += 1
        self.warnings += level >= 30
        get_logger().log(level, event, **fields)


class Storm(Flow):
    """Sessions, a provider, and days."""

    def __init__(self, root: Path, settings: Settings, sessions: int) -> None:
        self.loop = VirtualLoop()
        self.log = CountedLog()
        super().__init__(root, settings=settings, log=self.log)
        self.root = root
        self.ids = [
            old_session(self.folder, number, START) for number in range(sessions)
        ]  # newest first

    def clock(self) -> float:
        """Seconds since the epoch."""
        return START + self.loop.seconds

    def use(self, model: Model, *, real: bool = False) -> Watched:
        """Have this model asked from now on."""
        watched = Watched(model, self, real=real)
        self.pipeline.models = _Only(watched)  # type: ignore[assignment] # one is all
        return watched

    def work(self, doing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the flow while something is done."""

        async def run() -> None:
            flow = asyncio.create_task(self.pipeline.run())
            try:
                await doing()
                assert not flow.done(), flow.exception()
            finally:
                flow.cancel()
                with suppress(asyncio.CancelledError):
                    await flow

        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(run())
        finally:
            self.reader.close()
            self.library.close()

    def described(self) -> set[str]:
        """The sessions that have their meta file."""
        found = self.metas.glob("*.meta.json") if self.metas.exists() else ()
        return {path.name.removesuffix(".meta.json") for path in found}

    def log_bytes(self) -> int:
        """Bytes of the log, old files included."""
        return sum(path.stat().st_size for path in self.root.glob("log.jsonl*"))


def old_session(folder: Path, number: int, before: float) -> str:
    """Write a session of five turns of long ago, the longer the higher its number; its id.

    `before` is in seconds since the epoch.
    """
    last, at = None, before - 600.0 - 60.0 * number
    made = str(uuid.UUID(int=(number + 1) << 64, version=4))
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    held: list[dict[str, Any]] = []
    held.append({"type": "session", "version": 3, "id": made, "timestamp": stamp, "cwd": "/w"})
    for turn in range(10):
        role = ("user", "assistant")[turn % 2]
        text = f"Please adjust widget {turn} of {made}." if role == "user" else "Done."
        said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
        said["timestamp"] = int(at * 1000) + turn
        said |= {"stopReason": "stop"} if role == "assistant" else {}
        entry = {"type": "message", "id": f"{turn:08x}", "parentId": last, "timestamp": stamp}
        held.append(entry | {"message": said})
        last = f"{turn:08x}"
    path = folder / f"{stamp.replace(':', '-').replace('.', '-')}_{made}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in held))
    os.utime(path, (at, at))
    return made


class _Only:
    """The one model that is configured."""

    missing: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, model: Model) -> None:
        self._model = model

    def available(self) -> list[Model]:
        """It."""
        return [self._model]

    async def aclose(self) -> None:
        """Close it."""
        await self._model.aclose()


def told(storm: Storm, event: Event) -> int:
    """How many lines of an event were logged."""
    return storm.log.lines[str(event)]

"""The web view of `[web] listen`: a separate process, started and stopped with the daemon.

It ends when its standard input closes, so a killed daemon leaves no child behind. It prints where
it listens; the last line it prints is the reason why it ended. Then it is started again, with
pauses that grow to five minutes.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from indexerd.daemon.event_bus import EventBus
from indexerd.logs import Event
from indexerd.privacy.sanitize import clean_line
from indexerd.times import iso

PAUSE_MAX = 300.0  # seconds between two attempts
END_SECONDS = 5.0  # that a child has to end by itself
REASON_MAX = 300  # characters
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")  # of the environment: not the child's
_CURE = "see `indexerd logs`; `indexerd web` can use another address; it is retried"


class WebSupervisor:
    """The web view's process, or none."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        listen: Callable[[], str],
        env: Mapping[str, str],
        bus: EventBus,
        clock: Callable[[], float],
    ) -> None:
        """`command` starts the view; the address is put behind it. `listen()` is "" for none."""
        self.problems: list[dict[str, Any]] = []  # why the view is not there, for `status`
        self._command = command
        self._listen = listen
        self._env = {key: value for key, value in env.items() if key not in _OURS}
        self._bus = bus
        self._clock = clock
        self._reloaded = asyncio.Event()

    def reload(self) -> None:
        self._reloaded.set()

    async def run(self) -> None:
        """Keep the view running until this is cancelled; then end it."""
        failures = 0
        while True:
            pause: float | None = None
            if address := self._listen():
                why = await self._serve(address)
                failures += 1
                pause = min(PAUSE_MAX, 2.0 ** min(failures, 10))
                if why:
                    since = iso(self._clock())
                    problem = {"code": "web_down", "cause": why, "since": since, "cure": _CURE}
                    self.problems = [problem]
                    self._bus.log(Event.WEB_ENDED, {"reason": why})
            else:
                self.problems = []
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reloaded.wait(), pause)
                failures = 0
            self._reloaded.clear()

    async def _serve(self, address: str) -> str:
        """Run a child until it ends, and say why; "" where another address is wanted."""
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command, address, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=self._env
            )
        except OSError as bad:
            return f"it cannot be started: {bad.strerror}"
        ended = asyncio.create_task(self._listen_to(child))
        moved = asyncio.create_task(self._moved(address))
        try:
            await asyncio.wait({ended, moved}, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else ""
        finally:
            ended.cancel()
            moved.cancel()
            await _end(child)

    async def _listen_to(self, child: Process) -> str:
        """Read where a child listens, and later its last words."""
        assert child.stdout is not None  # noqa: S101 - it was asked for
        reason = ""
        while line := await child.stdout.readline():
            text = clean_line(line.decode("utf-8", "replace"), REASON_MAX)
            if text.startswith("http"):
                self.problems = []
                self._bus.log(Event.WEB_STARTED, {"pid": child.pid, "url": text})
            elif text and not text.startswith("hint: "):
                reason = text.removeprefix("indexerd: ")
        return reason or f"it ended with exit code {await child.wait()}"

    async def _moved(self, address: str) -> None:
        while self._listen() == address:
            self._reloaded.clear()
            await self._reloaded.wait()


async def _end(child: Process) -> None:
    """End a child: by the end of its input, or else by force."""
    if child.stdin is not None:
        child.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), END_SECONDS)
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()

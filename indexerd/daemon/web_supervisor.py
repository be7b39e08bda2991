"""The web view of `[web] listen`: a separate process, started and stopped with the daemon.

A slow or failing page therefore does not affect the daemon. A child that ends is started again,
with pauses that grow to five minutes. It ends when its standard input closes, so a killed daemon
leaves no child behind. On its standard output it says where it listens; the last line of its
standard error is the reason why it ended.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from indexerd.daemon.event_bus import EventBus
from indexerd.logs import Event
from indexerd.privacy.sanitize import clean_line
from indexerd.times import iso

PAUSE_MAX = 300.0  # seconds between two attempts
SOUND_SECONDS = 60.0  # a child that lived so long has not failed at its start
END_SECONDS = 5.0  # that a child has to end by itself
REASON_MAX = 300  # characters
_KEPT = 8192  # bytes of what a child says at its end
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
        self._changed = asyncio.Event()
        self._failures = 0

    def reload(self) -> None:
        """The configuration may name another address."""
        self._failures = 0
        self._changed.set()

    async def run(self) -> None:
        """See to it that the view runs, until this is cancelled; then end it."""
        while True:
            self._changed.clear()
            pause: float | None = None
            if address := self._listen():
                await self._serve(address)
                pause = min(PAUSE_MAX, 2.0 ** min(self._failures, 10))
            else:
                self.problems = []
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)

    async def _serve(self, address: str) -> None:
        """One life of a child: until it ends, or another address is wanted."""
        began = self._clock()
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command, address, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._env
            )
        except OSError as bad:
            self._failed(f"it cannot be started: {bad.strerror}")
            return
        told = asyncio.create_task(self._told(child))
        end = asyncio.create_task(_last_words(child))
        moved = asyncio.create_task(self._moved(address))
        try:
            await asyncio.wait({end, moved}, return_when=asyncio.FIRST_COMPLETED)
            if not moved.done():
                code = await child.wait()
                if self._clock() - began > SOUND_SECONDS:
                    self._failures = 0
                self._failed(end.result() or f"it ended with exit code {code}")
        finally:
            for task in (told, moved):
                task.cancel()
            await _end(child)
            end.cancel()

    async def _told(self, child: Process) -> None:
        """Hear a child say where it listens, which it does once it does."""
        assert child.stdout is not None  # noqa: S101 - it was asked for
        told = clean_line((await child.stdout.readline()).decode("utf-8", "replace"), REASON_MAX)
        if told:
            self.problems = []
            self._bus.log(Event.WEB_STARTED, {"pid": child.pid, "url": told})

    async def _moved(self, address: str) -> None:
        """Wait until another address is wanted."""
        while True:
            await self._changed.wait()
            if self._listen() != address:
                return
            self._changed.clear()

    def _failed(self, why: str) -> None:
        self._failures += 1
        since = iso(self._clock())
        self.problems = [{"code": "web_down", "cause": why, "since": since, "cure": _CURE}]
        self._bus.log(Event.WEB_ENDED, {"reason": why})


async def _last_words(child: Process) -> str:
    """The last thing a child says, without a hint; comes back when it has nothing more to say."""
    assert child.stderr is not None  # noqa: S101 - it was asked for
    held = b""
    while data := await child.stderr.read(_KEPT):
        held = (held + data)[-_KEPT:]
    lines = held.decode("utf-8", "replace").strip().splitlines()
    told = [one.removeprefix("indexerd: ") for one in lines if not one.startswith("hint: ")]
    return clean_line(told[-1], REASON_MAX) if told else ""


async def _end(child: Process) -> None:
    """End a child: by the end of its input, or else by force."""
    if child.stdin is not None:
        child.stdin.close()
    for force in (child.terminate, child.kill):
        try:
            await asyncio.wait_for(child.wait(), END_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                force()
    await child.wait()

"""Runs the web view of `[web] listen` as a separate process while the daemon runs.

The view exits when its standard input closes, so a killed daemon leaves no process behind. It
prints its address; if it exits, its last line is the reason. It is restarted when settings change,
and after it exits, with pauses that grow to five minutes.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from indexerd.daemon.event_bus import EventBus
from indexerd.privacy.sanitize import clean_line

PAUSE_MAX = 300.0  # seconds between two attempts
END_SECONDS = 5.0  # for the view to exit before it is killed
REASON_MAX = 300  # characters


@dataclass(eq=False)
class WebSupervisor:
    """The web view's process, if any."""

    command: Sequence[str]  # starts the view; the address is appended
    listen: Callable[[], str]  # the address; "" for no view
    bus: EventBus
    down: str = ""  # why the view is down
    reloaded: asyncio.Event = field(default_factory=asyncio.Event)  # set when settings changed

    async def run(self) -> None:
        """Keep the view running until cancelled; then stop it."""
        failures = 0
        while True:
            self.reloaded.clear()
            pause, address = None, self.listen()
            if not address:
                self.down = ""
            elif why := await self._serve(address):
                failures += 1
                pause = min(PAUSE_MAX, 2.0 ** min(failures, 10))
                self.down = why
                self.bus.log("web.ended", {"reason": why})
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # `wait_for` of 3.11 may lose a cancellation
                    await self.reloaded.wait()
                failures = 0

    async def _serve(self, address: str) -> str:
        """Run the view until it exits, and return why; "" if settings changed."""
        try:
            child = await asyncio.create_subprocess_exec(
                *self.command, address, stdin=PIPE, stdout=PIPE, stderr=STDOUT
            )
        except OSError as bad:
            return f"it cannot be started: {bad.strerror}"
        ended = asyncio.create_task(self._read_output(child))
        reloaded = asyncio.create_task(self.reloaded.wait())
        try:
            await asyncio.wait({ended, reloaded}, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else ""
        finally:
            ended.cancel()
            reloaded.cancel()
            assert child.stdin is not None  # noqa: S101 - it is a pipe
            child.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await child.wait()
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _read_output(self, child: Process) -> str:
        """Read the view's address; when it exits, return the reason."""
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        reason = ""
        while line := await child.stdout.readline():
            text = clean_line(line.decode("utf-8", "replace"), REASON_MAX)
            if text.startswith("http"):
                self.down = ""
                self.bus.log("web.started", {"pid": child.pid, "url": text})
            elif text and not text.startswith("hint: "):
                reason = text.removeprefix("indexerd: ")
        return reason or f"it exited with code {await child.wait()}"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Find why the view is down: code, cause and cure."""
        if self.down:
            cure = "see `indexerd logs`; `indexerd web` can use another address; it is retried"
            yield "web_down", self.down, cure

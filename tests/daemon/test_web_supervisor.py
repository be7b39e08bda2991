"""The web view's process beside the daemon: real children, started, heard, moved and ended."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.web_supervisor import WebSupervisor
from indexerd.logs import Event

PATIENCE = 20.0
SERVES = "import sys; print('at', sys.argv[1], flush=True); sys.stdin.read()"
FAILS = "import sys; print('first', file=sys.stderr); sys.exit('address \\x1b[31min use')"


class Log:
    """What was logged."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def log(self, _level: int, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def of(self, event: Event) -> list[dict[str, Any]]:
        return [fields for name, fields in self.said if name == event]


class Place:
    """A supervisor, and the address that the configuration names."""

    def __init__(self, script: str, address: str) -> None:
        self.address, self.log = address, Log()
        self.supervisor = WebSupervisor(
            [sys.executable, "-c", script],
            listen=lambda: self.address,
            env=os.environ,
            bus=EventBus(self.log, time.time),
            clock=time.time,
        )

    def move(self, address: str) -> None:
        self.address = address
        self.supervisor.reload()

    async def until(self, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert time.monotonic() < end, self.log.said
            await asyncio.sleep(0.01)
        return found

    async def started(self, number: int = 1) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]]:
            said = self.log.of(Event.WEB_STARTED)
            return said if len(said) >= number else []

        found: list[dict[str, Any]] = await self.until(enough)
        return found


@asynccontextmanager
async def running(script: str, address: str = "127.0.0.1:1") -> AsyncIterator[Place]:
    """A supervisor at work."""
    place = Place(script, address)
    task = asyncio.create_task(place.supervisor.run())
    try:
        yield place
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def gone(pid: int) -> bool:
    """Whether a process is no more."""
    return not Path(f"/proc/{pid}").exists()


def test_runs_while_the_daemon_does() -> None:
    """It is started with the address, told of once it listens, and ended with the daemon."""

    async def life() -> int:
        async with running(SERVES) as place:
            said = await place.started()
            assert said[0]["url"] == "at 127.0.0.1:1"
            assert place.supervisor.problems == []
            return int(said[0]["pid"])

    assert gone(asyncio.run(life()))


def test_what_keeps_it_from_running_is_told() -> None:
    """The last line it says is the reason, in the log and in `status`; no control gets through."""

    async def life() -> None:
        async with running(FAILS) as place:
            await place.until(lambda: place.supervisor.problems)
            problem = place.supervisor.problems[0]
            assert problem["code"] == "web_down"
            assert "in use" in problem["cause"]
            assert "\x1b" not in problem["cause"]
            assert place.log.of(Event.WEB_ENDED)[0]["reason"] == problem["cause"]

    asyncio.run(life())


def test_a_program_that_is_not_there_is_a_problem_and_no_more() -> None:
    """The daemon goes on; it is tried again after a pause, and at once after a reload."""

    async def life() -> None:
        place = Place(SERVES, "127.0.0.1:1")
        place.supervisor._command = ["/nonexistent/indexerd"]
        task = asyncio.create_task(place.supervisor.run())
        await place.until(lambda: place.supervisor.problems)
        place.supervisor._command = [sys.executable, "-c", SERVES]
        place.move("127.0.0.1:1")
        await place.started()
        assert place.supervisor.problems == []
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(life())


def test_a_reload_moves_it_ends_it_and_leaves_it_alone() -> None:
    """Another address: another child. None: no child. The same: the same child."""

    async def life() -> None:
        async with running(SERVES) as place:
            first = (await place.started())[0]
            place.move(place.address)
            place.move("127.0.0.1:2")
            second = (await place.started(2))[1]
            assert second["url"] == "at 127.0.0.1:2"
            assert gone(first["pid"])
            place.move("")
            await place.until(lambda: gone(second["pid"]))
            assert place.supervisor.problems == []
            assert len(place.log.of(Event.WEB_STARTED)) == 2

    asyncio.run(life())

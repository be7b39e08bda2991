"""A daemon that has nothing but events, a hub that hears it, and a test's story with an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from indexerd.web.hub import Hub

SECONDS = 20.0  # after which a test gives up
PAUSES = (0.01, 0.02)
UP, DOWN = {"event": "daemon", "up": True}, {"event": "daemon", "up": False}


class Daemon:
    """A daemon that has nothing but events: says them to whoever subscribed."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.asked: list[Any] = []
        self.subscribed = asyncio.Event()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        request = json.loads(await reader.readline())
        self.asked.append(request)
        self.writers.append(writer)
        writer.write(line({"jsonrpc": "2.0", "id": request["id"], "result": {"subscribed": "all"}}))
        self.subscribed.set()
        await reader.read()

    def say(self, **event: Any) -> None:
        """Tell an event."""
        self.send(line({"jsonrpc": "2.0", "method": "event", "params": event}))

    def send(self, held: bytes) -> None:
        """Send some bytes."""
        self.writers[-1].write(held)


def line(held: Any) -> bytes:
    """A document, as it is sent."""
    return json.dumps(held).encode() + b"\n"


@asynccontextmanager
async def daemon(path: Path) -> AsyncIterator[Daemon]:
    """One that runs, and hangs up at its end."""
    one = Daemon()
    server = await asyncio.start_unix_server(one.meet, path)
    try:
        yield one
    finally:
        server.close()
        for writer in one.writers:
            writer.close()


@asynccontextmanager
async def running(*paths: Path) -> AsyncIterator[Hub]:
    """A hub that runs."""
    hub = Hub(paths, pauses=PAUSES)
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run a test's story, with an end."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await story()

    asyncio.run(bounded())


async def until(heard: AsyncIterator[dict[str, Any]], wanted: dict[str, Any]) -> list[Any]:
    """Listen until that is heard; says what was heard before."""
    before: list[Any] = []
    async for event in heard:
        if event == wanted:
            return before
        before.append(event)
    raise AssertionError(f"{wanted} was not heard, but {before}")

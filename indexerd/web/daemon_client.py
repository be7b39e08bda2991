"""The web view's access to the daemon: questions, and events for every open page.

Each question has a connection of its own, so a daemon that was restarted is simply there again.
What can be read without a daemon is read from what is stored where none answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.client import call_any
from indexerd.errors import DaemonDownError, DeadlineError
from indexerd.paths import Places, socket_places
from indexerd.settings import Settings, read_config

AT_ONCE = 8  # questions
SECONDS = 20.0  # for one answer
READ_SECONDS = 6.0  # for one that can be had without the daemon, which may wait 5 s for its scan
PAUSES = (0.25, 5.0)  # seconds between tries to subscribe: the first, and the longest
_SUBSCRIBE = b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{}}\n'
_LINE_MAX = 4 * 1024 * 1024  # bytes; events are far smaller

Event = dict[str, Any]


class Daemon:
    """Questions and events. `stored(method, params)` answers what needs no daemon; it may block."""

    def __init__(
        self,
        where: Places,
        env: Mapping[str, str],
        *,
        home: Path,
        stored: Callable[[str, dict[str, Any]], Any],
    ) -> None:
        self.where, self.env, self.home = where, env, home
        self.up = False
        self._stored = stored
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._pages: set[asyncio.Queue[Event]] = set()

    def settings(self) -> Settings:
        """The settings as the configuration is now; where it has mistakes, what still holds."""
        return read_config(self.where, self.env).settings

    async def call(self, method: str, params: Mapping[str, Any], seconds: float = SECONDS) -> Any:
        """Ask the daemon; errors as `call_any` raises them."""
        places = socket_places(self.where, self.env)
        async with self._slots:
            return await asyncio.to_thread(call_any, places, method, params, seconds)

    async def read(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the daemon, or read what is stored; for methods that change nothing."""
        try:
            return await self.call(method, params, READ_SECONDS)
        except (DaemonDownError, DeadlineError):
            return await asyncio.to_thread(self._stored, method, dict(params))

    async def listen(self) -> AsyncIterator[Event]:
        """Whether the daemon runs, and its events from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._pages.add(queue)
        try:
            yield {"event": "daemon", "up": self.up}
            while True:
                yield await queue.get()
        finally:
            self._pages.discard(queue)

    async def follow(self) -> None:
        """Stay subscribed until cancelled."""
        pause = PAUSES[0]
        while True:
            for path in socket_places(self.where, self.env):
                with suppress(OSError, ValueError):  # nobody there, it hung up, or no JSON
                    await self._subscription(path)
                if self.up:
                    self.up, pause = False, PAUSES[0]
                    self._tell({"event": "daemon", "up": False})
                    break
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSES[1])

    async def _subscription(self, path: Path) -> None:
        """One connection, from its beginning to its end."""
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_MAX)
        try:
            writer.write(_SUBSCRIBE)
            while line := await reader.readline():
                message = json.loads(line)
                if "result" in message:
                    self.up = True
                    self._tell({"event": "daemon", "up": True})
                elif message.get("method") == "event":
                    params = message["params"]
                    names = ("event", "sessionId")
                    self._tell({name: params[name] for name in names if name in params})
        finally:
            writer.transport.abort()

    def _tell(self, event: Event) -> None:
        for queue in self._pages:
            queue.put_nowait(event)

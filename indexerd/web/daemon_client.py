"""The web view's access to the daemon: requests, and its events for every open page.

Each request has its own connection, so a restart of the daemon needs no reconnection. Without a
daemon, read methods are answered from stored data.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.client import Client, call_once, socket_path
from indexerd.errors import DaemonDownError, DeadlineError, IndexerdError
from indexerd.paths import Places
from indexerd.settings import Settings, read_config

SECONDS = 20.0  # for an answer
READ_SECONDS = 6.0  # for an answer that stored data can replace; a first scan may take 5 s
SILENT_SECONDS = 10.0  # in which a daemon that gave no answer is not asked again for such
RETRY_SECONDS = 1.0  # between attempts to subscribe

Event = dict[str, Any]


class Daemon:
    """Requests and events. `stored(method, params)` answers without a daemon, and may block."""

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
        self._stored, self._silent_until = stored, 0.0
        self._pages: set[asyncio.Queue[Event]] = set()

    def settings(self) -> Settings:
        """Read the settings; if the configuration is invalid, the last valid ones."""
        return read_config(self.where, self.env).settings

    async def call(self, method: str, params: Mapping[str, Any], seconds: float = SECONDS) -> Any:
        return await asyncio.to_thread(call_once, socket_path(self.env), method, params, seconds)

    async def read(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the daemon, or else read stored data; only for methods that change nothing."""
        if time.monotonic() > self._silent_until:
            try:
                return await self.call(method, params, READ_SECONDS)
            except DaemonDownError:
                pass
            except DeadlineError:  # a page asks several times, and waits once
                self._silent_until = time.monotonic() + SILENT_SECONDS
        return await asyncio.to_thread(self._stored, method, dict(params))

    async def listen(self) -> AsyncIterator[Event]:
        """Yield whether the daemon runs, then its events."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._pages.add(queue)
        try:
            yield {"event": "daemon", "up": self.up}
            while True:
                yield await queue.get()
        finally:
            self._pages.discard(queue)

    def follow(self) -> None:
        """Start a thread that stays subscribed and passes events to the running loop."""
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(self._publish, event)

        def stay() -> None:
            with suppress(RuntimeError):  # the loop has ended
                while True:
                    with suppress(IndexerdError), Client(socket_path(self.env)) as client:
                        events = client.events()
                        tell({"event": "daemon", "up": True})
                        for event in events:
                            tell(event)
                    tell({"event": "daemon", "up": False})
                    time.sleep(RETRY_SECONDS)

        threading.Thread(target=stay, daemon=True).start()

    def _publish(self, event: Event) -> None:
        named: Event = {key: event[key] for key in ("event", "sessionId", "up") if key in event}
        if named.get("up") == self.up:
            return
        self.up = named.get("up", self.up)
        for queue in self._pages:
            queue.put_nowait(named)

"""The web view's access to the daemon: requests, and its events for every open page.

Each request has its own connection, so a restarted daemon needs no reconnecting. Read methods that
need no daemon are answered from stored data while none runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.client import call_once, socket_path
from indexerd.errors import DaemonDownError, DeadlineError
from indexerd.paths import Places
from indexerd.settings import Settings, read_config

SECONDS = 20.0  # for an answer
READ_SECONDS = 6.0  # for one that can do without the daemon, whose first scan may take 5 s
RETRY_SECONDS = 1.0  # between attempts to subscribe
_SUBSCRIBE = b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{}}\n'
_LINE_MAX = 4 * 1024 * 1024  # bytes; events are far smaller

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
        self._stored = stored
        self._pages: set[asyncio.Queue[Event]] = set()

    def settings(self) -> Settings:
        """Read the settings; where the configuration is invalid, those that still apply."""
        return read_config(self.where, self.env).settings

    async def call(self, method: str, params: Mapping[str, Any], seconds: float = SECONDS) -> Any:
        """Ask the daemon; errors as `call_once` raises them."""
        return await asyncio.to_thread(call_once, socket_path(self.env), method, params, seconds)

    async def read(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the daemon, or read stored data; for methods that change nothing."""
        try:
            return await self.call(method, params, READ_SECONDS)
        except (DaemonDownError, DeadlineError):
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

    async def follow(self) -> None:
        """Stay subscribed until cancelled."""
        while True:
            with suppress(OSError, ValueError):  # not listening, hung up, or not JSON
                await self._subscription(socket_path(self.env))
            if self.up:
                self._set_up(up=False)
            await asyncio.sleep(RETRY_SECONDS)

    async def _subscription(self, path: str) -> None:
        reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_MAX)
        try:
            writer.write(_SUBSCRIBE)
            while line := await reader.readline():
                message = json.loads(line)
                if "result" in message:
                    self._set_up(up=True)
                elif message.get("method") == "event":
                    params = message["params"]
                    self._publish({k: params[k] for k in ("event", "sessionId") if k in params})
        finally:
            writer.transport.abort()

    def _set_up(self, *, up: bool) -> None:
        self.up = up
        self._publish({"event": "daemon", "up": up})

    def _publish(self, event: Event) -> None:
        for queue in self._pages:
            queue.put_nowait(event)

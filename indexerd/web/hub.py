"""What happens, passed on from the daemon to every open page.

In: one subscription on the daemon's socket, made anew with growing pauses whenever it ends. Out:
for each listener an iterator of events, the state of the daemon first. Of an event only words of
fixed forms are passed on: which event, which session, when, and states; never a name or a text.

A listener that does not listen loses nothing it needs: what it has not yet taken is told once per
event and session, with the newest fields, and where more than `WAITING_MAX` wait, the oldest go
and it is told `{"event": "lost"}`. What surprised us: a page that was open while the daemon was
away has missed what happened meanwhile, so `lost` follows every return.

Everything happens on one event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from indexerd.paths import is_session_id

WAITING_MAX = 256  # events that a listener has not taken yet
PAUSES = (0.25, 5.0)  # seconds between tries: the first, and the longest
PATIENCE = 10.0  # seconds for a daemon to say that we are subscribed
LINE_MAX = 4 * 1024 * 1024  # bytes; events are far smaller
LOST = {"event": "lost"}

_SUBSCRIBE = b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{}}\n'
_EVENT = re.compile(r"(session|index|context|digest|status)\.[a-z]{1,32}")
_WORD = re.compile(r"[a-z][a-z_-]{0,31}")
_TIME = re.compile(r"[0-9T:.Z+-]{10,40}")
_WORDS = ("state", "previousState", "previous", "reason", "kind")

Event = dict[str, Any]
Callback = Callable[[Event], None]


class Hub:
    """One subscription for all. `paths` are where the socket may be, the likeliest first.

    `up`: a daemon answers.
    """

    def __init__(self, paths: Sequence[Path], *, pauses: tuple[float, float] = PAUSES) -> None:
        self.up = False
        self._linked = self._silent = False
        self._paths = tuple(paths)
        self._pauses = pauses
        self._listeners: set[_Listener] = set()
        self._callbacks: list[Callback] = []
        self._closed = False

    def on_event(self, callback: Callback) -> None:
        """Have a function called with every event, on the loop; it must not block or raise."""
        self._callbacks.append(callback)

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Hear events from now on: `{"event": "daemon", "up"}` first, until the hub is closed."""
        return self._listening()

    async def run(self) -> None:
        """Keep subscribed until cancelled."""
        shortest, longest = self._pauses
        pause = shortest
        known = False  # there was a daemon before
        while True:
            for path in self._paths:
                if await self._subscribed(path, again=known):
                    known, pause = True, shortest
                    break
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)

    def close(self) -> None:
        """End every listening, now and later: open streams would keep a server from its end."""
        self._closed = True
        for one in self._listeners:
            one.end()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[AsyncIterator[Event]]:
        one = _Listener()
        one.put({"event": "daemon", "up": self.up})
        if self._closed:
            one.end()
        self._listeners.add(one)
        try:
            yield one.events()
        finally:
            self._listeners.discard(one)

    async def _subscribed(self, path: Path, *, again: bool) -> bool:
        """Hear a daemon out; False where none answers there."""
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_unix_connection(path, limit=LINE_MAX)
        except (OSError, ValueError):  # nobody there; a path that can be none
            return False
        try:
            return await self._hear(reader, writer, again=again)
        except (OSError, ValueError):  # it hung up; a line too long, or no JSON
            return self._linked
        finally:
            writer.transport.abort()
            self._change(linked=False)

    async def _hear(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, again: bool
    ) -> bool:
        writer.write(_SUBSCRIBE)
        async with asyncio.timeout(PATIENCE):
            while (held := await _next(reader)) is not None and "id" not in held:
                pass  # an event before the answer is told by the pages' own first look
        if held is None or "result" not in held:
            return False
        self._change(linked=True)
        if again:
            self._tell(LOST)
        while (held := await _next(reader)) is not None:
            if held.get("method") == "event" and (event := plain(held.get("params"))):
                self._tell(event)
        return True

    def hush(self, *, silent: bool) -> None:
        """Tell every page that the daemon, though it is there, does not answer; or does again."""
        self._silent = silent
        self._change(linked=self._linked)

    def _change(self, *, linked: bool) -> None:
        self._linked = linked
        up = linked and not self._silent
        if up != self.up:
            self.up = up
            self._tell({"event": "daemon", "up": up})

    def _tell(self, event: Event) -> None:
        for callback in self._callbacks:
            callback(event)
        for one in self._listeners:
            one.put(event)


class _Listener:
    """What one listener has not taken yet."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], Event] = {}
        self._some = asyncio.Event()
        self._ended = False

    def put(self, event: Event) -> None:
        """Add an event; one like it that still waits goes, so that the newest is told last."""
        key = (event["event"], event.get("sessionId", ""))
        self._waiting.pop(key, None)
        self._waiting[key] = event
        if len(self._waiting) > WAITING_MAX:
            lost = (LOST["event"], "")
            del self._waiting[next(key for key in self._waiting if key != lost)]
            self._waiting[lost] = LOST
        self._some.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._some.set()

    async def events(self) -> AsyncIterator[Event]:
        """Take one after the other."""
        while not self._ended:
            if not self._waiting:
                self._some.clear()
                await self._some.wait()
                continue
            yield self._waiting.pop(next(iter(self._waiting)))


def plain(told: Any) -> Event | None:
    """Of an event, the fields that hold no text; None for one that pages have no use for."""
    if not isinstance(told, Mapping):
        return None
    name = told.get("event")
    if not isinstance(name, str) or not _EVENT.fullmatch(name):
        return None
    found: Event = {"event": name}
    session_id = told.get("sessionId")
    if isinstance(session_id, str) and is_session_id(session_id):
        found["sessionId"] = session_id
    at = told.get("at")
    if isinstance(at, str) and _TIME.fullmatch(at):
        found["at"] = at
    for key in _WORDS:
        value = told.get(key)
        if isinstance(value, str) and _WORD.fullmatch(value):
            found[key] = value
    return found


async def _next(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next document; None at the end. ValueError for what is none, or far too long."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        held = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(held, dict):
        raise ValueError("what answers there is no daemon of ours")
    return held

"""The view's connections: who says nothing, or does not listen, keeps nobody out.

In: whoever connects; every program of every user of this machine can. Out: uvicorn's own handling
of requests, within bounds. A connection on which nothing is being answered has `HEAD_SECONDS` for
its next whole request head, however many bytes of it come; one that takes nothing of its answer is
cut off after `STALL_SECONDS`. At most `CONNECTIONS_MAX` are open, or fewer where the system allows
few files: the one that has idled longest then makes room, and where none idles the newcomer goes.

What surprised us: uvicorn's own time limit begins with the first answer, and each byte ends it; and
asyncio, out of files, complains thousands of times a second: see `Complaints`.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import time
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from indexerd.errors import IndexerdError

CONNECTIONS_MAX = 256
HEAD_SECONDS = 5.0
STALL_SECONDS = 30.0
COMPLAINT_SECONDS = 60.0
_OTHER_FILES = 96  # that a view may have open besides: sessions, the catalogue, the daemon's socket
_FEWEST = 8
_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def room() -> int:
    """How many connections may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(_FEWEST, min(CONNECTIONS_MAX, soft - _OTHER_FILES))


class Connection(H11Protocol):
    """One connection; given to uvicorn as `http=`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.idle_since: float | None = None  # nothing is being answered, or nobody takes it
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream
        """Begin, where there is room."""
        super().connection_made(transport)
        if len(self.connections) > room() and not self._make_room():
            transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._unwatch()
        self._stalled = _ended(self._stalled)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be here already."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for a client that does not take its answer."""
        super().pause_writing()
        self._unstalled()
        self.idle_since = time.monotonic()
        left = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(STALL_SECONDS, self._look, left)

    def resume_writing(self) -> None:
        """Go on."""
        self._unstalled()
        super().resume_writing()

    def _make_room(self) -> bool:
        """Cut off whoever has idled longest; False where nobody idles."""
        idle = [
            (one.idle_since, id(one), one)
            for one in self.connections
            if isinstance(one, Connection) and one.idle_since is not None
        ]
        if idle:
            min(idle)[2]._abort()  # noqa: SLF001 - another one of ours
        return bool(idle)

    def _watch(self) -> None:
        """See to it that the next request does not take for ever, while none is answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # none before the first request
        if cycle is not None and not cycle.response_complete:
            self._unwatch()
        elif self._late is None and not self.transport.is_closing():
            self.idle_since = time.monotonic()
            self._late = self.loop.call_later(HEAD_SECONDS, self._end)

    def _unwatch(self) -> None:
        self._late = _ended(self._late)
        if self._stalled is None:
            self.idle_since = None

    def _unstalled(self) -> None:
        self._stalled = _ended(self._stalled)
        if self._late is None:
            self.idle_since = None

    def _end(self) -> None:
        """Nothing came; what was answered before may still be on its way."""
        self._late = None
        self.transport.close()
        if self._stalled is None:
            left = self.transport.get_write_buffer_size()
            self._stalled = self.loop.call_later(STALL_SECONDS, self._look, left)

    def _look(self, before: int) -> None:
        """Whether a client that was slow has taken anything."""
        self._stalled = None
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self._abort()
        else:
            self._stalled = self.loop.call_later(STALL_SECONDS, self._look, left)

    def _abort(self) -> None:
        self.idle_since = None
        self.connections.discard(self)  # it counts no more, though its end is yet to come
        self.transport.abort()


class Complaints:
    """What the event loop complains of, passed on once in a while: a handler for the loop."""

    def __init__(
        self,
        tell: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._next = float("-inf")

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell, or leave it."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + COMPLAINT_SECONDS
        bad = context.get("exception")
        if isinstance(bad, OSError) and bad.errno in _NO_FILES:
            bad = IndexerdError("too many files are open", hint="see `ulimit -n`")
        self._tell(bad or IndexerdError("something went wrong between two requests"))


def _ended(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer any more."""
    if timer is not None:
        timer.cancel()
    return None

"""The Unix-socket server: requests in, answers out, in order, and nobody can wedge it.

In: a path, and one handler for every request. A handler answers at once with a value, or
returns an awaitable; it may return a `wire.Failure` or raise an error of the tree. Requests of
one connection start in order and are answered in order; awaitable ones may overlap, up to a
bound, and hold up nobody else. Out: JSON-RPC lines (docs/PROTOCOL.md), and events for peers.

What is turned away is counted in `rejected` and told to `on_reject` by one word: connections,
peer, too_long, half_sent, junk, not_reading, lagging, no_files, internal. An error that is not
of the tree answers "internal error", says nothing of itself, and goes to `on_error`.
Not thread-safe: everything, `Peer.notify` too, happens on the loop that ran `start`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from indexerd.daemon.peers import Channel, Listener
from indexerd.errors import DaemonDownError, IndexerdError
from indexerd.protocol import wire

_METHOD_SHOWN = 64  # characters of a method's name that go into reports


class Peer(Protocol):
    """The other end of a connection, as handlers see it."""

    def notify(self, event: Mapping[str, Any]) -> bool:
        """Send an event, never waiting; False once the peer is gone or given up."""
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the connection ends; soon, if it has."""
        ...


Handler: TypeAlias = Callable[[wire.Request, Peer], Awaitable[Any] | Any]
OnError: TypeAlias = Callable[[str, BaseException], None]  # the method's name, what it raised


class UnixServer:
    """Serves one handler on one socket path; the caller holds the single-instance lock."""

    def __init__(
        self,
        path: Path,
        handle: Handler,
        on_reject: Callable[[str], None],
        on_error: OnError | None = None,
        *,
        limits: wire.Limits = wire.LIMITS,
    ) -> None:
        self.handle = handle
        self.limits = limits
        self.rejected: Counter[str] = Counter()
        self.closing = False
        self._on_reject = on_reject
        self._on_error = on_error
        self._listener = Listener(path, self._admit, self.reject)
        self._open: set[_Connection] = set()
        self._admitting: set[asyncio.Task[Any]] = set()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def start(self) -> None:
        """Listen, and answer from now on. Errors as `peers.bind` raises them."""
        self._listener.open()

    async def restart(self) -> None:
        """Listen anew at the same path; open connections stay. Errors as for `start`."""
        self._listener.close()
        self._listener.open()

    async def check(self) -> bool:
        """Say whether the socket file was in place; where not, it is made anew (S6).

        Errors as for `start` while something stands in the way; ask again later.
        """
        if self._listener.in_place():
            return True
        await self.restart()
        return False

    async def close(self) -> None:
        """Stop listening, let requests under way end for a short time, then hang up."""
        self.closing = True
        self._listener.close()
        grace = self.limits.grace_seconds
        if self._admitting:
            await asyncio.wait(self._admitting, timeout=grace)
        running = {task for one in self._open for task in one.running()}
        if running:
            _done, late = await asyncio.wait(running, timeout=grace)
            for task in late:
                task.cancel()
            if late:  # what will not be cancelled is left behind
                await asyncio.wait(late, timeout=grace)
        ends = [one.hang_up() for one in self._open]
        if ends:  # a peer that does not read its last answer is not waited for
            await asyncio.wait(ends, timeout=grace)
        for one in list(self._open):
            one.transport.abort()
        if ends:
            await asyncio.wait(ends, timeout=grace)

    def reject(self, why: str) -> None:
        """Count and report what was turned away."""
        self.rejected[why] += 1
        self._on_reject(why)

    def failed(self, method: str, error: BaseException) -> None:
        """Report an error that no handler should let through."""
        self.reject("internal")
        if self._on_error is not None:
            self._on_error(method, error)

    def forget(self, connection: _Connection) -> None:
        """Strike a connection that has ended."""
        self._open.discard(connection)

    def _admit(self, sock: socket.socket) -> None:
        if len(self._open) >= self.limits.connections:
            self.reject("connections")
            sock.close()
            return
        loop = asyncio.get_running_loop()
        connection = _Connection(self, loop)
        self._open.add(connection)
        task = loop.create_task(loop.connect_accepted_socket(lambda: connection, sock))
        self._admitting.add(task)
        task.add_done_callback(partial(self._admitted, connection))

    def _admitted(self, connection: _Connection, task: asyncio.Task[Any]) -> None:
        self._admitting.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.forget(connection)
        self.failed("accept", error)


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one answer among a connection's answers."""

    reply: bytes | None = None
    task: asyncio.Future[Any] | None = None


class _Connection(Channel):
    """One peer: its requests, the order of its answers, its events."""

    def __init__(self, server: UnixServer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server.limits, loop)
        self._server = server
        self._slots: deque[_Slot] = deque()
        self._ready: list[bytes] = []  # answers that no earlier request holds back
        self._callbacks: list[Callable[[], None]] = []
        self._ended: asyncio.Future[None] = loop.create_future()
        self._junk = 0
        self._lag = 0

    # What handlers see.

    def notify(self, event: Mapping[str, Any]) -> bool:
        """Send an event; a peer that lags too far behind is hung up on."""
        if self.last or self.transport.is_closing():
            return False
        self._lag = self._lag + 1 if self.full else 0
        if self._lag > self.limits.lag_events:
            self.give_up("lagging")
            return False
        self.transport.write(wire.event(event))
        return True

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once at the end."""
        self._callbacks.append(callback)
        if self._ended.done():
            self.loop.call_soon(self._call_back)

    # What the server asks for when it closes.

    def running(self) -> list[asyncio.Future[Any]]:
        """Requests under way."""
        return [slot.task for slot in self._slots if slot.task is not None and not slot.task.done()]

    def hang_up(self) -> asyncio.Future[None]:
        """Close once the answers that are there are sent; done when the connection has ended."""
        self.last = True
        held = [slot.reply for slot in self._slots if slot.reply is not None]
        if answers := b"".join([*self._ready, *held]):
            self.transport.write(answers)
        self.transport.close()
        return self._ended

    # What the channel asks for.

    def take(self, line: bytes) -> None:
        """Answer a line, now or in its turn."""
        request = wire.parse(line)
        if isinstance(request, wire.Failure):
            self._put(request.to_line())
            self._junk = self._junk + 1 if request.fault is wire.Fault.PARSE else 0
            if self._junk >= self.limits.junk_lines:
                self.take_no_more("junk")
            return
        self._junk = 0
        try:
            answer = self._server.handle(request, self)
        except Exception as error:  # noqa: BLE001 - becomes the answer, and is reported
            self._put(self._told(request, error))
            return
        if isinstance(answer, Awaitable):
            task = asyncio.ensure_future(answer)
            slot = _Slot(task=task)
            self._slots.append(slot)
            task.add_done_callback(partial(self._done, slot, request))
        else:
            self._put(self._encoded(request, answer))

    def answers(self) -> bytes:
        """Hand out the answers whose turn it is."""
        while self._slots and not self.full and (reply := self._slots[0].reply) is not None:
            self._ready.append(reply)
            self._slots.popleft()
        held = b"".join(self._ready)
        self._ready.clear()
        return held

    def busy(self) -> bool:
        """Say whether enough is under way."""
        return len(self._slots) >= self.limits.in_flight or self._server.closing

    def settled(self) -> bool:
        """Say whether everything is answered."""
        return not self._slots

    def refused(self, why: str) -> None:
        """Pass on why this peer is given up."""
        if why == "too_long":
            self._put(wire.too_long().to_line())
        self._server.reject(why)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what nobody waits for any more, and say goodbye."""
        super().connection_lost(exc)
        for task in self.running():
            task.cancel()
        self._slots.clear()
        self._server.forget(self)
        self._ended.set_result(None)
        self._call_back()

    def _done(self, slot: _Slot, request: wire.Request, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            slot.reply = self._told(request, DaemonDownError("the request was cut short"))
        elif (error := task.exception()) is not None:
            slot.reply = self._told(request, error)
        else:
            slot.reply = self._encoded(request, task.result())
        self.pump()

    def _encoded(self, request: wire.Request, answer: Any) -> bytes:
        if request.is_notification:
            return b""
        if isinstance(answer, wire.Failure):
            return answer.to_line()
        try:
            return wire.result(request.id, answer)
        except (TypeError, ValueError, RecursionError) as error:  # not JSON: the handler's fault
            return self._told(request, error)

    def _told(self, request: wire.Request, error: BaseException) -> bytes:
        """Turn an error into an answer; one that is not of the tree says nothing of itself."""
        if isinstance(error, IndexerdError):
            try:
                return b"" if request.is_notification else wire.failure(request.id, error)
            except (TypeError, ValueError, RecursionError) as odd:  # its data is not JSON
                error = odd
        self._server.failed(request.method[:_METHOD_SHOWN], error)
        return b"" if request.is_notification else wire.failure(request.id, wire.Fault.INTERNAL)

    def _put(self, reply: bytes) -> None:
        if self._slots:
            self._slots.append(_Slot(reply))
        else:
            self._ready.append(reply)

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - the others must be called, too
                self._server.failed("on_close", error)

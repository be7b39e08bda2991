"""The Unix-socket server: requests in, answers out, in order, and no peer can block it.

In: a path, for which the caller holds the single-instance lock, and one handler for every request.
A handler answers at once with a value, or returns an awaitable; it may return a `wire.Failure` or
raise an error of the tree. Requests of one connection start in order and are answered in order;
awaitable ones may overlap, up to a bound. Out: JSON-RPC lines (docs/PROTOCOL.md), and events.

What is turned away is counted in `rejected` and told to `on_reject` by one word: connections,
peer, too_long, half_sent, junk, not_reading, lagging, no_files, internal. An error that is not
of the tree answers "internal error", says nothing of itself, and goes to `on_error`.
Not thread-safe: everything, `Peer.notify` too, happens on the loop that ran `start`.

What surprised us: `asyncio.start_unix_server(path)` unlinks whatever socket lies there, a live
daemon's included, and makes its own with mode 0755. asyncio's acceptor (3.11) goes on calling
`accept` a whole backlog long after EMFILE. A umask around `bind` would also hit the files that
other threads make in that moment; on Linux `fchmod` before `bind` needs none. A peer that is
gone and one that only ended its requests (`nc -N`) look the same, so both get their answers.
Closing on a peer that still sends breaks its pipe before it has read why: we discard a while.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from indexerd.errors import (
    AccessError,
    AlreadyRunningError,
    DaemonDownError,
    IndexerdError,
    UsageError,
)
from indexerd.paths import SOCKET_PATH_MAX
from indexerd.protocol import wire

_METHOD_SHOWN = 64  # characters of a method's name that go into reports
_PROBE_SECONDS = 1.0
_BACKLOG = 1024  # the system cuts it to its own figure
_ACCEPT_BATCH = 64  # then the loop serves the others
_RETRY_SECONDS = 0.5
_CHUNK = 65_536  # bytes of one read
_ELSEWHERE = "set INDEXERD_SOCKET to a path in a directory of your own"


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
    """Serves one handler on one socket path."""

    def __init__(
        self,
        path: Path,
        handle: Handler,
        on_reject: Callable[[str], None],
        on_error: OnError | None = None,
        *,
        limits: wire.Limits = wire.LIMITS,
    ) -> None:
        self.path = path
        self.handle = handle
        self.limits = limits
        self.rejected: Counter[str] = Counter()
        self.closing = False
        self._on_reject = on_reject
        self._on_error = on_error
        self._open: dict[_Connection, asyncio.Task[None]] = {}
        self._sock: socket.socket | None = None
        self._file: os.stat_result | None = None  # of the socket's file, as we made it
        self._retry: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def start(self) -> None:
        """Listen, and answer from now on. Errors as `_listen` raises them."""
        self._sock, self._file = _listen(self.path)
        self._watch()

    async def check(self) -> bool:
        """Say whether the socket file was in place; where not, it is made anew (S6).

        Errors as for `start` while something stands in the way; ask again later.
        """
        if self._in_place():
            return True
        self._stop_listening()
        await self.start()
        return False

    async def close(self) -> None:
        """Stop listening, let requests under way end for a short time, then hang up."""
        self.closing = True
        self._stop_listening()
        grace = self.limits.grace_seconds
        await asyncio.sleep(0)  # connections just let in take up what they sent
        running = {task for one in self._open for task in one.running()}
        if running:
            _done, late = await asyncio.wait(running, timeout=grace)
            for task in late:
                task.cancel()
            if late:  # what will not be cancelled is left behind
                await asyncio.wait(late, timeout=grace)
        for one in list(self._open):
            one.hang_up()
        if self._open:  # a peer that does not read its last answer is not waited for
            await asyncio.wait(self._open.values(), timeout=grace)
        for task in list(self._open.values()):
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    def reject(self, why: str) -> None:
        """Count and report what was turned away."""
        self.rejected[why] += 1
        self._on_reject(why)

    def failed(self, method: str, error: BaseException) -> None:
        """Report an error that no handler should let through."""
        self.reject("internal")
        if self._on_error is not None:
            self._on_error(method, error)

    # -- listening -----------------------------------------------------------------------

    def _in_place(self) -> bool:
        """Whether the path still leads to our socket."""
        with suppress(OSError):
            return self._file is not None and os.path.samestat(self._file, self.path.lstat())
        return False

    def _stop_listening(self) -> None:
        """Let in who has knocked, remove the file if it is still ours, then stop.

        In this order: an inode number cannot be given away while its socket is open.
        """
        self._accept()
        if self._retry is not None:
            self._retry.cancel()
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            if self._in_place():
                with suppress(OSError):  # the directory went away, or became read-only
                    self.path.unlink()
            self._sock.close()
            self._sock = self._file = None

    def _watch(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            if self._sock is None:
                return
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # EMFILE: a socket that cannot be accepted from stays readable
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._sock)
                self._retry = loop.call_later(_RETRY_SECONDS, self._watch)
                self.reject("no_files")
                return
            self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        """Begin a connection of our own user; not even root is let in on somebody's sessions."""
        sock.settimeout(0)
        if peer_uid(sock) != os.geteuid():
            self.reject("peer")
        elif len(self._open) >= self.limits.connections:
            self.reject("connections")
        else:
            connection = _Connection(self, sock)
            self._open[connection] = task = asyncio.create_task(connection.run())
            task.add_done_callback(partial(self._ended, connection))
            return
        sock.close()

    def _ended(self, connection: _Connection, task: asyncio.Task[None]) -> None:
        self._open.pop(connection, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed("connection", error)


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one answer among a connection's answers."""

    reply: bytes | None = None
    task: asyncio.Future[Any] | None = None


class _Streams(asyncio.StreamReaderProtocol):
    """A stream whose end is heard of while nobody reads."""

    def __init__(self, reader: asyncio.StreamReader, lost: Callable[[], None]) -> None:
        super().__init__(reader)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()


class _Connection:
    """One peer: its requests, its answers in their order, its events."""

    def __init__(self, server: UnixServer, sock: socket.socket) -> None:
        self._server = server
        self._limits = server.limits
        self._sock = sock
        self._writer: asyncio.StreamWriter | None = None
        self._slots: deque[_Slot] = deque()
        self._answered = asyncio.Event()
        self._callbacks: list[Callable[[], None]] | None = []  # None: called
        self._junk = self._lag = self._taken = 0
        self._last = False  # nothing more is taken or sent

    # -- what handlers see ---------------------------------------------------------------

    def notify(self, event: Mapping[str, Any]) -> bool:
        """Send an event; a peer that lags too far behind is hung up on."""
        writer = self._writer
        if self._last or writer is None or writer.is_closing():
            return False
        full = writer.transport.get_write_buffer_size() > self._limits.unsent_bytes
        self._lag = self._lag + 1 if full else 0
        if self._lag > self._limits.lag_events:
            self._give_up("lagging")
            return False
        writer.write(wire.event(event))
        return True

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once at the end."""
        if self._callbacks is None:
            asyncio.get_running_loop().call_soon(self._call, callback)
        else:
            self._callbacks.append(callback)

    # -- what the server asks for when it closes -----------------------------------------

    def running(self) -> list[asyncio.Future[Any]]:
        """Requests under way."""
        return [one.task for one in self._slots if one.task is not None and not one.task.done()]

    def hang_up(self) -> None:
        """Close once the answers that are there are sent."""
        if self._writer is not None:
            if not self._last:
                self._writer.write(b"".join(one.reply or b"" for one in self._slots))
            self._writer.close()
        self._last = True

    # -- the conversation ----------------------------------------------------------------

    async def run(self) -> None:
        """Answer until the peer has gone, or is given up."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK)
        try:
            transport, protocol = await loop.connect_accepted_socket(
                lambda: _Streams(reader, self._connection_lost), self._sock
            )
            transport.set_write_buffer_limits(high=self._limits.unsent_bytes)
            self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            sends_on = await self._converse(reader)
            await self._finish(reader, sends_on=sends_on)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            if self._writer is not None:
                self._writer.transport.abort()
            self._connection_lost()

    async def _converse(self, reader: asyncio.StreamReader) -> bool:
        """Take lines up until the last; whether the peer may still be sending."""
        lines = wire.Lines(self._limits.line_bytes)
        loop, begun = asyncio.get_running_loop(), 0.0
        while True:
            while (line := lines.take()) is not None:
                begun = 0.0
                self._take(line)
                if self._junk >= self._limits.junk_lines:
                    self._server.reject("junk")
                    return True
                await self._pace()
            if lines.too_long:
                self._put(wire.too_long().to_line())
                self._server.reject("too_long")
                return True
            begun = (begun or loop.time()) if lines.unfinished else 0.0
            deadline = begun + self._limits.half_line_seconds if begun else None
            try:
                async with asyncio.timeout_at(deadline):
                    data = await reader.read(_CHUNK)
            except TimeoutError:
                self._give_up("half_sent")
                raise
            if not data:
                if rest := lines.rest():
                    self._take(rest)
                return False
            lines.feed(data)

    async def _pace(self) -> None:
        """Wait until another request may be taken up; now and then let others have their turn."""
        self._taken += 1
        if self._taken % self._limits.lines_a_turn == 0:
            await asyncio.sleep(0)
        while len(self._slots) >= self._limits.in_flight or self._server.closing:
            self._answered.clear()
            await self._answered.wait()
        writer = self._stream
        if writer.transport.get_write_buffer_size() > self._limits.unsent_bytes:
            await self._read_by_peer(writer.drain)

    async def _finish(self, reader: asyncio.StreamReader, *, sends_on: bool) -> None:
        """Send what is left; of a peer that still sends, discard for a while what it does."""
        while self._slots:
            self._answered.clear()
            await self._answered.wait()
        self._last = True
        writer = self._stream
        if sends_on:
            writer.write_eof()
            async with asyncio.timeout(self._limits.half_line_seconds):
                while await reader.read(_CHUNK):
                    pass
        writer.close()
        await self._read_by_peer(writer.wait_closed)

    async def _read_by_peer(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for the peer to take bytes, as long as it takes some."""
        transport = self._stream.transport
        while True:
            unsent = transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._limits.stall_seconds):
                    return await wait()
            except TimeoutError:
                if transport.get_write_buffer_size() >= unsent:
                    self._give_up("not_reading")
                    raise

    @property
    def _stream(self) -> asyncio.StreamWriter:
        assert self._writer is not None  # noqa: S101 - set before the first line is read
        return self._writer

    def _give_up(self, why: str) -> None:
        self._server.reject(why)
        self._last = True
        self._stream.transport.abort()

    def _connection_lost(self) -> None:
        """Cancel what nobody waits for any more, and say goodbye."""
        callbacks, self._callbacks = self._callbacks, None
        self._last = True
        for task in self.running():
            task.cancel()
        self._slots.clear()
        self._answered.set()
        for callback in callbacks or ():
            self._call(callback)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the others must be called, too
            self._server.failed("on_close", error)

    # -- requests and answers ------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        """Answer a line, now or in its turn."""
        request = wire.parse(line)
        if isinstance(request, wire.Failure):
            self._put(request.to_line())
            self._junk = self._junk + 1 if request.fault is wire.Fault.PARSE else 0
            return
        self._junk = 0
        try:
            answer = self._server.handle(request, self)
        except Exception as error:  # noqa: BLE001 - becomes the answer, and is reported
            self._put(self._error(request, error))
            return
        if isinstance(answer, Awaitable):
            slot = _Slot(task=asyncio.ensure_future(answer))
            self._slots.append(slot)
            assert slot.task is not None  # noqa: S101 - for the type checker
            slot.task.add_done_callback(partial(self._done, slot, request))
        else:
            self._put(self._encoded(request, answer))

    def _done(self, slot: _Slot, request: wire.Request, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            slot.reply = self._error(request, DaemonDownError("the request was cut short"))
        elif (error := task.exception()) is not None:
            slot.reply = self._error(request, error)
        else:
            slot.reply = self._encoded(request, task.result())
        self._send()

    def _put(self, reply: bytes) -> None:
        self._slots.append(_Slot(reply))
        self._send()

    def _send(self) -> None:
        """Write the answers that no earlier request holds back."""
        ready = []
        while self._slots and (reply := self._slots[0].reply) is not None:
            ready.append(reply)
            self._slots.popleft()
        if ready and self._writer is not None and not self._writer.is_closing():
            self._writer.write(b"".join(ready))
        self._answered.set()

    def _encoded(self, request: wire.Request, answer: Any) -> bytes:
        if request.is_notification:
            return b""
        if isinstance(answer, wire.Failure):
            return answer.to_line()
        try:
            return wire.result(request.id, answer)
        except (TypeError, ValueError, RecursionError) as error:  # not JSON: the handler's fault
            return self._error(request, error)

    def _error(self, request: wire.Request, error: BaseException) -> bytes:
        """Turn an error into an answer; one that is not of the tree says nothing of itself."""
        if isinstance(error, IndexerdError):
            try:
                return b"" if request.is_notification else wire.failure(request.id, error)
            except (TypeError, ValueError, RecursionError) as odd:  # its data is not JSON
                error = odd
        self._server.failed(request.method[:_METHOD_SHOWN], error)
        return b"" if request.is_notification else wire.failure(request.id, wire.Fault.INTERNAL)


# -- the socket's file ------------------------------------------------------------------------


def peer_uid(sock: socket.socket) -> int | None:
    """The user id of the process that connected, as it was then; None where nobody can say."""
    with suppress(OSError):  # macOS has no answer for a peer that is gone already
        if sys.platform == "darwin":
            # struct xucred of <sys/ucred.h>: version, uid, then groups; asked of level SOL_LOCAL
            # (0) by the name LOCAL_PEERCRED (1), for which Python has no words.
            version, uid = struct.unpack_from("=II", sock.getsockopt(0, 1, 76))
            return int(uid) if version == 0 else None
        if sys.platform == "linux":
            held = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            _pid, uid, _gid = struct.unpack("=iII", held)
            return int(uid)
    return None


def _listen(path: Path) -> tuple[socket.socket, os.stat_result]:
    """A listening socket, whose file was 0600 from its first moment.

    UsageError: the path is too long. AccessError: the directory is not private, something that
    is no socket lies there, or the system refuses. AlreadyRunningError: somebody answers there.
    """
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_MAX:
        raise UsageError(
            f"the socket's path has {size} bytes, the system takes {SOCKET_PATH_MAX}: {path}",
            hint="set INDEXERD_SOCKET to a shorter path",
        )
    try:
        _own_directory(path.parent)
        _make_way(path)
        return _bound(path)
    except OSError as refused:
        message = f"cannot make the socket {path}: {refused.strerror}"
        raise AccessError(message, hint=_ELSEWHERE) from refused


def _bound(path: Path) -> tuple[socket.socket, os.stat_result]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(OSError):  # macOS refuses it for sockets; the private directory covers that
            os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
        return sock, path.lstat()
    except BaseException:
        sock.close()
        raise


def _own_directory(directory: Path) -> None:
    """Make what is missing of a directory, 0700, and refuse one that others may write to (S1)."""
    missing = []
    here = directory
    while not here.exists():
        missing.append(here)
        here = here.parent
    for one in reversed(missing):
        one.mkdir(0o700, exist_ok=True)
        one.chmod(0o700)  # an odd umask may have taken even our own rights
    held = directory.stat()
    if held.st_uid != os.geteuid():
        raise AccessError(f"{directory} belongs to another user", hint=_ELSEWHERE)
    if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AccessError(
            f"{directory} can be written to by others", hint=f"chmod 700 it, or {_ELSEWHERE}"
        )
    # One that bears our name is ours to close; INDEXERD_SOCKET may also point into a home.
    if directory.name == "indexerd" and stat.S_IMODE(held.st_mode) != stat.S_IRWXU:
        directory.chmod(0o700)


def _make_way(path: Path) -> None:
    """Remove a socket that nobody listens on; refuse everything else (S4)."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise AccessError(
            f"{path} is not a socket, and was left alone",
            hint="move it away, or set INDEXERD_SOCKET",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except (BlockingIOError, TimeoutError):
            pass  # a full backlog: somebody listens, and is busy
    raise AlreadyRunningError(f"somebody answers on {path}", hint="`indexerd status` shows who")

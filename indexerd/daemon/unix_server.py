"""The Unix-socket server: JSON-RPC lines in, one answer after the other out.

`handle(request, peer)` returns a result, a `wire.Failure`, or an awaitable of one, or raises an
`IndexerdError`. Any other exception answers "internal error" and goes to `on_error`.

What surprised us: `asyncio.start_unix_server(path)` unlinks whatever socket lies there, a live
daemon's included, and makes its own with mode 0755; its acceptor spins once no file descriptor is
left. A peer that is gone and one that is only done sending (`nc -N`) look the same, so both get
their answers. Closing while a peer still sends gives it EPIPE before it reads the error.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.process import make_private
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
_BACKLOG = 1024  # the system cuts it to its own figure
_RETRY_SECONDS = 0.5
_CHUNK = 65_536
_ELSEWHERE = "set INDEXERD_SOCKET to a path in a directory of your own"


class UnixServer:
    """Serves one handler on one socket path, for which the caller holds the daemon's lock."""

    def __init__(
        self,
        path: Path,
        handle: Callable[[wire.Request, Peer], Any],
        on_reject: Callable[[str], None],
        on_error: Callable[[str, BaseException], None] = lambda _method, _error: None,
        *,
        limits: wire.Limits = wire.LIMITS,
    ) -> None:
        self.path = path
        self.handle = handle
        self.limits = limits
        self.reject = on_reject
        self.on_error = on_error
        self.closing = False
        self.peers: dict[Peer, asyncio.Task[None]] = {}
        self._sock: socket.socket | None = None
        self._file: os.stat_result | None = None  # of the socket's file, as we made it

    async def start(self) -> None:
        """Listen, and answer from now on. Errors as `_listen` raises them."""
        self._sock, self._file = _listen(self.path)
        self._watch()

    async def check(self) -> None:
        """Make the socket again if its file is gone. Errors as `start`."""
        if not self._in_place():
            self._stop_listening()
            await self.start()

    async def close(self) -> None:
        """Stop listening, give requests under way a short time to end, then hang up."""
        self.closing = True
        self._stop_listening()
        for peer, task in self.peers.items():
            if not peer.busy:
                task.cancel()
        for _ in ("until the requests are done", "until it is said that they were cut short"):
            if self.peers:
                await asyncio.wait(self.peers.values(), timeout=self.limits.grace_seconds)
            for task in self.peers.values():
                task.cancel()
        await asyncio.gather(*self.peers.values(), return_exceptions=True)

    def _in_place(self) -> bool:
        with suppress(OSError):
            return self._file is not None and os.path.samestat(self._file, self.path.lstat())
        return False

    def _stop_listening(self) -> None:
        """Remove the file if it is still ours, before another file can get its inode number."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            if self._in_place():
                with suppress(OSError):  # the directory went away, or became read-only
                    self.path.unlink()
            self._sock.close()
        self._sock = self._file = None

    def _watch(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().add_reader(self._sock, self._accept, self._sock)

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no file descriptor is left; the socket stays readable
            asyncio.get_running_loop().remove_reader(listening)
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._watch)
            self.reject("no_files")
            return
        if _peer_uid(sock) != os.geteuid():  # not even root is let in on somebody's sessions
            self.reject("peer")
        elif len(self.peers) >= self.limits.connections:
            self.reject("connections")
        else:
            peer = Peer(self)
            self.peers[peer] = task = asyncio.create_task(peer.run(sock))
            task.add_done_callback(partial(self._ended, peer))
            return
        sock.close()

    def _ended(self, peer: Peer, task: asyncio.Task[None]) -> None:
        self.peers.pop(peer, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_error("connection", error)


class Peer:
    """One connection: requests and answers in order, and events between them."""

    def __init__(self, server: UnixServer) -> None:
        self.on_close: Callable[[], object] = lambda: None  # called at the end
        self.busy = True  # with a request
        self._server = server
        self._limits = server.limits
        self._lag = 0  # events written while much is unsent

    def notify(self, event: Mapping[str, Any]) -> None:
        """Send an event without waiting; a peer that lags too far behind is hung up on."""
        transport = self._writer.transport
        full = transport.get_write_buffer_size() > self._limits.unsent_bytes
        self._lag = self._lag + 1 if full else 0
        if self._lag > self._limits.lag_events and not transport.is_closing():
            self._server.reject("lagging")
            transport.abort()
        if not transport.is_closing():
            self._writer.write(wire.event(event))

    async def run(self, sock: socket.socket) -> None:
        """Answer until the peer has gone, or is given up."""
        self._reader, self._writer = await asyncio.open_unix_connection(
            sock=sock, limit=self._limits.line_bytes
        )
        self._writer.transport.set_write_buffer_limits(high=0)
        try:
            await self._answer_all()
        except asyncio.LimitOverrunError:
            self._server.reject("too_long")
            with suppress(ConnectionError, TimeoutError):
                await self._write(wire.too_long().to_line())
                await self._discard()
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._writer.transport.abort()
            self.on_close()

    async def _answer_all(self) -> None:
        while not self._server.closing and (line := await self._read_line()):
            request = wire.parse(line)
            if isinstance(request, wire.Request):
                await self._write(await self._answer(request))
            else:
                await self._write(request.to_line())
            await asyncio.sleep(0)  # the next line may be here already, and others wait

    async def _read_line(self) -> bytes:
        """The next line, which must not stay half sent; b"" at the end of the connection."""
        self.busy = False
        line = await self._reader.read(1)
        self.busy = True
        if line in {b"", b"\n"}:
            return line
        try:
            async with asyncio.timeout(self._limits.half_line_seconds):
                return line + await self._reader.readuntil()
        except asyncio.IncompleteReadError as end:
            return line + end.partial
        except TimeoutError:
            self._server.reject("half_sent")
            raise

    async def _answer(self, request: wire.Request) -> bytes:
        error: IndexerdError | wire.Fault
        try:
            found = self._server.handle(request, self)
            if isinstance(found, Awaitable):
                found = await found
            if request.is_notification:
                return b""
            if isinstance(found, wire.Failure):
                return found.to_line()
            return wire.result(request.id, found)
        except asyncio.CancelledError:
            error = DaemonDownError("the request was cut short")
        except IndexerdError as bad:
            error = bad
        except Exception as bug:  # noqa: BLE001 - becomes the answer, and is reported
            self._server.on_error(request.method[:_METHOD_SHOWN], bug)
            error = wire.Fault.INTERNAL
        return b"" if request.is_notification else wire.failure(request.id, error)

    async def _write(self, data: bytes) -> None:
        """Write, and wait until the peer has taken it, as long as it takes some."""
        self._writer.write(data)
        del data  # the transport has what is unsent
        unsent: float = math.inf
        while (left := self._writer.transport.get_write_buffer_size()) < unsent:
            unsent = left
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.stall_seconds):
                    return await self._writer.drain()
        self._server.reject("not_reading")
        raise TimeoutError

    async def _discard(self) -> None:
        """Read what the peer still sends, or its pipe breaks before it has read the answer."""
        self._writer.write_eof()
        async with asyncio.timeout(self._limits.half_line_seconds):
            while await self._reader.read(_CHUNK):
                pass


def _peer_uid(sock: socket.socket) -> int | None:
    """The user id of the process that connected; None where the system does not say."""
    with suppress(OSError):
        if sys.platform == "darwin":  # SOL_LOCAL, LOCAL_PEERCRED: struct xucred of <sys/ucred.h>
            version, uid = struct.unpack_from("=II", sock.getsockopt(0, 1, 76))
            return int(uid) if version == 0 else None
        if sys.platform == "linux":
            found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int(struct.unpack("=iII", found)[1])
    return None


def _listen(path: Path) -> tuple[socket.socket, os.stat_result]:
    """A listening socket and its file.

    UsageError: the path is too long. AccessError: the directory is not private, something that
    is no socket lies there, or the system refuses. AlreadyRunningError: somebody answers there.
    """
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_MAX:
        raise UsageError(
            f"the socket's path has {size} bytes, the system takes {SOCKET_PATH_MAX}: {path}",
            hint="set INDEXERD_SOCKET to a shorter path",
        )
    with ExitStack() as undo:
        sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            make_private(path.parent)
            _make_room(path)
            sock.bind(os.fspath(path))
            path.chmod(0o600)
            sock.listen(_BACKLOG)
            found = path.lstat()
        except OSError as bad:
            why = f"cannot make the socket {path}: {bad.strerror}"
            raise AccessError(why, hint=_ELSEWHERE) from bad
        sock.settimeout(0)
        undo.pop_all()
        return sock, found


def _make_room(path: Path) -> None:
    """Remove a socket that nobody listens on; refuse all else, and a directory open to others."""
    if path.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AccessError(f"{path.parent} can be written to by others", hint=_ELSEWHERE)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise AccessError(f"{path} is not a socket, and was left alone", hint=_ELSEWHERE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # a full backlog: somebody listens, and is busy
    raise AlreadyRunningError(f"somebody answers on {path}", hint="`indexerd status` shows who")

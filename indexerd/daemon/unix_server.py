"""The Unix-socket server: JSON-RPC lines in, answers in the same order out.

`handle(request, peer)` returns a result, a `wire.Failure` or an awaitable of either, or raises an
`IndexerdError`. Any other exception is answered with "internal error" and passed to `on_error`.

Pitfalls: `asyncio.start_unix_server(path)` unlinks any existing socket, even a live daemon's, and
makes its own with mode 0755, so the socket is made here. A peer that is gone looks like one that
has only finished sending (`nc -N`), so both get their answers. If we hang up while a peer is still
sending, it gets EPIPE before it reads the error.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexerd.daemon.process import make_private
from indexerd.errors import AccessError, AlreadyRunningError, DaemonDownError, IndexerdError
from indexerd.protocol import wire

_METHOD_SHOWN = 64  # characters of a method's name that go into reports
_BACKLOG = 1024  # the system may cut this
_CHUNK = 65_536
_ELSEWHERE = "set INDEXERD_SOCKET to a short path in a directory of your own"


@dataclass(eq=False)
class UnixServer:
    """Serves one handler on one socket path; the caller holds the daemon's lock."""

    path: Path
    handle: Callable[[wire.Request, Peer], Any]
    reject: Callable[[str], None]
    on_error: Callable[[str, BaseException], None] = lambda _method, _error: None
    limits: wire.Limits = wire.LIMITS
    closing: bool = False
    peers: dict[Peer, asyncio.Task[Any] | None] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _file: os.stat_result | None = None  # of the socket file that we made

    async def start(self) -> None:
        """Listen and answer; AccessError or AlreadyRunningError if it cannot."""
        sock, self._file = _bind(self.path)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=sock, limit=self.limits.line_bytes, backlog=_BACKLOG
        )

    async def check(self) -> None:
        """Make the socket again if its file is gone."""
        if not self._in_place():
            self._stop_listening()
            await self.start()

    async def close(self) -> None:
        """Stop listening, let current requests end within the grace time, then hang up."""
        self.closing = True
        self._stop_listening()
        tasks = {task: peer for peer, task in self.peers.items() if task is not None}
        for task, peer in tasks.items():
            if not peer.busy:
                task.cancel()
        for _ in range(2):  # let requests finish, then cancel them and let them say so
            if tasks:
                await asyncio.wait(tasks, timeout=self.limits.grace_seconds)
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _in_place(self) -> bool:
        with suppress(OSError):
            return self._file is not None and os.path.samestat(self._file, self.path.lstat())
        return False

    def _stop_listening(self) -> None:
        """Remove our file, before another file can get its inode number."""
        if self._in_place():
            with suppress(OSError):  # the directory is read-only
                self.path.unlink()
        if self._server is not None:
            self._server.close()
        self._server = self._file = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self, reader, writer)
        if len(self.peers) >= self.limits.connections:
            self.reject("connections")
        else:
            self.peers[peer] = asyncio.current_task()
            try:
                await peer.run()
            except asyncio.CancelledError:  # by `close`; asyncio itself would report it
                pass
            except Exception as bug:  # noqa: BLE001 - it is reported
                self.on_error("connection", bug)
            finally:
                del self.peers[peer]
        writer.transport.abort()


@dataclass(eq=False)
class Peer:
    """One connection: requests and their answers in order, with events in between."""

    server: UnixServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_close: Callable[[], object] = lambda: None
    busy: bool = True  # with a request

    def notify(self, event: Mapping[str, Any]) -> None:
        """Send an event without waiting; disconnect a peer that lags too far behind."""
        transport = self.writer.transport
        if transport.get_write_buffer_size() > self.server.limits.unsent_bytes:
            self.server.reject("lagging")
            transport.abort()
        elif not transport.is_closing():
            self.writer.write(wire.event(event))

    async def run(self) -> None:
        """Answer until the peer is gone or breaks a limit."""
        self.writer.transport.set_write_buffer_limits(high=0)
        try:
            while not self.server.closing and (line := await self._read_line()):
                await self._write(await self._answer(wire.parse(line)))
                await asyncio.sleep(0)  # the next line may already be here: let other tasks run
        except asyncio.LimitOverrunError:
            self.server.reject("too_long")
            with suppress(ConnectionError, TimeoutError):
                await self._write(wire.too_long().to_line())
                self.writer.write_eof()
                async with asyncio.timeout(self.server.limits.half_line_seconds):
                    while await self.reader.read(_CHUNK):  # else it gets EPIPE, not our answer
                        pass
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self.writer.transport.abort()
            self.on_close()

    async def _read_line(self) -> bytes:
        """Read a line, which must not stay half sent; b"" at the end of the connection."""
        self.busy = False
        line = await self.reader.read(1)
        self.busy = True
        if line in {b"", b"\n"}:
            return line
        try:
            async with asyncio.timeout(self.server.limits.half_line_seconds):
                return line + await self.reader.readuntil()
        except asyncio.IncompleteReadError as end:
            return line + end.partial
        except TimeoutError:
            self.server.reject("half_sent")
            raise

    async def _answer(self, request: wire.Request | wire.Failure) -> bytes:
        if isinstance(request, wire.Failure):
            return request.to_line()
        try:
            result = self.server.handle(request, self)
            if isinstance(result, Awaitable):
                result = await result
            failed = isinstance(result, wire.Failure)
            line = result.to_line() if failed else wire.result(request.id, result)
        except asyncio.CancelledError:
            line = wire.failure(request.id, DaemonDownError("the daemon is stopping"))
        except IndexerdError as bad:
            line = wire.failure(request.id, bad)
        except Exception as bug:  # noqa: BLE001 - becomes the answer, and is reported
            self.server.on_error(request.method[:_METHOD_SHOWN], bug)
            internal = (wire.Fault.INTERNAL, "internal error", "see `indexerd logs`")
            line = wire.Failure(request.id, *internal).to_line()
        return b"" if request.is_notification else line

    async def _write(self, data: bytes) -> None:
        """Write, and wait until the peer has read it."""
        self.writer.write(data)
        del data  # the transport has what is unsent
        try:
            async with asyncio.timeout(self.server.limits.stall_seconds):
                await self.writer.drain()
        except TimeoutError:
            self.server.reject("not_reading")
            raise


def _bind(path: Path) -> tuple[socket.socket, os.stat_result]:
    """Return a bound socket and the status of its file.

    AccessError: the directory is not private, the path is in use, or the system refuses.
    AlreadyRunningError: another daemon answers there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        make_private(path.parent)
        if path.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise AccessError(f"other users can write to {path.parent}", hint=_ELSEWHERE)
        _remove_unused(path)
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        return sock, path.lstat()
    except (OSError, IndexerdError) as bad:
        sock.close()
        if isinstance(bad, IndexerdError):
            raise
        # If the path is too long, the error has no errno.
        why = f"cannot create the socket {path}: {bad.strerror or bad}"
        raise AccessError(why, hint=_ELSEWHERE) from bad


def _remove_unused(path: Path) -> None:
    """Remove a socket that no process listens on; refuse anything else."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise AccessError(f"{path} is not a socket, and was not removed", hint=_ELSEWHERE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # a full backlog: a process listens, and is busy
    problem = f"another daemon answers on {path}"
    raise AlreadyRunningError(problem, hint="`indexerd status` shows which")

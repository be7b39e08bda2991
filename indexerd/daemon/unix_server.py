"""The Unix-socket server: JSON-RPC lines in, answers out in order, and no peer can block it.

`handle(request, peer)` answers at once with a value, or returns an awaitable; it may return a
`wire.Failure` or raise an error of the tree. Requests of one connection start in order and may
overlap, up to a bound. What is turned away is counted in `rejected` by one word, and told to
`on_reject`. Any other exception answers "internal error" and goes to `on_error`. Not thread-safe.

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
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.process import make_private, peer_uid
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
        self.rejected: Counter[str] = Counter()
        self._on_reject = on_reject
        self._on_error = on_error
        self._open: dict[Peer, asyncio.Task[None]] = {}
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
        """Say whether the socket file was in place; where not, it is made anew."""
        if self._in_place():
            return True
        self._stop_listening()
        await self.start()
        return False

    async def close(self) -> None:
        """Stop listening, let requests under way end for a short time, then hang up."""
        self._stop_listening()
        for peer in self._open:
            peer.stop()
        for end in (Peer.cut_short, Peer.hang_up):
            if self._open:
                await asyncio.wait(self._open.values(), timeout=self.limits.grace_seconds)
            for peer in self._open:
                end(peer)
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    def reject(self, why: str) -> None:
        """Count and report what was turned away."""
        self.rejected[why] += 1
        self._on_reject(why)

    def failed(self, method: str, error: BaseException) -> None:
        """Report an error that no handler should let through."""
        self.reject("internal")
        self._on_error(method, error)

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
        if peer_uid(sock) != os.geteuid():
            self.reject("peer")
        elif len(self._open) >= self.limits.connections:
            self.reject("connections")
        else:
            peer = Peer(self)
            self._open[peer] = task = asyncio.create_task(peer.run(sock))
            task.add_done_callback(partial(self._ended, peer))
            return
        sock.close()

    def _ended(self, peer: Peer, task: asyncio.Task[None]) -> None:
        self._open.pop(peer, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed("connection", error)


class Peer:
    """The other end of a connection: its requests, its answers in their order, its events."""

    def __init__(self, server: UnixServer) -> None:
        self.on_close: Callable[[], object] = lambda: None  # called at the end
        self._server = server
        self._limits = server.limits
        self._answers: asyncio.Queue[bytes | asyncio.Future[bytes] | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(self._limits.in_flight)
        self._requests: set[asyncio.Task[bytes]] = set()
        self._junk = self._lag = 0
        self._begun = 0.0  # when half a line came, by the loop's clock
        self._still_sends = False  # what nobody takes any more; it is to read why
        self._receiving: asyncio.Task[None] | None = None

    def notify(self, event: Mapping[str, Any]) -> bool:
        """Send an event, never waiting; False once the peer is gone, or lags too far behind."""
        if self._writer.is_closing():
            return False
        full = self._writer.transport.get_write_buffer_size() > self._limits.unsent_bytes
        self._lag = self._lag + 1 if full else 0
        if self._lag > self._limits.lag_events:
            self._give_up("lagging")
            return False
        self._writer.write(wire.event(event))
        return True

    def stop(self) -> None:
        """Take no more requests; close when those under way are answered."""
        if self._receiving is not None:
            self._receiving.cancel()
        self._answers.put_nowait(None)

    def hang_up(self) -> None:
        """Close at once."""
        self._writer.transport.abort()

    def cut_short(self) -> None:
        """Cancel the requests under way; each is answered with an error."""
        for task in self._requests:
            task.cancel()

    async def run(self, sock: socket.socket) -> None:
        """Answer until the peer has gone, or is given up."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        self._writer.transport.set_write_buffer_limits(high=self._limits.unsent_bytes)
        try:
            async with asyncio.TaskGroup() as group:
                self._receiving = group.create_task(self._receive())
                group.create_task(self._send())
        except* (ConnectionError, TimeoutError):
            pass
        finally:
            self.hang_up()
            self.cut_short()
            self.on_close()

    # -- requests ------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Take lines up until the last."""
        lines = wire.Lines(self._limits.line_bytes)
        while await self._take_all(lines) and (data := await self._read(lines)):
            lines.feed(data)
        if not self._still_sends and (rest := lines.rest()):
            await self._take(rest)
        self._answers.put_nowait(None)

    async def _take_all(self, lines: wire.Lines) -> bool:
        """Take the lines that are whole; whether more may follow."""
        taken = 0
        while (line := lines.take()) is not None:
            self._begun, taken = 0.0, taken + 1
            await self._take(line)
            if self._junk >= self._limits.junk_lines:
                return self._refuse("junk")
            if taken % self._limits.lines_a_turn == 0:
                await asyncio.sleep(0)
        if lines.too_long:
            self._answers.put_nowait(wire.too_long().to_line())
            return self._refuse("too_long")
        return True

    async def _read(self, lines: wire.Lines) -> bytes:
        """Wait for bytes, but not for ever in the middle of a line."""
        now = asyncio.get_running_loop().time()
        self._begun = (self._begun or now) if lines.unfinished else 0.0
        deadline = self._begun + self._limits.half_line_seconds if self._begun else None
        try:
            async with asyncio.timeout_at(deadline):
                return await self._reader.read(_CHUNK)
        except TimeoutError:
            self._give_up("half_sent")
            raise

    async def _take(self, line: bytes) -> None:
        """Begin to answer a line, once there is room for one more."""
        await self._room.acquire()
        request = wire.parse(line)
        if isinstance(request, wire.Failure):
            self._answers.put_nowait(request.to_line())
            self._junk = self._junk + 1 if request.fault is wire.Fault.PARSE else 0
            return
        self._junk = 0
        try:
            answer = self._server.handle(request, self)
        except Exception as error:  # noqa: BLE001 - becomes the answer, and is reported
            self._answers.put_nowait(self._error(request, error))
            return
        if isinstance(answer, Awaitable):
            task = asyncio.create_task(self._answer_later(request, answer))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            self._answers.put_nowait(task)
        else:
            self._answers.put_nowait(self._encoded(request, answer))

    async def _answer_later(self, request: wire.Request, answer: Awaitable[Any]) -> bytes:
        try:
            return self._encoded(request, await answer)
        except asyncio.CancelledError:
            return self._error(request, DaemonDownError("the request was cut short"))
        except Exception as error:  # noqa: BLE001 - becomes the answer, and is reported
            return self._error(request, error)

    def _refuse(self, why: str) -> bool:
        self._server.reject(why)
        self._still_sends = True
        return False

    # -- answers -------------------------------------------------------------------------

    async def _send(self) -> None:
        """Write the answers in the order of their requests, and hang up after the last."""
        while (answer := await self._answers.get()) is not None:
            self._writer.write(answer if isinstance(answer, bytes) else await answer)
            await self._read_by_peer(self._writer.drain)
            self._room.release()
        if self._still_sends:
            self._writer.write_eof()
            async with asyncio.timeout(self._limits.half_line_seconds):
                while await self._reader.read(_CHUNK):
                    pass
        self._writer.close()
        await self._read_by_peer(self._writer.wait_closed)

    async def _read_by_peer(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for the peer to take bytes, as long as it takes some."""
        transport = self._writer.transport
        while True:
            unsent = transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._limits.stall_seconds):
                    return await wait()
            except TimeoutError:
                if transport.get_write_buffer_size() >= unsent:
                    self._give_up("not_reading")
                    raise

    def _give_up(self, why: str) -> None:
        self._server.reject(why)
        self.hang_up()

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
        make_private(path.parent)
    except AccessError as bad:
        raise AccessError(f"cannot make the socket {path}: {bad}", hint=_ELSEWHERE) from None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _check_directory(path.parent)
        _make_way(path)
        with suppress(OSError):  # macOS refuses it for sockets; the private directory covers that
            os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
        return sock, path.lstat()
    except OSError as refused:
        sock.close()
        message = f"cannot make the socket {path}: {refused.strerror}"
        raise AccessError(message, hint=_ELSEWHERE) from refused
    except BaseException:
        sock.close()
        raise


def _check_directory(directory: Path) -> None:
    """Refuse a directory of another user's, or one that others may write to."""
    held = directory.stat()
    if held.st_uid != os.geteuid():
        raise AccessError(f"{directory} belongs to another user", hint=_ELSEWHERE)
    if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        hint = f"chmod 700 it, or {_ELSEWHERE}"
        raise AccessError(f"{directory} can be written to by others", hint=hint)


def _make_way(path: Path) -> None:
    """Remove a socket that nobody listens on; refuse everything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        hint = "move it away, or set INDEXERD_SOCKET"
        raise AccessError(f"{path} is not a socket, and was left alone", hint=hint)
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

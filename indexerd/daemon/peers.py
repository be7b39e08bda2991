"""The Unix socket as a device: made privately, taken from nobody, and every peer in bounds.

In: a path, for which the caller already holds the single-instance lock. Out: `Listener`, whose
file was 0600 from its first moment, in a directory that nobody else can write to, and which
lets in our own user only; and `Channel`, one connection cut into lines, on which no peer can
take more memory or patience than `wire.Limits` says, whatever it sends or does not read.

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from indexerd.errors import AccessError, AlreadyRunningError, UsageError
from indexerd.paths import SOCKET_PATH_MAX
from indexerd.protocol import wire

_PROBE_SECONDS = 1.0
_BACKLOG = 1024  # the system cuts it to its own figure
_ACCEPT_BATCH = 64  # then the loop serves the others
_RETRY_SECONDS = 0.5
_ELSEWHERE = "set INDEXERD_SOCKET to a path in a directory of your own"


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


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket and the identity of the file that leads to it."""

    sock: socket.socket
    path: Path
    device: int
    inode: int

    def in_place(self) -> bool:
        """Say whether the path still leads to this socket (S6)."""
        with suppress(OSError):
            found = self.path.lstat()
            return (found.st_dev, found.st_ino) == (self.device, self.inode)
        return False

    def close(self) -> None:
        """Remove the file if it is still ours, then stop listening.

        In this order: an inode number cannot be given away while its socket is open.
        """
        if self.in_place():
            with suppress(OSError):  # the directory went away, or became read-only: nothing to do
                self.path.unlink()
        self.sock.close()


def bind(path: Path, backlog: int) -> Bound:
    """Listen at `path`.

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
        return _listen(path, backlog)
    except OSError as refused:
        message = f"cannot make the socket {path}: {refused.strerror}"
        raise AccessError(message, hint=_ELSEWHERE) from refused


class Listener:
    """Accepts at a path, on the running loop: each connection of our own user, and nobody else's.

    `admit` gets the connected sockets; `refuse` hears "peer" (another user: closed unanswered,
    S3) and "no_files" (no descriptor left: those who knock wait, and the loop does not spin, S8).
    The same user means the same uid: not even root is let in on somebody's sessions this way.
    """

    def __init__(
        self, path: Path, admit: Callable[[socket.socket], None], refuse: Callable[[str], None]
    ) -> None:
        self.path = path
        self._admit = admit
        self._refuse = refuse
        self._bound: Bound | None = None
        self._retry: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Listen from now on. Errors as `bind` raises them."""
        self._bound = bind(self.path, _BACKLOG)
        self._watch()

    def in_place(self) -> bool:
        """Say whether who connects to the path reaches us."""
        return self._bound is not None and self._bound.in_place()

    def close(self) -> None:
        """Let in who has knocked, and stop listening."""
        self._accept()
        if self._bound is not None:
            asyncio.get_running_loop().remove_reader(self._bound.sock)
            self._bound.close()
            self._bound = None

    def _watch(self) -> None:
        self._retry = None
        if self._bound is not None:
            asyncio.get_running_loop().add_reader(self._bound.sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            if self._bound is None:
                return
            try:
                sock, _address = self._bound.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # EMFILE and its kin
                self._pause()
                return
            sock.settimeout(0)
            if peer_uid(sock) == os.geteuid():
                self._admit(sock)
            else:
                sock.close()
                self._refuse("peer")

    def _pause(self) -> None:
        """Look away for a moment: a socket that cannot be accepted from stays readable."""
        if self._bound is not None and self._retry is None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._bound.sock)
            self._retry = loop.call_later(_RETRY_SECONDS, self._watch)
            self._refuse("no_files")


class Channel(asyncio.Protocol):
    """One connection as lines. What a line means, and its answers, are the subclass's business.

    Half a line is waited for, as is a peer that does not read, but not for ever; a line that is
    too long is the last.
    """

    def __init__(self, limits: wire.Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.limits = limits
        self.loop = loop
        self.full = False  # more than unsent_bytes wait for the peer to read
        self.last = False  # no further line is taken
        self.transport: asyncio.Transport
        self._lines = wire.Lines(limits.line_bytes)
        self._patience: asyncio.TimerHandle | None = None  # with the rest of a line
        self._stall: asyncio.TimerHandle | None = None  # with a peer that does not read
        self._again: asyncio.Handle | None = None
        self._eof = False

    def take(self, line: bytes) -> None:
        """Take one line up."""
        raise NotImplementedError

    def answers(self) -> bytes:
        """Hand out the answers whose turn it is, once."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Say whether lines must wait."""
        raise NotImplementedError

    def settled(self) -> bool:
        """Say whether every line taken is answered."""
        raise NotImplementedError

    def refused(self, why: str) -> None:
        """Hear why no further line is taken; "too_long" deserves an answer."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self.limits.unsent_bytes)

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and the lines among them."""
        if not self.last:
            self._lines.feed(data)
            self.pump()

    def eof_received(self) -> bool:
        """The peer sends no more; what it asked is answered first."""
        self._eof = True
        self.pump()
        return True

    def pause_writing(self) -> None:
        """The peer does not read: give it some time."""
        self.full = True
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """The peer has caught up; not in this call, in which asyncio cannot bear a `close`."""
        self.full = False
        if self._stall is not None:
            self._stall.cancel()
        self._soon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Clean up."""
        for timer in (self._again, self._patience, self._stall):
            if timer is not None:
                timer.cancel()
        self._lines.clear()

    def pump(self) -> None:
        """Take lines and send answers, as many as one turn and the peer's appetite allow."""
        if self.transport.is_closing():
            return
        if self._again is not None:
            self._again.cancel()
            self._again = None
        sent = []
        for _ in range(self.limits.lines_a_turn):
            sent.append(self.answers())
            if self._held_up() or (line := self._next_line()) is None:
                break
            self.take(line)
        sent.append(self.answers())
        if answers := b"".join(sent):
            self.transport.write(answers)
        self._regulate()

    def take_no_more(self, why: str) -> None:
        """Let the answers under way be the last."""
        self.refused(why)
        self.last = True
        self._lines.clear()
        self._end_patience()

    def give_up(self, why: str) -> None:
        """Close at once."""
        self.refused(why)
        self.transport.abort()

    def _soon(self) -> None:
        if self._again is None:
            self._again = self.loop.call_soon(self.pump)

    def _held_up(self) -> bool:
        return self.last or self.full or self.busy()

    def _next_line(self) -> bytes | None:
        line = self._lines.take()
        if line is not None:
            self._end_patience()
        elif self._lines.too_long:
            self.take_no_more("too_long")
        elif self._eof:
            self.last = True
            line = self._lines.rest() or None
        return line

    def _regulate(self) -> None:
        """Decide whether to read on, and for what to wait."""
        if self.last:
            if self.settled():
                self._finish()
            return
        waiting = self._lines.ready or self._lines.too_long
        if (waiting or self._eof) and not self._held_up():
            self._soon()
        if self._eof:
            return
        if waiting:
            self.transport.pause_reading()
            return
        self.transport.resume_reading()
        if self._lines.unfinished and self._patience is None:
            wait = self.limits.half_line_seconds
            self._patience = self.loop.call_later(wait, self.give_up, "half_sent")

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _finish(self) -> None:
        """Everything is answered: close; towards a peer that still sends, one half first."""
        if self._eof:
            self.transport.close()
            self._wait_for_reader()
        elif self._patience is None:
            self.transport.write_eof()
            self.transport.resume_reading()
            wait = self.limits.half_line_seconds
            self._patience = self.loop.call_later(wait, self.transport.abort)

    def _wait_for_reader(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self._stalled, unsent)

    def _stalled(self, unsent: int) -> None:
        if self.transport.get_write_buffer_size() < unsent:
            self._wait_for_reader()
        else:
            self.give_up("not_reading")


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


def _listen(path: Path, backlog: int) -> Bound:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(OSError):  # macOS refuses it for sockets; the private directory covers that
            os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        sock.listen(backlog)
        sock.settimeout(0)
        made = path.lstat()
    except BaseException:
        sock.close()
        raise
    return Bound(sock, path, made.st_dev, made.st_ino)

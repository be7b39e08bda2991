"""Claims on directories: one daemon writes in each, whatever state directory it was given."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import sys
from pathlib import Path

from indexerd.daemon.peers import peer_uid
from indexerd.disk import make_directory
from indexerd.errors import AlreadyRunningError

CLAIM = ".daemon.lock"


def hold_directory(directory: Path) -> int | None:
    """Claim a directory of meta files for this daemon (S0.41): a second one would pay twice.

    Nothing of an agent's own is locked, nothing is left in the directory, and writers still take
    turns on it: the claim is a socket of a name that only lives in the kernel (Linux), or a file
    in it (elsewhere). The descriptor holds it until it is closed. None where it cannot be made;
    AlreadyRunningError where another daemon of ours has it.
    """
    real = os.path.realpath(directory)
    try:
        fd = _claim_name(real) if sys.platform == "linux" else _claim_file(Path(real) / CLAIM)
    except OSError:
        return None
    if fd is None:
        raise AlreadyRunningError(
            f"another daemon, with another state directory, writes to {directory}",
            hint="run one daemon for each directory of sessions",
        )
    return fd


def _claim_name(real: str) -> int | None:
    """Listen under a name made of a path and our user; None where a process of ours does."""
    whose = f"{os.getuid()}:{real}".encode("utf-8", "surrogateescape")
    name = b"\0indexerd/" + hashlib.blake2b(whose, digest_size=16).hexdigest().encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(name)
            held.listen(1)
        except OSError as bad:
            if bad.errno != errno.EADDRINUSE:
                raise
            held.connect(name)  # one that does not listen is no daemon
            owner = peer_uid(held)
            if owner == os.getuid():
                return None
            raise  # somebody else took our name: that must not keep us from working
        return held.detach()


def _claim_file(path: Path) -> int | None:
    """Lock a file, made for that; None where another process has it."""
    make_directory(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    fd = os.open(path, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as bad:
        os.close(fd)
        if isinstance(bad, BlockingIOError):
            return None
        raise
    return fd

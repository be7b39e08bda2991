"""What the web view keeps in the state directory: its lasting key, and where it listens.

`web.key` is 32 random bytes that sign cookies, so that they outlive a start. `web.json` says where
the server that runs listens, and holds the key of its start, by which `indexerd web` makes a
one-time token for it: `{"url", "pid", "boot"}`. Both are 0600. Neither is believed where somebody
else could have read or written it. A server that was killed leaves its file: whoever reads it asks
the server for a proof first.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from indexerd.core.web_token import KEY_BYTES
from indexerd.errors import AccessError, IndexerdError, WriteError
from indexerd.io.lock import make_directory

KEY_NAME = "web.key"
PLACE_NAME = "web.json"
URL = re.compile(r"http://(?:127(?:\.[0-9]{1,3}){3}|\[::1\]):[0-9]{1,5}")

_SIZE_MAX = 4096  # bytes
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs, or ran: its address, and the key of its start."""

    url: str
    pid: int
    boot: bytes = field(repr=False)


def lasting_key(state_dir: Path) -> bytes:
    """The key that signs cookies, made where there is none yet.

    AccessError where it cannot be read, or others could have read it; WriteError where none can
    be made.
    """
    path = state_dir / KEY_NAME
    held = _own_bytes(path)
    if held is None:
        _put(path, secrets.token_bytes(KEY_BYTES), over=False)
        held = _own_bytes(path)  # another one may have been quicker
    if held is None or len(held) != KEY_BYTES:
        raise AccessError(f"{path} is no key of ours", hint="remove it; browsers log in anew")
    return held


def announce(state_dir: Path, running: Running) -> None:
    """Say where the server listens, in the place of what an earlier one said.

    AccessError or WriteError where that cannot be written.
    """
    said = {"url": running.url, "pid": running.pid, "boot": running.boot.hex()}
    _put(state_dir / PLACE_NAME, json.dumps(said).encode(), over=True)


def withdraw(state_dir: Path, running: Running) -> None:
    """Take back what `announce` said, unless another server has said so since."""
    with suppress(OSError, IndexerdError):  # at the end: what stays is found out as stale
        if announced(state_dir) == running:
            (state_dir / PLACE_NAME).unlink()


def announced(state_dir: Path) -> Running | None:
    """What was said last; None where nothing was, or nothing that can be used.

    AccessError where it cannot be read, or others could have.
    """
    held = _own_bytes(state_dir / PLACE_NAME)
    if held is None:
        return None
    try:
        told = json.loads(held)
        url, pid, boot = told["url"], told["pid"], bytes.fromhex(told["boot"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(url, str) or not URL.fullmatch(url) or not isinstance(pid, int):
        return None
    return Running(url, pid, boot) if len(boot) == KEY_BYTES else None


def _own_bytes(path: Path) -> bytes | None:
    """What a small file holds that is ours alone; None where there is none."""
    try:
        fd = os.open(path, _READ)
    except FileNotFoundError:
        return None
    except OSError as bad:
        raise AccessError(f"{path} cannot be read: {bad.strerror}") from None
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & _OTHERS:
            raise AccessError(f"{path} is not ours alone", hint="remove it; it is made anew")
        return os.read(fd, _SIZE_MAX)
    finally:
        os.close(fd)


def _put(path: Path, held: bytes, *, over: bool) -> None:
    """Write a file, whole under its name or not at all; not `over` one that has come to be."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        make_directory(path.parent)
        try:
            with open(os.open(new, _CREATE, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(held)
                file.flush()
                os.fsync(file.fileno())
            if over:
                new.replace(path)
            else:
                with suppress(FileExistsError):
                    os.link(new, path)
        finally:
            new.unlink(missing_ok=True)
    except PermissionError as bad:
        raise AccessError(f"cannot write {path}: {bad.strerror}") from None
    except OSError as bad:
        raise WriteError(f"cannot write {path}: {bad.strerror}") from None

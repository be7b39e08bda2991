"""What the web view keeps in the state directory: where it listens, and a page that leads there.

`web-PID.json` says where the server of that process listens, and holds the key of its start, by
which `indexerd web` makes a one-time token for it: `{"url", "pid", "boot"}`. Each server has a file
of its own, so that of two the one that still runs is found. One that was killed leaves its file:
whoever reads it asks the server for a proof first, and the next server removes it.

`web-open.html` leads a browser to an address with its token, which so stands in no process's
arguments, where every user of the machine could read it. Whoever is let in has it removed.

All are 0600. None is believed where somebody else could have read or written it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from indexerd.errors import AccessError, IndexerdError, WriteError
from indexerd.store.lock import make_directory
from indexerd.web.token import KEY_BYTES

PAGE_NAME = "web-open.html"
RUNNING_MAX = 8  # servers that are asked for a proof
URL = re.compile(r"http://(?:127(?:\.[0-9]{1,3}){3}|\[::1\]):[0-9]{1,5}")

_PLACE = re.compile(r"web-([1-9][0-9]{0,9})\.json")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>indexerd</title>
</head>
<body><p><a href="{0}">Open the web view</a></p></body>
</html>
"""
_SIZE_MAX = 64 * 1024  # bytes
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs, or ran: its address, and the key of its start."""

    url: str
    pid: int
    boot: bytes = field(repr=False)


def announce(state_dir: Path, running: Running) -> None:
    """Say where the server listens, beside what others say; forget those that have ended.

    AccessError or WriteError where that cannot be written.
    """
    for path, pid in _places(state_dir):
        if pid != running.pid and not _alive(pid):
            with suppress(OSError):
                path.unlink()
    said = {"url": running.url, "pid": running.pid, "boot": running.boot.hex()}
    _put(_place(state_dir, running.pid), json.dumps(said).encode())


def withdraw(state_dir: Path, running: Running) -> None:
    """Take back what `announce` said."""
    path = _place(state_dir, running.pid)
    with suppress(OSError, IndexerdError):  # at the end: what stays is found out as stale
        if _read(path) == running:
            path.unlink()


def announced(state_dir: Path) -> list[Running]:
    """What servers said that may still run, the latest first, at most `RUNNING_MAX`.

    What cannot be used is left out: above all what others could have read or written.
    """
    found: list[Running] = []
    for path, pid in _places(state_dir):
        with suppress(AccessError):
            told = _read(path) if _alive(pid) else None
            if told is not None and told.pid == pid:
                found.append(told)
    return found[:RUNNING_MAX]


def put_page(state_dir: Path, address: str) -> Path:
    """Write the page that leads a browser to an address, and say where it is.

    AccessError or WriteError where it cannot be written.
    """
    path = state_dir / PAGE_NAME
    _put(path, _PAGE.format(escape(address)).encode("utf-8", "replace"))
    return path


def drop_page(state_dir: Path, words: str) -> None:
    """Remove the page, if these words are in its address: another server's is left alone."""
    path = state_dir / PAGE_NAME
    with suppress(OSError, IndexerdError):
        held = _own_bytes(path)
        if held is not None and escape(words).encode("utf-8", "replace") in held:
            path.unlink()


def _place(state_dir: Path, pid: int) -> Path:
    return state_dir / f"web-{pid}.json"


def _places(state_dir: Path) -> list[tuple[Path, int]]:
    """The files of servers and the processes that they name, the latest first."""
    found: list[tuple[int, Path, int]] = []
    with suppress(OSError), os.scandir(state_dir) as entries:
        for one in entries:
            named = _PLACE.fullmatch(one.name)
            if named is not None:
                with suppress(OSError):
                    changed = one.stat(follow_symlinks=False).st_mtime_ns
                    found.append((changed, Path(one.path), int(named[1])))
    return [(path, pid) for _, path, pid in sorted(found, reverse=True)]


def _alive(pid: int) -> bool:
    """Whether there is such a process; it may be another one than is meant."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):  # gone, or another user's, and so not the one that is meant
        return False
    return True


def _read(path: Path) -> Running | None:
    """What a file says; None for nothing that can be used. AccessError as for `_own_bytes`."""
    held = _own_bytes(path)
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


def _put(path: Path, held: bytes) -> None:
    """Write a file, whole under its name or not at all."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        make_directory(path.parent)
        try:
            with open(os.open(new, _CREATE, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(held)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except PermissionError as bad:
        raise AccessError(f"cannot write {path}: {bad.strerror}") from None
    except OSError as bad:
        raise WriteError(f"cannot write {path}: {bad.strerror}") from None

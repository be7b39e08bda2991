"""Session files at which the process ended are set aside until they change (V7).

A file can end the process in ways that nothing in it can catch: memory runs out, the system's
watchdog loses patience, a library crashes. The next start would read that file again, and end
again. So its path is noted while it is read, and a start that finds a path noted counts one death
for it. The note is a write into a small open file, without a sync: it outlives the process, which
is enough. The counts are in the store. Used by one thread; where nothing can be noted, reading
goes on all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from indexerd.errors import StateError
from indexerd.sources.cursor import Look
from indexerd.store.store import StateStore

STARTS = 3  # that ended while a file was read, until it is left alone
TOPIC = "quarantine"
WHY = f"set aside until it changes: the program ended {STARTS} times while it was read"
_PATH_MAX = 4096  # bytes; a longer path is not noted


class _Suspect(msgspec.Struct, array_like=True):
    """A file that was being read when the process ended."""

    deaths: int
    version: str  # of the program that ended
    seen: tuple[int, int, int, int] | None = None  # its stat when it was set aside


class Quarantine:
    """The files that ended the process, and the one that may."""

    def __init__(self, path: Path, store: StateStore, version: str) -> None:
        self._store = store
        self._version = version
        self._suspects: dict[str, _Suspect] = {}
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with suppress(StateError):
            for key, one in store.notes(TOPIC, msgspec.msgpack.Decoder(_Suspect).decode).items():
                self._suspects[os.fsdecode(bytes.fromhex(key))] = one
        noted = self._note(None)
        for name, one in list(self._suspects.items()):
            if one.version != version or (name != noted and one.deaths < STARTS):
                self._forget(name)  # it did not end us this time
        if noted:
            suspect = self._suspects.setdefault(noted, _Suspect(0, version))
            suspect.deaths += 1
            suspect.seen = None  # it had changed, or it would not have been read
            self._keep(noted)

    def _note(self, path: str | None) -> str:
        """Note what is read from now on; returns what was noted before."""
        name = os.fsencode(path) if path else b""
        held = b""
        if self._fd >= 0:
            with suppress(OSError):
                held = b"" if path else os.pread(self._fd, _PATH_MAX, 0).partition(b"\0")[0]
                os.pwrite(self._fd, (name + b"\0")[:_PATH_MAX], 0)
        return os.fsdecode(held)

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Around each step of reading a file."""
        self._note(path)
        try:
            yield
        finally:
            if self._fd >= 0:
                with suppress(OSError):
                    os.pwrite(self._fd, b"\0", 0)

    def cleared(self, path: str) -> None:
        """A file was read to its end."""
        if path in self._suspects:
            self._forget(path)

    def bars(self, path: str, look: Callable[[], Look | None]) -> bool:
        """Whether a file is set aside as it is now."""
        suspect = self._suspects.get(path)
        seen = look() if suspect is not None and suspect.deaths >= STARTS else None
        if suspect is None or seen is None:
            return False
        now = (seen.dev, seen.ino, seen.size, seen.mtime_ns)
        if suspect.seen is None:
            suspect.seen = now
            self._keep(path)
        return suspect.seen == now

    def _keep(self, path: str) -> None:
        with suppress(StateError):
            packed = msgspec.msgpack.encode(self._suspects[path])
            self._store.note(TOPIC, os.fsencode(path).hex(), packed)

    def _forget(self, path: str) -> None:
        del self._suspects[path]
        with suppress(StateError):
            self._store.note(TOPIC, os.fsencode(path).hex(), None)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

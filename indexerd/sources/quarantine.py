"""Session files at which the process ended are set aside until they change.

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
    seen: Look | None = None  # its stat when it was set aside


class Quarantine:
    """The files that ended the process, and the one that may."""

    def __init__(self, path: Path, store: StateStore, version: str) -> None:
        self._store = store
        self._suspects: dict[str, _Suspect] = {}
        self._fd, noted = -1, ""
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            noted = os.fsdecode(os.pread(self._fd, _PATH_MAX, 0).partition(b"\0")[0])
        self._note(b"")
        with suppress(StateError):
            for key, one in store.notes(TOPIC, msgspec.msgpack.Decoder(_Suspect).decode).items():
                self._suspects[os.fsdecode(bytes.fromhex(key))] = one
        for name, one in list(self._suspects.items()):
            if one.version != version or (name != noted and one.deaths < STARTS):
                self.cleared(name)  # it did not end us this time
        if noted:  # it had changed since it was set aside, or it would not have been read
            known = self._suspects.get(noted)
            self._keep(noted, _Suspect(known.deaths + 1 if known else 1, version))

    def _note(self, name: bytes) -> None:
        with suppress(OSError):
            if self._fd >= 0:
                os.pwrite(self._fd, (name + b"\0")[:_PATH_MAX], 0)

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Around each step of reading a file."""
        self._note(os.fsencode(path))
        try:
            yield
        finally:
            self._note(b"")

    def cleared(self, path: str) -> None:
        """A file was read to its end."""
        if self._suspects.pop(path, None):
            with suppress(StateError):
                self._store.note(TOPIC, os.fsencode(path).hex(), None)

    def bars(self, path: str, look: Callable[[], Look | None]) -> bool:
        """Whether a file is set aside as it is now."""
        suspect = self._suspects.get(path)
        now = look() if suspect is not None and suspect.deaths >= STARTS else None
        if suspect is None or now is None:
            return False
        if suspect.seen is None:
            suspect.seen = now
            self._keep(path, suspect)
        return suspect.seen == now

    def _keep(self, path: str, suspect: _Suspect) -> None:
        self._suspects[path] = suspect
        with suppress(StateError):
            packed = msgspec.msgpack.encode(suspect)
            self._store.note(TOPIC, os.fsencode(path).hex(), packed)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

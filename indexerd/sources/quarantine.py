"""Session files that ended the process are set aside until they change.

Memory may run out at a file, or a library crash; the next start would read it again, and end again.
So its path is noted in a small file while it is read (without a sync: that outlives the process),
and a start that finds a path there counts one death for it, in the store, for each version of the
program anew. Where nothing can be noted, reading goes on all the same.
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
WHY = f"set aside until it changes: the program ended {STARTS} times while it was read"
_PATH_MAX = 4096  # bytes

_Suspect = tuple[int, Look | None]  # deaths, and what the file was when it was set aside
_decode = msgspec.msgpack.Decoder(_Suspect).decode


class Quarantine:
    """The files that ended the process, and the one that may."""

    def __init__(self, path: Path, store: StateStore, version: str) -> None:
        self._store, self._topic = store, f"quarantine {version}"
        self._fd, noted = -1, ""
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            noted = os.fsdecode(os.pread(self._fd, _PATH_MAX, 0).partition(b"\0")[0])
        self._suspects: dict[str, _Suspect] = {}
        with suppress(StateError):
            for key, one in store.notes(self._topic, _decode).items():
                self._suspects[os.fsdecode(bytes.fromhex(key))] = one
        if noted:
            self._keep(noted, (self._suspects.get(noted, (0, None))[0] + 1, None))
        self._note("")

    def _note(self, name: str) -> None:
        with suppress(OSError):
            os.pwrite(self._fd, os.fsencode(name)[: _PATH_MAX - 1] + b"\0", 0)

    def _keep(self, path: str, suspect: _Suspect) -> None:
        self._suspects[path] = suspect
        with suppress(StateError):
            packed = msgspec.msgpack.encode(suspect)
            self._store.note(self._topic, os.fsencode(path).hex(), packed)

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Around each step of reading a file."""
        self._note(path)
        try:
            yield
        finally:
            self._note("")

    def cleared(self, path: str) -> None:
        """A file was read to its end."""
        if self._suspects.pop(path, None):
            with suppress(StateError):
                self._store.note(self._topic, os.fsencode(path).hex(), None)

    def bars(self, path: str, look: Callable[[], Look | None]) -> bool:
        """Whether a file is set aside as it is now."""
        deaths, seen = self._suspects.get(path, (0, None))
        now = look() if deaths >= STARTS else None
        if now is None:
            return False
        if seen is None:
            self._keep(path, (deaths, now))
        return seen in (None, now)

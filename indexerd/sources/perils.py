"""Which file is being read, known also to whoever starts after us: one may have ended us (V7).

A file can end the process in ways that nothing in it can catch: memory runs out, the system's
watchdog loses patience, a library crashes. The next start reads that file again, and ends again.
So its path is noted while it is read, and a start that finds a path noted counts one death for
it. After STARTS of them, without a whole reading between, the file is set aside until it is
another, or the program is.

The note is a write into a small open file, without a sync: it outlives the process, and costs
some microseconds. It need not outlive the system, whose end is no file's fault. The counts are
in the store. Used by one thread; where nothing can be noted, reading goes on all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from indexerd.errors import SessionUnreadableError, StateError
from indexerd.sources.cursor import Look
from indexerd.store.store import StateStore

STARTS = 3  # that ended while a file was read, until it is left alone
TOPIC = "peril"
WHY = f"set aside until it changes: the program ended {STARTS} times while it was read"

_PATH_MAX = 4096  # bytes; a longer path is not noted
_BUSY, _IDLE = b"\x01", b"\x00"
_Step = TypeVar("_Step", bound=tuple[object, int, bool])


class Guard(Protocol):
    """What reading of files is done under."""

    def step(self, path: str, look: Callable[[], Look | None], work: Callable[[], _Step]) -> _Step:
        """Do one step of reading a file; the last of what it gives says whether there is more."""
        ...


class Unguarded:
    """For whoever reads once, and ends."""

    def step(self, path: str, look: Callable[[], Look | None], work: Callable[[], _Step]) -> _Step:
        """Do it."""
        del path, look
        return work()


class _Suspect(msgspec.Struct, array_like=True):
    """A file that was being read when we ended."""

    deaths: int
    version: str  # of the program that it ended
    seen: tuple[int, int, int, int] | None = None  # as it was when it was set aside


_suspect = msgspec.msgpack.Decoder(_Suspect).decode


class Perils:
    """The files that ended us, and the one that may."""

    def __init__(
        self, path: Path, store: StateStore, version: str, report: Callable[[str], None]
    ) -> None:
        """`report(path)` hears once of each file that is set aside."""
        self._store = store
        self._version = version
        self._report = report
        self._suspects: dict[str, _Suspect] = {}
        self._told: set[str] = set()
        self._slot = Slot(path)
        self._load()
        self._blame(self._slot.read(_PATH_MAX + 2))
        self._slot.write(_IDLE)

    def _load(self) -> None:
        with suppress(StateError):
            for key, suspect in self._store.notes(TOPIC, _suspect).items():
                with suppress(ValueError):
                    if suspect.version == self._version:
                        self._suspects[os.fsdecode(bytes.fromhex(key))] = suspect
                        continue
                self._store.note(TOPIC, key, None)

    def _blame(self, noted: bytes) -> None:
        """What the last start was doing when it ended; nothing, where it ended otherwise."""
        name, end, _ = noted[1:].partition(b"\0")
        if noted[:1] == _BUSY and name and end:
            path = os.fsdecode(name)
            suspect = self._suspects.setdefault(path, _Suspect(0, self._version))
            suspect.deaths += 1
            suspect.seen = None  # it had changed, or we would not have read it
            self._keep(path)
            return
        for other in [path for path, one in self._suspects.items() if one.deaths < STARTS]:
            self._drop(other)  # it did not end us this time

    def step(self, path: str, look: Callable[[], Look | None], work: Callable[[], _Step]) -> _Step:
        """Do one step of reading a file, noted while it lasts; the file is well after the last.

        Raises SessionUnreadableError, and does nothing, where the file is set aside.
        """
        if path in self._suspects and self._bars(path, look):
            raise SessionUnreadableError(WHY)
        self._slot.write((_BUSY + os.fsencode(path) + b"\0")[: _PATH_MAX + 2])
        try:
            done = work()
        finally:
            self._slot.write(_IDLE)
        if not done[-1] and path in self._suspects:
            self._drop(path)
        return done

    def _bars(self, path: str, look: Callable[[], Look | None]) -> bool:
        suspect = self._suspects[path]
        if suspect.deaths < STARTS:
            return False
        now = look()
        seen = None if now is None else (now.dev, now.ino, now.size, now.mtime_ns)
        if suspect.seen is None:
            suspect.seen = seen
            self._keep(path)
        if seen is None or suspect.seen != seen:
            return False
        if path not in self._told:
            self._told.add(path)
            self._report(path)
        return True

    def _keep(self, path: str) -> None:
        with suppress(StateError):
            packed = msgspec.msgpack.encode(self._suspects[path])
            self._store.note(TOPIC, os.fsencode(path).hex(), packed)

    def _drop(self, path: str) -> None:
        del self._suspects[path]
        self._told.discard(path)
        with suppress(StateError):
            self._store.note(TOPIC, os.fsencode(path).hex(), None)

    def close(self) -> None:
        """Let go of the file."""
        self._slot.close()


class Slot:
    """One note in a file that stays open: it outlives the process, but not the system."""

    def __init__(self, path: Path) -> None:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
        except OSError:  # where it cannot be kept, nothing is quarantined
            self._fd = -1

    def read(self, most: int) -> bytes:
        """Return what is there, with what longer notes left behind it."""
        if self._fd >= 0:
            with suppress(OSError):
                return os.pread(self._fd, most, 0)
        return b""

    def write(self, data: bytes) -> None:
        """Overwrite the beginning of the last note, without a sync."""
        if self._fd >= 0:
            with suppress(OSError):
                os.pwrite(self._fd, data, 0)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

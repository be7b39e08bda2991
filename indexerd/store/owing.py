"""Small writes into the store that may have to wait until it can be written again.

In: paths to be forgotten and notes to be kept. A note is written at once, with the paths before
it; where that fails (a full disk, another's lock), it is owed, `trouble` says why, and whoever
asked goes on: what was read of a session must not depend on whether our own cache takes it (A3).
While there is trouble nothing is tried but by `settle`: each try may have to wait for a lock. What
is owed is written in its order of time before anything newer. A crash before that costs a reading.
One thread uses this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from indexerd.errors import StateError
from indexerd.store.store import StateStore


def _nothing() -> None:
    """There is nothing more to be written."""


class Owing:
    """What one part of the library owes to the store."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._gone: dict[str, None] = {}
        self._notes: dict[tuple[str, str], bytes | None] = {}
        self.trouble: StateError | None = None

    def is_gone(self, path: str) -> bool:
        """Whether what the store says of a file is to be forgotten still."""
        return path in self._gone

    def forget(self, paths: Iterable[str]) -> None:
        """Drop files, with the next write: not before the store shows that they are gone."""
        self._gone |= dict.fromkeys(paths)

    def note(self, topic: str, key: str, value: bytes | None) -> None:
        """Keep a small value under a topic; None drops it."""
        self._notes[topic, key] = value
        self.write()

    def write(self, more: Callable[[], None] = _nothing) -> bool:
        """Write what is owed, then do `more`; False where it has to wait."""
        if self.trouble is None:
            try:
                self.settle(more)
            except StateError:
                return False
        return self.trouble is None

    def settle(self, more: Callable[[], None] = _nothing) -> None:
        """The same, tried in any case; raises StateError where it fails still."""
        try:
            self._pay()
            more()
        except StateError as bad:
            self.trouble = bad
            raise
        self.trouble = None

    def _pay(self) -> None:
        if self._gone:
            self._store.forget_files(self._gone)
            self._gone.clear()
        for topic, key in list(self._notes):
            self._store.note(topic, key, self._notes[topic, key])
            del self._notes[topic, key]

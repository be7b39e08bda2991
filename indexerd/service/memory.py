"""Which session trees are in memory, and how the others sleep in the ledger.

States are kept for the files written to lately; what lives in memory follows what is active,
not what exists. A cursor and the state it belongs to are stored together, or not at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from indexerd.core.card import Card, pack
from indexerd.core.cursor import Look
from indexerd.core.session import SessionState
from indexerd.io.ledger import Ledger
from indexerd.io.tail import Tail

STATES_KEPT = 48  # sessions whose tree stays in memory
ROWS_KEPT = 400_000  # and entries of all these together


@dataclass(slots=True, eq=False)
class Tracked:
    """One session file: where reading stopped, and what was found."""

    path: str
    agent: str
    tail: Tail = field(default_factory=Tail)
    card: Card | None = None
    state: SessionState | None = None
    dirty: bool = False  # the ledger does not know this yet
    excluded: bool = False
    cwd: str = ""  # of an excluded file's session: the globs may change
    unreadable: str = ""  # for now
    problem: str = ""  # until it changes
    aside: Look | None = None  # as it was when it provoked a defect


class Memory:
    """Files whose state is awake, newest last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._awake: OrderedDict[str, Tracked] = OrderedDict()

    def keep(self, file: Tracked) -> None:
        """A file was read just now."""
        self._awake[file.path] = file
        self._awake.move_to_end(file.path)

    def drop(self, path: str) -> None:
        """A file is not to be stored any more under this path."""
        self._awake.pop(path, None)

    def wake(self, file: Tracked, path: str | None = None) -> bool:
        """Bring a file's state back from the ledger; says whether it is there."""
        if file.state is not None:
            return True
        stored = self._ledger.state(path or file.path)
        if stored is None:
            return False
        try:
            file.state = SessionState.decode(stored)
        except ValueError:
            return False
        self._awake[file.path] = file
        return True

    def rest(self) -> None:
        """Let the sessions that were silent longest sleep in the ledger."""
        rows = sum(len(file.state) for file in self._awake.values() if file.state)
        leaving: list[Tracked] = []
        for file in self._awake.values():
            if len(self._awake) - len(leaving) <= STATES_KEPT and rows <= ROWS_KEPT:
                break
            leaving.append(file)
            rows -= len(file.state) if file.state else 0
        self._store(leaving)
        for file in leaving:
            del self._awake[file.path]
            if not file.tail.pending:
                file.state = None

    def checkpoint(self) -> None:
        """Bring the ledger up to date."""
        self._store(self._awake.values())

    def _store(self, files: Iterable[Tracked]) -> None:
        dirty = [file for file in files if file.dirty]
        rows = [
            (
                file.path,
                file.tail.cursor,
                pack(file.card) if file.card else b"",
                None if file.state is None else file.state.encode(),
            )
            for file in dirty
            if file.tail.cursor is not None
        ]
        if rows:
            self._ledger.put(rows)
        for file in dirty:
            file.dirty = False

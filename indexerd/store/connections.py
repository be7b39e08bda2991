"""The connections of one process to the catalog: one that writes, and one for each reading thread.

In: the file's path. Out: a way to ask, from any thread, and transactions for the thread that
writes. What SQLite complains of becomes an error of ours; a file that turns out to be damaged is
noted, for the next one who opens it. A process that only reads gets an empty catalog where there
is no usable one.

A connection is never closed while another thread asks it something: Python's sqlite3 then reads
what is no more, and the process ends (seen with 3.11). What is asked as all is closed is cut short.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Self, TypeVar

from indexerd.errors import StateError
from indexerd.search.redo import FOLD, owes_fold, paid
from indexerd.store.file import (
    drop_aside,
    is_absent,
    is_damage,
    is_unusable,
    note_damage,
    open_empty,
    open_reader,
    open_writer,
    ours,
)
from indexerd.store.wal import emptied

_T = TypeVar("_T")

_CUT_SECONDS, _CUT_AGAIN = 2.0, 0.01  # for what is under way to end, and between two words to it


class Connections:
    """`rebuilt`: it was empty when opened, and has to be filled. `problem`: why it stays so."""

    def __init__(self, path: Path, writer: sqlite3.Connection | None, *, rebuilt: bool) -> None:
        self.rebuilt = rebuilt
        self.problem: str | None = None
        self.renamed = 0  # counts up where `known` is to be asked anew
        self._path = path
        self._writer = writer
        self._depth = 0
        self._failed: sqlite3.Error | None = None  # in the batch under way, which is lost then
        self._mine = threading.local()
        self._lock = threading.Condition()
        self._asking = 0  # threads that ask, and so use a reader
        self._readers: list[sqlite3.Connection] | None = []

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False) -> Self:
        """Open or make the file at `path`; raises StateError where it can be neither."""
        if readonly:
            catalog = cls(path, None, rebuilt=False)
            catalog._ask(lambda db: db.execute("SELECT 1 FROM record LIMIT 1").fetchone())
            return catalog
        writer, rebuilt = open_writer(path)
        return cls(path, writer, rebuilt=rebuilt)

    def close(self) -> None:
        """Let go of the file, in every thread: whoever asks is cut short, and waited for."""
        with self._lock:
            readers, self._readers = self._readers or [], None
            until = monotonic() + _CUT_SECONDS
            while self._asking and monotonic() < until:
                for db in readers:
                    db.interrupt()
                self._lock.wait(_CUT_AGAIN)
            for db in () if self._asking else readers:  # one that does not end keeps its file
                db.close()
        if self._writer is not None:
            self._writer.close()

    def _ask(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._lock:
            self._asking += 1
        try:
            return self._answer(ask)
        finally:
            with self._lock:
                self._asking -= 1
                self._lock.notify_all()

    def _answer(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return ask(self._reader())
        except sqlite3.Error as error:
            if self._readers is None:
                raise StateError("the catalog is closed") from error
            useless = is_unusable(error) or is_absent(error)
            if self._writer is not None or not useless:
                raise self._ours(error) from error
            self.problem = f"{self._path}: {error}"
        self._mine.db = self._kept(open_empty())
        return ask(self._mine.db)

    def _ask_at_once(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        """Ask several things of the catalog as it is at one moment, whoever writes meanwhile."""

        def steadily(db: sqlite3.Connection) -> _T:
            db.execute("BEGIN")
            try:
                return ask(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

        return self._ask(steadily)

    def _reader(self) -> sqlite3.Connection:
        if self._readers is None:
            raise StateError("the catalog is closed")
        db: sqlite3.Connection | None = getattr(self._mine, "db", None)
        if db is None:
            db = self._kept(open_reader(self._path, readonly=self._writer is None))
            self._mine.db = db
        return db

    def _kept(self, db: sqlite3.Connection) -> sqlite3.Connection:
        with self._lock:
            if self._readers is None:
                db.close()
                raise StateError("the catalog is closed")
            self._readers.append(db)
        return db

    def fold(self) -> None:
        """Bring the log into the file, if that is owed; somebody who reads keeps it from that."""
        if self._writer is None or not self._ask(owes_fold):
            return
        drop_aside(self._path)
        if emptied(self._writer):
            with self._transaction() as db:
                paid(db, FOLD)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._writer is None:
            raise StateError("the catalog is open for reading only")
        db, outermost = self._writer, self._depth == 0
        self._depth += 1
        try:
            if outermost:
                self._failed = None
                db.execute("BEGIN IMMEDIATE")
            yield db
            self._commit(db, outermost=outermost)
        except BaseException as error:
            if isinstance(error, sqlite3.Error):
                self._failed = error
            if outermost:
                with suppress(sqlite3.Error):  # the first error is the one to tell
                    db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._ours(error) from error
            raise
        finally:
            self._depth -= 1

    def _commit(self, db: sqlite3.Connection, *, outermost: bool) -> None:
        if self._failed is not None:
            raise self._failed
        if outermost:
            db.execute("COMMIT")

    def _ours(self, error: sqlite3.Error) -> StateError:
        if is_damage(error):
            note_damage(self._path)
            self.problem = str(error)
        return ours(error)

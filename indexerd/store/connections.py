"""The connections of one process to the catalog: one that writes, and one for each reading thread.

In: the file's path. Out: a way to ask, from any thread, and transactions for the thread that
writes. All that is asked of the file, and made of what it holds, goes through `_ask` and
`_transaction`: whatever they raise becomes an error of ours, and where it is no trouble of the
file's place, the file is damaged. That is noted and told, and the thread that writes makes the
catalog anew (`renew`), once: should that one be damaged as well, `problem` says so. A process that
only reads gets an empty catalog where there is no usable one.

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

from indexerd.errors import DamagedError, IndexerdError, StateError
from indexerd.search.redo import FOLD, held_turn, keep_turn, owes_fold, paid
from indexerd.store.cache_file import (
    Seal,
    drop_aside,
    is_access,
    is_trouble,
    named,
    set_aside,
)
from indexerd.store.file import (
    LOG_MAX,
    forget_damage,
    note_damage,
    open_empty,
    open_reader,
    open_writer,
    ours,
)

_T = TypeVar("_T")

_CUT_SECONDS, _CUT_AGAIN = 2.0, 0.01  # for what is under way to end, and between two words to it


def _nobody(_why: str) -> None:
    """Nobody is told."""


class Connections:
    """`rebuilt`: it is new, and has to be filled. `problem`: why it stays empty, or damaged."""

    def __init__(self, path: Path, *, readonly: bool, report: Callable[[str], None]) -> None:
        self.rebuilt = False
        self.problem: str | None = None
        self.damaged = False  # and not made anew yet
        self.renamed = 0  # counts up where `known` is to be asked anew
        self.turn = 0  # counts up with each transaction, and is stored in it
        self._path = path
        self._readonly = readonly
        self._report = report
        self._writer: sqlite3.Connection | None = None
        self._seal: Seal | None = None
        self._patience = LOG_MAX  # the log's length at which it is brought into the file
        self._renewed = self._renewing = False
        self._depth = 0
        self._changes = 0  # to the writer, as the transaction began
        self._failed: Exception | None = None  # in the batch under way, which is lost then
        self._mine = threading.local()
        self._lock = threading.Condition()
        self._asking = 0  # threads that ask, and so use a reader
        self._readers: list[sqlite3.Connection] | None = []

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        readonly: bool = False,
        report: Callable[[str], None] = _nobody,
    ) -> Self:
        """Open or make the file at `path`; raises StateError where it can be neither.

        `report(why)` is told, in any thread, where it is damaged.
        """
        catalog = cls(path, readonly=readonly, report=report)
        if readonly:
            catalog._ask(lambda db: db.execute("SELECT 1 FROM record LIMIT 1").fetchone())
            return catalog
        try:
            catalog._begin()
        except Exception as bad:
            if is_trouble(bad):
                raise ours(bad) from bad
            catalog._begin_anew()
            report(named(bad))
        return catalog

    def _begin(self) -> None:
        seal = Seal(self._path)
        try:
            self._writer, self.rebuilt = open_writer(self._path, seal)
            self.turn = held_turn(self._writer)
        except BaseException:
            if self._writer is not None:
                self._writer.close()
            seal.close()
            raise
        self._seal = seal

    def _begin_anew(self) -> None:
        try:
            set_aside(self._path)
            forget_damage(self._path)
            self._begin()
        except Exception as bad:
            raise ours(bad) from bad
        self._renewed = True

    def check(self) -> None:
        """Compare the whole file with what it was left as; in any thread."""
        try:
            if self._seal is not None:
                self._seal.check()
        except DamagedError as bad:
            self._found(bad)
        except OSError:  # nobody can tell now
            return

    def renew(self) -> bool:
        """Set a damaged file aside, and begin an empty one; whether that was done.

        By the thread that writes, outside of a transaction.
        """
        if not self.damaged or self._renewed:
            return False
        self._renewing = True  # whoever asks from now on waits
        try:
            if not self._let_go():
                return False
            if self._writer is not None:
                self._writer.close()
            if self._seal is not None:
                self._seal.close()
            self._begin_anew()
            self._readers, self._mine = [], threading.local()
            self.damaged = False
            self.renamed += 1
            return True
        finally:
            with self._lock:
                self._renewing = False
                self._lock.notify_all()

    def _let_go(self) -> bool:
        """End what others ask, and their connections; False where somebody does not end."""
        with self._lock:
            readers, self._readers = self._readers or [], None
            until = monotonic() + _CUT_SECONDS
            while self._asking and monotonic() < until:
                for db in readers:
                    db.interrupt()
                self._lock.wait(_CUT_AGAIN)
            for db in () if self._asking else readers:
                db.close()
            if self._asking:
                self._readers = readers
            return not self._asking

    def close(self) -> None:
        """Let go of the file, in every thread: whoever asks is cut short, and waited for.

        One that does not end keeps its file.
        """
        self._let_go()
        with self._lock:
            self._readers = None
        if self._writer is not None and self._seal is not None:
            done = self._seal.checkpoint(self._writer)
            self._writer.close()
            self._seal.close(done=done)

    def _ask(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._lock:
            while self._renewing:
                self._lock.wait()
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
        except IndexerdError:
            raise
        except Exception as error:
            if self._readers is None:
                raise self._closed() from error
            useless = is_access(error) or not is_trouble(error)
            if not self._readonly or not useless:
                raise self._ours(error) from error
            self.problem = f"{self._path}: {error if is_trouble(error) else named(error)}"
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

    def _closed(self) -> StateError:
        if self._renewing:
            return StateError("the catalog is being made anew", hint="ask again in a moment")
        return StateError("the catalog is closed")

    def _reader(self) -> sqlite3.Connection:
        if self._readers is None:
            raise self._closed()
        db: sqlite3.Connection | None = getattr(self._mine, "db", None)
        if db is None:
            db = self._kept(open_reader(self._path, readonly=self._readonly))
            self._mine.db = db
        return db

    def _kept(self, db: sqlite3.Connection) -> sqlite3.Connection:
        with self._lock:
            if self._readers is None:
                db.close()
                raise self._closed()
            self._readers.append(db)
        return db

    def fold(self) -> None:
        """Bring the log into the file, if that is owed; somebody who reads keeps it from that."""
        if self._writer is None or not self._ask(owes_fold):
            return
        drop_aside(self._path)
        if self._fold():
            with self._transaction() as db:
                paid(db, FOLD)

    def _fold(self) -> bool:
        if self._writer is None or self._seal is None:
            return False
        done = self._seal.checkpoint(self._writer)
        self._patience = self._seal.logged + LOG_MAX
        return done

    @contextmanager
    def _transaction(self, *, ours: bool = True) -> Iterator[sqlite3.Connection]:
        """`ours`: all that is done within it is done to the file, and fails by that alone."""
        if self._writer is None:
            raise StateError("the catalog is open for reading only")
        db, outermost, turn = self._writer, self._depth == 0, self.turn
        self._depth += 1
        try:
            if outermost:
                self._failed = None
                self._changes = db.total_changes
                db.execute("BEGIN IMMEDIATE")
            yield db
            self._commit(db, outermost=outermost)
        except BaseException as error:
            mine = isinstance(error, sqlite3.Error) or (ours and isinstance(error, Exception))
            if isinstance(error, sqlite3.Error):
                self._failed = error
            if outermost:
                self.turn = turn
                with suppress(sqlite3.Error):  # the first error is the one to tell
                    db.execute("ROLLBACK")
            if isinstance(error, Exception) and mine and not isinstance(error, IndexerdError):
                raise self._ours(error) from error
            raise
        finally:
            self._depth -= 1
        if outermost and self._seal is not None and self._seal.logged > self._patience:
            self._fold()

    def _commit(self, db: sqlite3.Connection, *, outermost: bool) -> None:
        if self._failed is not None:
            raise self._failed
        if outermost:
            if db.total_changes != self._changes:
                self.turn += 1
                keep_turn(db, self.turn)
            db.execute("COMMIT")

    def _ours(self, error: Exception) -> StateError:
        if not is_trouble(error):
            self._found(error)
        return ours(error)

    def _found(self, error: Exception) -> None:
        """The file is damaged."""
        first, self.damaged = not self.damaged, True
        note_damage(self._path)
        if self._renewed:
            self.problem = f"the catalog was made anew, and is damaged again: {named(error)}"
        if first:
            self._report(named(error))

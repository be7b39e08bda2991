"""The write-ahead log of one of our databases, brought into the file beside whoever writes.

SQLite does that by itself once a log is long, in the middle of a commit, and waits for the disk
twice: whoever writes stands still, and all that wait for it. `fold` does it before, on a
connection of its own, in whatever thread. That SQLite would do it stays as the way back. Two at a
time hinder each other, and the second would go without: one waits for the other here.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock

_WAIT_MS = 200  # for those who read: whoever writes is waited for, too


class Log:
    """The log of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._alone = Lock()

    def fold(self) -> None:
        """Bring in what can be without holding anybody up; what fails is done another time."""
        with self._alone, suppress(sqlite3.Error):
            uri = f"{self._path.absolute().as_uri()}?mode=rw"  # a file that is gone is not made
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def empty(self, writer: sqlite3.Connection) -> bool:
        """Bring all in: what was dropped is then in neither. False where others read meanwhile."""
        busy = True
        with self._alone, suppress(sqlite3.Error):
            (patience,) = writer.execute("PRAGMA busy_timeout").fetchone()
            try:
                writer.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
                busy = bool(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            finally:
                writer.execute(f"PRAGMA busy_timeout = {patience}")
        return not busy

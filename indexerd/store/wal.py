"""The write-ahead log of one of our databases, brought into the file.

SQLite does that by itself once a log is long. Where something was dropped that must be in neither,
it is done at once.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

_WAIT_MS = 200  # for those who read: whoever writes is waited for, too


def emptied(writer: sqlite3.Connection) -> bool:
    """Bring all of the log into the file; False where others read meanwhile, or it fails."""
    busy = True
    with suppress(sqlite3.Error):
        (patience,) = writer.execute("PRAGMA busy_timeout").fetchone()
        try:
            writer.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
            busy = bool(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        finally:
            writer.execute(f"PRAGMA busy_timeout = {patience}")
    return not busy

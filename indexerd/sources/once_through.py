"""A table that is read from one end to the other, once: what that leaves in memory.

In: a connection to a database of ours. SQLite keeps the pages that it read, up to 2 MB for each
connection, and of such a reading none is asked for again: at a start that was a tenth of what
10,000 sessions take. Meanwhile few are kept; afterwards as many as before, as somebody asks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MEANWHILE = "PRAGMA cache_size = -256"  # KiB


@contextmanager
def once_through(db: sqlite3.Connection) -> Iterator[None]:
    """Keep few pages in memory while this lasts."""
    (kept,) = db.execute("PRAGMA cache_size").fetchone()
    db.execute(_MEANWHILE)
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # the first error is the one to tell
            db.execute(f"PRAGMA cache_size = {kept}")

"""Another program's database, with its owner at work or gone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def made(path: Path, *, mode: str = "WAL") -> None:
    """A database that nobody has open, with three rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE pair (a INTEGER, b INTEGER, filler TEXT)")
        db.executemany("INSERT INTO pair VALUES (?, 0, 'x')", [(i,) for i in range(3)])


def count(db: sqlite3.Connection) -> int:
    """How many rows there are."""
    found: int = db.execute("SELECT count(*) FROM pair").fetchone()[0]
    return found

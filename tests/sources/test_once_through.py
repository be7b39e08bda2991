"""Whole tables that are read once: what SQLite keeps of them in memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from indexerd.sources.cursor import Cursor
from indexerd.sources.once_through import once_through
from indexerd.store.catalog import Catalog, SearchText
from indexerd.store.ledger import Ledger

CURSOR = Cursor(1, 2, 3, 4, 5, 6, b"head", b"tail")


def kept(db: sqlite3.Connection) -> int:
    """How much a connection may keep; in KiB below nought."""
    return int(db.execute("PRAGMA cache_size").fetchone()[0])


def test_little_is_kept_meanwhile_and_as_much_as_before_afterwards() -> None:
    """Of a reading that fails, too."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("PRAGMA cache_size = -3000")
    with once_through(db):
        assert 0 > kept(db) > -500
    assert kept(db) == -3000
    with pytest.raises(sqlite3.OperationalError), once_through(db):
        db.execute("SELECT * FROM nothing")
    assert kept(db) == -3000
    db.close()


def test_what_is_asked_of_all_sessions_is_read_once_through(tmp_path: Path) -> None:
    """At a start, and before the first look-up: none of it is asked for again."""
    catalog, ledger = Catalog.open(tmp_path / "catalog"), Ledger(tmp_path / "ledger")
    catalog.put([({"sessionId": "s", "name": "n", "cwd": "/w", "sessionFile": "/f"}, SearchText())])
    catalog.set_messages_mark("s", "sign 1")
    ledger.put([("/f", CURSOR, b"card", b"state")])
    said: list[str] = []
    for db in (catalog._reader(), ledger._db):
        before = kept(db)
        db.set_trace_callback(said.append)
        said.clear()
        if db is ledger._db:
            asked: list[object] = [list(ledger.cards())]
        else:
            asked = [catalog.known(), catalog.shown(), catalog.ids(), catalog.mark_signs()]
        sizes = [one for one in said if one.startswith("PRAGMA cache_size =")]
        assert all(asked)
        assert sizes == ["PRAGMA cache_size = -256", f"PRAGMA cache_size = {before}"] * len(asked)
    ledger.close()
    catalog.close()

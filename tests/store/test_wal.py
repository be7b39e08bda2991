"""The log of a database is brought into its file, unless somebody reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from indexerd.store.wal import emptied


def test_a_reader_keeps_the_log_and_is_not_waited_for_long(tmp_path: Path) -> None:
    """X5: whoever has to bring all in learns that it is still to be done, and then does it."""
    path = tmp_path / "some.sqlite"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA busy_timeout = 7000")
        writer.execute("CREATE TABLE held (word TEXT)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM held").fetchall()
        writer.execute("INSERT INTO held VALUES ('widget')")
        assert not emptied(writer)
        reader.execute("COMMIT")
        assert emptied(writer)
        assert path.with_name("some.sqlite-wal").stat().st_size == 0
        assert writer.execute("PRAGMA busy_timeout").fetchone() == (7000,)
    assert not emptied(writer)

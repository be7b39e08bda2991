"""Another program's database, where it cannot or may not be read: each way is an error of ours."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources import foreign_db
from indexerd.sources.foreign_db import files_of, opened, reading
from tests.sessions.foreign_owner import count, made


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str, end: str) -> None:
    """X2, X3: no link is followed, no pipe waited for, neither for the database nor beside it."""
    path, other = tmp_path / "x.db", tmp_path / "other.db"
    made(other)
    if end:
        made(path)
    odd = f"{path}{end}"
    if kind == "link":
        os.symlink(other, odd)
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        os.mkdir(odd)
    with pytest.raises(SessionUnreadableError, match="not a regular file"):
        reading(str(path), count)


def test_what_is_gone_is_gone(tmp_path: Path) -> None:
    """A database that was deleted raises what a deleted file raises."""
    for path in (tmp_path / "x.db", tmp_path / "x" / "y.db"):
        with pytest.raises(FileNotFoundError), opened(str(path)):
            pass
    with pytest.raises(SessionUnreadableError), opened(f"{tmp_path}/a\0b"):
        pass


def test_damage_is_told_in_the_words_of_sqlite(tmp_path: Path) -> None:
    """An error names what SQLite said, and is one of ours."""
    path = tmp_path / "x.db"
    path.write_bytes(b"this is no database, although it is long enough for one" * 100)
    with pytest.raises(SessionUnreadableError) as raised:
        reading(str(path), count)
    assert raised.value.upstream == "file is not a database"
    made(tmp_path / "y.db")
    with pytest.raises(SessionUnreadableError) as raised:
        reading(str(tmp_path / "y.db"), lambda db: db.execute("SELECT * FROM missing"))
    assert raised.value.upstream == "no such table: missing"


def test_an_endless_question_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of another program may never end; our look does."""
    monkeypatch.setattr(foreign_db, "LOOK_SECONDS", 0.05)
    path = tmp_path / "x.db"
    made(path)
    with closing(sqlite3.connect(path)) as owner:
        owner.execute(
            "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT i FROM n"
        )
    with pytest.raises(SessionUnreadableError) as raised:
        reading(str(path), lambda db: db.execute("SELECT max(i) FROM endless").fetchone())
    assert raised.value.upstream == "interrupted"


def test_text_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    """F7: bytes that no encoding explains become U+FFFD, and do not raise."""
    path = tmp_path / "x.db"
    made(path)
    with closing(sqlite3.connect(path)) as owner, owner:
        owner.execute("UPDATE pair SET filler = CAST(x'61ff62' AS TEXT)")
    asked = "SELECT DISTINCT filler FROM pair"
    assert reading(str(path), lambda db: db.execute(asked).fetchall()) == [("a\ufffdb",)]


def test_a_name_of_any_bytes_is_opened(tmp_path: Path) -> None:
    """Paths are text with surrogate escapes; `%`, `?` and `#` are no part of a URI here."""
    name = os.fsdecode(b"a\xff %41?mode=rwc#.db")
    made(tmp_path / "x.db")
    shutil.move(tmp_path / "x.db", tmp_path / name)
    assert reading(f"{tmp_path}/{name}", count) == 3
    assert files_of(f"{tmp_path}/{name}").wal is None
    assert len(list(tmp_path.iterdir())) == 1

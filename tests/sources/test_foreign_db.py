"""Another program's database: read, and left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources.foreign_db import reading

OWNER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA busy_timeout = 10000")
n, blocked = 0, 0
print("up", flush=True)
for command in sys.stdin:
    word, _, rest = command.partition(" ")
    for _ in range(int(rest) if word == "ROUNDS" else 0):
        n += 1
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM pair")
        db.executemany("INSERT INTO pair VALUES (?, ?, ?)", [(n, i, "x" * 900) for i in range(40)])
        db.execute("COMMIT")
        blocked += db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if word != "ROUNDS":
        db.execute(command).fetchall()
    print(n, blocked, flush=True)
"""


def made(path: Path) -> None:
    """A database that nobody has open, with three rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE pair (a INTEGER, b INTEGER, filler TEXT)")
        db.executemany("INSERT INTO pair VALUES (?, 0, 'x')", [(i,) for i in range(3)])


def count(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT count(*) FROM pair").fetchone()[0]
    return found


class Owner:
    """A process that has the database open. In ours, SQLite would share its memory with us."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, command: str) -> tuple[int, int]:
        """Run a statement, or `ROUNDS n`; returns commits so far, and checkpoints that failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        commits, blocked = self._process.stdout.readline().split()
        return int(commits), int(blocked)


@contextmanager
def owned(path: Path, *, rows: int = 3) -> Iterator[Owner]:
    """A database that its program has open, with every row in the log."""
    program = [sys.executable, "-c", OWNER, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            owner = Owner(process)
            owner.do("PRAGMA journal_mode = WAL")
            owner.do("CREATE TABLE pair (a INTEGER, b INTEGER, filler TEXT)")
            for _ in range(rows):
                owner.do("INSERT INTO pair VALUES (0, 0, 'x')")
            yield owner
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)


def copied(source: Path, path: Path, ends: tuple[str, ...] = ("", "-wal", "-shm")) -> None:
    """What is left of a database whose program was killed."""
    path.parent.mkdir(exist_ok=True)
    for end in ends:
        shutil.copy(f"{source}{end}", f"{path}{end}")


def held(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file of a directory: bytes, mtime, inode."""
    return {
        one.name: (one.read_bytes(), one.stat().st_mtime_ns, one.stat().st_ino)
        for one in sorted(directory.iterdir())
    }


def test_a_closed_database_is_read_and_left_as_it_was(tmp_path: Path) -> None:
    """S3.9: no -wal, no -shm: read all the same, and no file appears beside it."""
    path = tmp_path / os.fsdecode(b"a\xff b%23?c.db")
    made(tmp_path / "x.db")
    (tmp_path / "x.db").rename(path)
    before = held(tmp_path)
    assert reading(str(path), count) == 3
    assert held(tmp_path) == before


def test_what_is_in_the_log_alone_is_seen(tmp_path: Path) -> None:
    """S3.9: the main file may be one page with every row in the -wal, its owner alive or killed."""
    path, copy = tmp_path / "x.db", tmp_path / "copy" / "x.db"
    with owned(path, rows=5):
        assert path.stat().st_size == 4096
        copied(path, copy)
        for one in (path, copy):
            before = held(copy.parent), [os.stat(f"{path}{end}") for end in ("", "-wal", "-shm")]
            assert reading(str(one), count) == 5
            after = held(copy.parent), [os.stat(f"{path}{end}") for end in ("", "-wal", "-shm")]
            assert [one.st_mtime_ns for one in before[1]] == [one.st_mtime_ns for one in after[1]]
            assert before[0] == after[0]


def test_a_log_without_its_index_is_refused_not_ignored(tmp_path: Path) -> None:
    """Never immutable=1 beside a -wal with content: it would hide all that is new."""
    path = tmp_path / "x.db"
    with owned(tmp_path / "live.db"):
        copied(tmp_path / "live.db", path, ("", "-wal"))
    with pytest.raises(SessionUnreadableError, match="write-ahead log"):
        reading(str(path), count)


def test_its_owner_commits_and_checkpoints_at_will(tmp_path: Path) -> None:
    """S3.9: readers come and go; the owner is never refused, and no reader sees half a commit."""
    path = tmp_path / "x.db"
    asked = "SELECT DISTINCT a FROM pair UNION ALL SELECT -count(*) FROM pair"
    with owned(path, rows=0) as owner:
        assert owner.do("ROUNDS 1") == (1, 0)
        stop, seen, wrong = threading.Event(), set(), []

        def read() -> None:
            until = time.monotonic() + 30
            while not stop.is_set() and time.monotonic() < until:
                rows = reading(str(path), lambda db: db.execute(asked).fetchall())
                seen.add(rows[0][0])
                wrong.extend([] if [len(rows), rows[-1]] == [2, (-40,)] else [rows])

        readers = [threading.Thread(target=read) for _ in range(2)]
        for one in readers:
            one.start()
        try:
            commits, blocked = owner.do("ROUNDS 150")
        finally:
            stop.set()
            for one in readers:
                one.join()
    assert (commits, blocked) == (151, 0)
    assert wrong == []
    assert len(seen) > 1


@pytest.mark.parametrize("gone", [False, True])
def test_an_owner_that_comes_while_we_look_makes_us_look_again(tmp_path: Path, gone: bool) -> None:
    """What was read, or not found, while somebody checkpointed is dropped."""
    path = tmp_path / "x.db"
    made(path)
    looks: list[int] = []

    def ask(db: sqlite3.Connection) -> int:
        looks.append(count(db))
        if len(looks) == 1:
            with closing(sqlite3.connect(path)) as owner, owner:
                owner.execute("INSERT INTO pair VALUES (7, 7, 'new')")
            if gone:
                raise FileNotFoundError("no such row")
        return looks[-1]

    assert reading(str(path), ask) == 4
    assert looks == [3, 4]


def test_what_cannot_be_read_is_said_in_the_words_of_sqlite(tmp_path: Path) -> None:
    """No database, or none that we know; gone, or a link: an error of ours."""
    path, made_ = tmp_path / "x.db", tmp_path / "y.db"
    path.write_bytes(b"this is no database, although it is long enough for one" * 100)
    with pytest.raises(SessionUnreadableError, match="file is not a database"):
        reading(str(path), count)
    made(made_)
    with pytest.raises(SessionUnreadableError, match="no such table: missing"):
        reading(str(made_), lambda db: db.execute("SELECT * FROM missing"))
    (tmp_path / "link.db").symlink_to(made_)
    for gone in (tmp_path / "z.db", tmp_path / "z" / "y.db", tmp_path / "link.db"):
        with pytest.raises(FileNotFoundError):
            reading(str(gone), count)

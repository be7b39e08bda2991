"""Another program's database is read without changing it."""

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
from indexerd.sources.foreign_db import held_open, opened, reading

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


def create(path: Path) -> None:
    """A closed database with three rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE pair (a INTEGER, b INTEGER, filler TEXT)")
        db.executemany("INSERT INTO pair VALUES (?, 0, 'x')", [(i,) for i in range(3)])


def count(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT count(*) FROM pair").fetchone()[0]
    return found


class Owner:
    """A process that has the database open; in this process SQLite would share its memory."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, command: str) -> tuple[int, int]:
        """Run a statement, or `ROUNDS n`; return the commits so far and the failed checkpoints."""
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
    """What remains of a database whose program was killed."""
    path.parent.mkdir(exist_ok=True)
    for end in ends:
        shutil.copy(f"{source}{end}", f"{path}{end}")


def snapshot(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """The bytes, mtime and inode of every file in a directory."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
        for path in sorted(directory.iterdir())
    }


def test_a_closed_database_is_read_and_unchanged(tmp_path: Path) -> None:
    """S3.9: it is read without -wal and -shm, and no file is created."""
    path = tmp_path / os.fsdecode(b"a\xff b%23?c.db")
    create(tmp_path / "x.db")
    (tmp_path / "x.db").rename(path)
    before = snapshot(tmp_path)
    assert reading(str(path), count) == 3
    assert snapshot(tmp_path) == before


def test_rows_only_in_the_log_are_seen(tmp_path: Path) -> None:
    """S3.9: the main file may be one page with every row in the -wal, its owner alive or killed."""
    path, copy = tmp_path / "x.db", tmp_path / "copy" / "x.db"
    with owned(path, rows=5):
        assert path.stat().st_size == 4096
        copied(path, copy)
        for database in (path, copy):
            before = (
                snapshot(copy.parent),
                [os.stat(f"{path}{end}") for end in ("", "-wal", "-shm")],
            )
            assert reading(str(database), count) == 5
            after = snapshot(copy.parent), [os.stat(f"{path}{end}") for end in ("", "-wal", "-shm")]
            assert [status.st_mtime_ns for status in before[1]] == [
                status.st_mtime_ns for status in after[1]
            ]
            assert before[0] == after[0]


def test_a_log_without_its_index_is_refused_not_ignored(tmp_path: Path) -> None:
    """immutable=1 is never used next to a -wal with content: it would hide new rows."""
    path = tmp_path / "x.db"
    with owned(tmp_path / "live.db"):
        copied(tmp_path / "live.db", path, ("", "-wal"))
    with pytest.raises(SessionUnreadableError, match="write-ahead log"):
        reading(str(path), count)


def test_readers_never_block_the_owner(tmp_path: Path) -> None:
    """S3.9, S3.26: no commit or checkpoint of the owner fails, and no reader sees half a commit."""
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
        for reader in readers:
            reader.start()
        try:
            commits, blocked = owner.do("ROUNDS 150")
        finally:
            stop.set()
            for reader in readers:
                reader.join()
    assert (commits, blocked) == (151, 0)
    assert wrong == []
    assert len(seen) > 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_checkpoint_during_a_read_repeats_the_read(tmp_path: Path, gone: bool) -> None:
    """What was read, or not found, while the owner checkpointed is dropped."""
    path = tmp_path / "x.db"
    create(path)
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


def descriptors(path: Path) -> int:
    """Count this process's open descriptors of a file."""
    return sum(
        os.path.realpath(f"/proc/self/fd/{fd}") == str(path) for fd in os.listdir("/proc/self/fd")
    )


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists descriptors in /proc")
def test_a_connection_that_is_held_open_sees_every_change(tmp_path: Path) -> None:
    """S3.9: also one in use twice, of a replaced file, or after an error; none stays open."""
    closed, path = tmp_path / "closed.db", tmp_path / "x.db"
    create(closed)
    with owned(path) as owner, held_open():
        for rows in (3, 4):
            assert reading(str(path), count) == rows
            assert descriptors(path) == 1
            owner.do("INSERT INTO pair VALUES (0, 0, 'x')")
        with opened(str(path)) as one, opened(str(path)) as other:
            one.execute("BEGIN")
            assert count(one) == count(other) == 5
        with pytest.raises(SessionUnreadableError):
            reading(str(path), lambda db: db.execute("SELECT * FROM nothing"))
        assert owner.do("ROUNDS 1")[1] == 0  # no checkpoint is blocked
        assert reading(str(path), count) == 40
        assert reading(str(closed), count) == 3
        create(tmp_path / "new.db")
        with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as db:
            db.execute("INSERT INTO pair VALUES (3, 0, 'x')")
        (tmp_path / "new.db").rename(closed)
        assert reading(str(closed), count) == 4
    assert descriptors(path) == descriptors(closed) == 0


def test_unreadable_databases_are_typed_errors(tmp_path: Path) -> None:
    """No database, an unknown schema, a missing file or a link."""
    path, other_db = tmp_path / "x.db", tmp_path / "y.db"
    path.write_bytes(b"this is no database, although it is long enough for one" * 100)
    with pytest.raises(SessionUnreadableError, match="file is not a database"):
        reading(str(path), count)
    create(other_db)
    with pytest.raises(SessionUnreadableError, match="no such table: missing"):
        reading(str(other_db), lambda db: db.execute("SELECT * FROM missing"))
    (tmp_path / "link.db").symlink_to(other_db)
    for gone in (tmp_path / "z.db", tmp_path / "z" / "y.db", tmp_path / "link.db"):
        with pytest.raises(FileNotFoundError):
            reading(str(gone), count)

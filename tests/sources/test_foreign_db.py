"""Another program's database: read, and never touched."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources import foreign_db
from indexerd.sources.foreign_db import opened, reading
from tests.sessions.foreign_owner import count, made

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "fixtures" / "real" / "opencode"
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
READER = """
import sys
from indexerd.sources import foreign_db
from indexerd.sources.foreign_db import opened, reading
if sys.argv.pop(1) == "plain":
    foreign_db.forbid_writing = lambda: False
asked = "SELECT count(*), sum(length(filler)) FROM pair"
for path in sys.argv[1:]:
    reading(path, lambda db: db.execute(asked).fetchone())
    with opened(path) as db:
        db.execute("BEGIN")
        db.execute("SELECT * FROM pair ORDER BY b").fetchall()
        db.execute("COMMIT")
"""


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


# -- what may be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_closed_database_is_read_and_left_as_it_was(tmp_path: Path, mode: str) -> None:
    """S3.9: no -wal, no -shm: read all the same, and no file appears beside it."""
    path = tmp_path / "a b%23?c.db"
    made(path, mode=mode)
    before = held(tmp_path)
    assert reading(str(path), count) == 3
    assert held(tmp_path) == before


def test_what_is_in_the_log_alone_is_seen(tmp_path: Path) -> None:
    """S3.9: the main file may be one page, with every row in the -wal."""
    path = tmp_path / "x.db"
    with owned(path, rows=5):
        assert path.stat().st_size == 4096
        before = held(tmp_path)
        assert reading(str(path), count) == 5
        assert held(tmp_path) == before


def test_a_log_left_by_a_process_that_ended_is_read(tmp_path: Path) -> None:
    """S3.9: -wal and -shm stay when a process is killed; nobody holds the index then."""
    path = tmp_path / "copy" / "x.db"
    with owned(tmp_path / "live.db", rows=4):
        copied(tmp_path / "live.db", path)
    before = held(path.parent)
    assert reading(str(path), count) == 4
    assert held(path.parent) == before


def test_an_emptied_log_is_no_reason_to_fail(tmp_path: Path) -> None:
    """A -wal of no bytes: after a TRUNCATE checkpoint, with its owner there or gone."""
    path, left, bare = tmp_path / "x.db", tmp_path / "left.db", tmp_path / "bare.db"
    with owned(path) as owner:
        owner.do("PRAGMA wal_checkpoint(TRUNCATE)")
        assert (tmp_path / "x.db-wal").stat().st_size == 0
        assert reading(str(path), count) == 3
        copied(path, left)
        copied(path, bare, ("", "-wal"))
    assert reading(str(left), count) == 3
    assert reading(str(bare), count) == 3


def test_a_log_without_its_index_is_refused_not_ignored(tmp_path: Path) -> None:
    """Never immutable=1 beside a -wal with content: it would hide all that is new."""
    path = tmp_path / "x.db"
    with owned(tmp_path / "live.db"):
        copied(tmp_path / "live.db", path, ("", "-wal"))
    with pytest.raises(SessionUnreadableError, match="write-ahead log") as raised:
        reading(str(path), count)
    assert raised.value.retryable


@pytest.mark.shared
def test_the_real_database_is_read_as_its_client_left_it(tmp_path: Path) -> None:
    """S3.9: opencode's own database, -wal and -shm beside it."""
    if not REAL.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    for one in REAL.glob("opencode.db*"):
        shutil.copy(one, tmp_path)
    before = held(tmp_path)
    asked = "SELECT (SELECT count(*) FROM session), (SELECT count(*) FROM part)"
    found = reading(str(tmp_path / "opencode.db"), lambda db: db.execute(asked).fetchone())
    assert found == (13, 210)
    assert held(tmp_path) == before


# -- what must not happen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM pair",
        "CREATE TABLE t (a)",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA journal_mode = DELETE",
        "VACUUM",
    ],
)
@pytest.mark.parametrize("live", [True, False])
def test_nothing_can_be_written(tmp_path: Path, statement: str, live: bool) -> None:
    """S3.9: whatever is asked of the connection, the database stays as it is."""
    path = tmp_path / "x.db"
    with ExitStack() as stack:
        if live:
            stack.enter_context(owned(path))
        else:
            made(path)
        before = held(tmp_path)
        with suppress(SessionUnreadableError), opened(str(path)) as db:
            db.execute(statement).fetchall()
        assert held(tmp_path) == before
        assert reading(str(path), count) == 3


def strace(arguments: list[str], log: Path) -> None:
    """Run the reader below strace."""
    names = (
        "open,openat,openat2,creat,fcntl,flock,write,pwrite64,writev,pwritev,pwritev2,truncate,"
        "ftruncate,fallocate,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,mkdir"
    )
    program = ["strace", "-f", "-y", "-e", f"trace={names}", "-e", "signal=none", "-o", str(log)]
    done = subprocess.run(
        [*program, sys.executable, "-c", READER, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if "PTRACE" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", ["landlock", "plain"])
def test_the_system_calls_show_that_nothing_is_written(tmp_path: Path, how: str) -> None:
    """S3.9: no open for writing, no file made, no write lock, no write, on any way of opening."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    closed, live, left = (tmp_path / f"{name}.db" for name in ("closed", "live", "left"))
    made(closed)
    with owned(live):
        copied(live, left)
        before = held(tmp_path)
        strace([how, *(str(one) for one in (closed, live, left))], tmp_path.parent / "calls")
        assert held(tmp_path) == before
    calls = (tmp_path.parent / "calls").read_text().splitlines()
    here = [line for line in calls if f"{tmp_path}/" in line]
    done = [line for line in here if not re.search(r"= -1 E(ACCES|BADF|NOENT)", line)]
    assert any("live.db-wal" in line for line in done)
    assert any("left.db-shm" in line for line in done)
    if how == "plain" or not landlock():  # the one thing that SQLite cannot be talked out of
        done = [line for line in done if not re.search(r'-wal", O_RDWR', line)]
    forbidden = re.compile(
        r"O_RDWR|O_WRONLY|O_CREAT|O_TRUNC|F_WRLCK|LOCK_EX"
        r"|\b(creat|p?writev?2?|pwrite64|f?truncate|fallocate|unlink(at)?|rename(at2?)?"
        r"|link(at)?|symlink|mkdir)\("
    )
    assert [line for line in done if forbidden.search(line)] == []


def landlock() -> bool:
    """Whether this system can take the right to write from a thread; asked of a thread."""
    answers: list[bool] = []
    asked = threading.Thread(target=lambda: answers.append(foreign_db.forbid_writing()))
    asked.start()
    asked.join()
    return answers[0]


def test_only_the_opening_thread_loses_the_right_to_write(tmp_path: Path) -> None:
    """The kernel forbids one thread to write; every other one may."""
    if not landlock():
        pytest.skip("this system has no Landlock")
    path = tmp_path / "x.db"
    made(path)
    assert reading(str(path), count) == 3
    (tmp_path / "by this thread").write_text("may")
    refused: list[type[BaseException]] = []

    def attempt() -> None:
        assert foreign_db.forbid_writing()
        try:
            (tmp_path / "by that thread").write_text("may not")
        except OSError as bad:
            refused.append(type(bad))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert refused == [PermissionError]


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


def test_an_owner_that_comes_while_we_look_makes_us_look_again(tmp_path: Path) -> None:
    """A torn look is noticed: what was read while somebody checkpointed is dropped."""
    path = tmp_path / "x.db"
    made(path)
    looks: list[int] = []

    def ask(db: sqlite3.Connection) -> int:
        found = count(db)
        if not looks:
            with closing(sqlite3.connect(path)) as owner, owner:
                owner.execute("INSERT INTO pair VALUES (7, 7, 'new')")
        looks.append(found)
        return found

    assert reading(str(path), ask) == 4
    assert looks == [3, 4]


def test_what_a_torn_look_did_not_find_is_looked_for_again(tmp_path: Path) -> None:
    """Half of a checkpoint can hide a row: it is not gone because of that."""
    path = tmp_path / "x.db"
    made(path)
    looks: list[int] = []

    def ask(db: sqlite3.Connection) -> int:
        looks.append(count(db))
        if len(looks) == 1:
            with closing(sqlite3.connect(path)) as owner, owner:
                owner.execute("INSERT INTO pair VALUES (7, 7, 'new')")
            raise FileNotFoundError("no such row")
        return looks[-1]

    assert reading(str(path), ask) == 4


def test_a_database_that_never_rests_is_given_up(tmp_path: Path) -> None:
    """The number of looks is bounded."""
    path = tmp_path / "x.db"
    made(path, mode="DELETE")
    looks: list[int] = []

    def ask(db: sqlite3.Connection) -> int:
        looks.append(count(db))
        with closing(sqlite3.connect(path)) as owner, owner:
            owner.execute("INSERT INTO pair VALUES (7, 7, 'new')")
        return 0

    with pytest.raises(SessionUnreadableError, match="changed while"):
        reading(str(path), ask)
    assert len(looks) == foreign_db.ATTEMPTS


def test_a_transaction_of_another_kind_is_waited_out(tmp_path: Path) -> None:
    """A rollback journal says that the main file may be half written."""
    path = tmp_path / "x.db"
    made(path, mode="DELETE")
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute("PRAGMA cache_size = 1")
        owner.execute("BEGIN IMMEDIATE")
        owner.executemany("INSERT INTO pair VALUES (1, 1, ?)", [("z" * 4000,)] * 50)
        with pytest.raises(SessionUnreadableError, match="being written"):
            reading(str(path), count)
        owner.execute("ROLLBACK")
        assert reading(str(path), count) == 3

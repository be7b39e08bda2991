"""The ledger: a cache that keeps its word while it lasts, and costs a re-read when it does not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from indexerd.errors import AccessError, StateError, WriteError
from indexerd.sources.cursor import Cursor
from indexerd.store.ledger import Ledger

PAGE = 4096


def cursor(n: int = 1) -> Cursor:
    """A position."""
    return Cursor(1, n, 100 + n, -1, 50 + n, 50, b"h" * 8, b"t" * 8)


Row = tuple[str, Cursor, bytes, bytes | None]
ROWS: list[Row] = [
    ("/s/a.jsonl", cursor(1), b"card a", b"state a"),
    ("/s/b.jsonl", cursor(2), b"", b""),
    ("/s/\u4e2d \n'\".jsonl", cursor(3), b"\x00card", b"x" * 100_000),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is."""
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """A new one."""
    made = Ledger(path)
    yield made
    made.close()


def content(ledger: Ledger) -> dict[str, tuple[Cursor, bytes, bytes | None]]:
    """Everything it knows of files."""
    return {path: (at, card, ledger.state(path)) for path, at, card in ledger.cards()}


def expected(rows: list[Row]) -> dict[str, tuple[Cursor, bytes, bytes | None]]:
    """The same, of what was put in."""
    return {path: (at, card, state) for path, at, card, state in rows}


def test_what_is_put_in_comes_out_after_a_restart(path: Path) -> None:
    """Cursor, card and state of each file, byte for byte; only the first opening is a new file."""
    first = Ledger(path)
    assert first.rebuilt
    assert content(first) == {}
    first.put(ROWS)
    assert content(first) == expected(ROWS)
    first.close()

    second = Ledger(path)
    assert not second.rebuilt
    assert content(second) == expected(ROWS)
    assert second.state("/never.jsonl") is None
    second.close()


def test_a_kill_loses_nothing_that_was_put(path: Path, ledger: Ledger) -> None:
    """V6: the write-ahead log holds it; nobody closed the ledger."""
    ledger.put(ROWS)

    other = Ledger(path)
    assert content(other) == expected(ROWS)
    other.close()


def test_it_is_the_users_alone(path: Path) -> None:
    """S2.22: the file and what SQLite puts beside it are 0600, whatever the umask."""
    old = os.umask(0)
    try:
        ledger = Ledger(path)
        ledger.put(ROWS)
        modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
        ledger.close()
    finally:
        os.umask(old)

    assert set(modes.values()) == {0o600}
    assert len(modes) == 3


def test_putting_again_replaces(ledger: Ledger) -> None:
    """The newest cursor, card and state count, together."""
    ledger.put(ROWS)
    ledger.put([("/s/a.jsonl", cursor(9), b"new card", b"new state")])

    assert content(ledger)["/s/a.jsonl"] == (cursor(9), b"new card", b"new state")
    assert len(content(ledger)) == 3


def test_without_a_state_the_old_one_stays(ledger: Ledger) -> None:
    """A sleeping session's card may change; of an unknown file nothing is kept without a state."""
    ledger.put(ROWS)
    ledger.put([("/s/a.jsonl", cursor(9), b"new card", None), ("/s/z", cursor(8), b"card", None)])

    assert content(ledger)["/s/a.jsonl"] == (cursor(9), b"new card", b"state a")
    assert "/s/z" not in content(ledger)


def test_a_batch_is_put_wholly_or_not(ledger: Ledger) -> None:
    """What was counted and where reading stopped never disagree: one transaction."""
    ledger.put(ROWS[:1])

    def rows() -> Iterator[Row]:
        yield ("/s/a.jsonl", cursor(9), b"new", b"new")
        raise RuntimeError("the caller failed")

    with pytest.raises(RuntimeError):
        ledger.put(rows())

    assert content(ledger) == expected(ROWS[:1])
    ledger.put(ROWS)
    assert content(ledger) == expected(ROWS)


def test_a_full_disk_leaves_the_ledger_as_it_was(ledger: Ledger, path: Path) -> None:
    """A3: SQLite's own SQLITE_FULL; nothing is half written or dropped, and it goes on later."""
    ledger.put(ROWS)
    ledger.note("retry", "a", b"1")
    big: Row = ("/big", cursor(5), b"", b"x" * 10**6)
    db = ledger._db
    assert db is not None
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages + 3}")

    for _ in range(3):
        with pytest.raises(WriteError):
            ledger.put([("/s/a.jsonl", cursor(9), b"n", b"n"), big])
        assert content(ledger) == expected(ROWS)

    db.execute("PRAGMA max_page_count=100000")
    ledger.put([big])
    assert len(content(ledger)) == 4
    assert ledger.notes("retry") == {"a": b"1"}
    assert path.exists()


def test_forgetting(ledger: Ledger) -> None:
    """A vanished file is dropped; one never known is no error."""
    ledger.put(ROWS)
    ledger.forget(["/s/a.jsonl", "/never"])

    assert content(ledger) == expected(ROWS[1:])
    assert ledger.state("/s/a.jsonl") is None


def test_what_was_dropped_while_somebody_read_goes_with_the_next_put(path: Path) -> None:
    """S2.23: another process holds the log as it is to be folded: it is folded later."""
    secret = b"zebrafish-7719"

    def holding() -> list[str]:
        return [one.name for one in path.parent.iterdir() if secret in one.read_bytes()]

    ledger = Ledger(path)
    ledger.put([("/s/a.jsonl", cursor(1), secret, secret)])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM files_3").fetchone()
    ledger.forget(["/s/a.jsonl"])
    ledger.fold()
    assert holding()
    reader.execute("ROLLBACK")
    ledger.put(ROWS[:1])
    assert holding() == []
    reader.close()
    ledger.close()


def test_notes_are_kept_by_topic_and_key(path: Path) -> None:
    """M13: what is noted, back-offs above all, survives a restart; None drops."""
    ledger = Ledger(path)
    ledger.note("retry", "a", b"1")
    ledger.note("retry", "b", b"\x00\xff")
    ledger.note("breaker", "a", b"3")
    ledger.note("retry", "a", b"2")
    ledger.close()

    ledger = Ledger(path)
    assert ledger.notes("retry") == {"a": b"2", "b": b"\x00\xff"}
    assert ledger.notes("breaker") == {"a": b"3"}
    assert ledger.notes("never") == {}
    ledger.note("retry", "a", None)
    ledger.note("retry", "never", None)
    assert ledger.notes("retry") == {"b": b"\x00\xff"}
    ledger.close()


def test_paths_that_are_no_utf8(ledger: Ledger) -> None:
    """W14: bytes are bytes; two that differ in an undecodable one are two."""
    names = [os.fsdecode(b"/s/\xff.jsonl"), os.fsdecode(b"/s/\xfe.jsonl"), "/s/\u00ff.jsonl"]
    ledger.put([(name, cursor(n), b"%d" % n, b"s%d" % n) for n, name in enumerate(names)])

    assert {name: state for name, (_, _, state) in content(ledger).items()} == {
        name: b"s%d" % n for n, name in enumerate(names)
    }
    ledger.forget(names[:1])
    assert set(content(ledger)) == set(names[1:])


# -- files that are not what they should be ---------------------------------------------------


def filled(path: Path) -> bytes:
    """The bytes of a ledger with many pages."""
    ledger = Ledger(path)
    ledger.put([(f"/s/{n}.jsonl", cursor(n), b"card" * 40, os.urandom(9000)) for n in range(60)])
    for n in range(300):
        ledger.note("retry", f"session-{n}", b"x" * 40)
    ledger.close()
    return path.read_bytes()


def usable(path: Path) -> bool:
    """Open it, do everything once, and say whether it had been made anew."""
    ledger = Ledger(path)
    rebuilt = ledger.rebuilt
    content(ledger)
    ledger.notes("retry")
    ledger.put(ROWS)
    ledger.note("retry", "new", b"1")
    ledger.forget(["/s/7.jsonl"])
    found = content(ledger)
    assert {name: found[name] for name in expected(ROWS)} == expected(ROWS)
    assert ledger.notes("retry")["new"] == b"1"
    ledger.close()
    again = Ledger(path)
    assert not again.rebuilt
    assert again.state("/s/a.jsonl") == b"state a"
    again.close()
    return rebuilt


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a database at all" * 1000, id="text"),
        pytest.param(b"\x00" * 10 * PAGE, id="zeros"),
        pytest.param(b"SQLite format 3\x00" + b"\xff" * 2 * PAGE, id="only its first words"),
    ],
)
def test_a_file_that_is_no_ledger_is_made_anew(path: Path, data: bytes) -> None:
    """V6: never a crash loop; the caller is told, by `rebuilt`, that it knows nothing."""
    path.write_bytes(data)

    assert usable(path)


@pytest.mark.parametrize("share", [1, 10, 50, 90, 99])
def test_a_file_that_lost_its_end_is_made_anew(path: Path, share: int) -> None:
    """V6: cut at any place."""
    whole = filled(path)
    path.write_bytes(whole[: len(whole) * share // 100])

    usable(path)


def test_damage_on_any_page_is_survived(path: Path) -> None:
    """V6: found at once or only when that page is read: less is known then, and nothing raises."""
    whole = filled(path)
    pages = len(whole) // PAGE
    for page in range(0, pages, max(1, pages // 40)):
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        data = bytearray(whole)
        data[page * PAGE : (page + 1) * PAGE] = b"\xa5" * PAGE
        path.write_bytes(data)
        usable(path)


@pytest.mark.parametrize("version", [0, 2, 99, -1])
def test_a_ledger_of_another_version_is_made_anew(path: Path, version: int) -> None:
    """V6: older or newer; its tables have other names, and its content is not guessed at."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE files_0 (path BLOB PRIMARY KEY, other TEXT)")
        db.execute("INSERT INTO files_0 VALUES (x'61', 'old')")
        db.execute(f"PRAGMA user_version={version}")
    db.close()

    rebuilt = usable(path)

    assert rebuilt


VALUES = {
    "UPDATE files_3 SET cursor=x'ff'": Ledger.cards,
    "UPDATE files_3 SET cursor=7": Ledger.cards,
    "UPDATE files_3 SET path=1.5 WHERE path=x'2f732f622e6a736f6e6c'": Ledger.cards,
    "UPDATE files_3 SET card=NULL": Ledger.cards,
    "UPDATE files_3 SET state='text'": lambda ledger: ledger.state("/s/a.jsonl"),
    "UPDATE notes_3 SET key=CAST(x'ff' AS TEXT)": lambda ledger: ledger.notes("topic"),
    "UPDATE notes_3 SET value=1": lambda ledger: ledger.noted("topic", "a"),
    "UPDATE notes_3 SET value=x'ff'": lambda ledger: ledger.notes("topic", int),
}


@pytest.mark.parametrize("sql", VALUES)
def test_a_value_that_was_not_put_is_damage(path: Path, sql: str) -> None:
    """V6: of another kind, no UTF-8, of no use: set aside and made anew, which is said once."""
    said: list[str] = []
    ledger = Ledger(path, said.append)
    ledger.put(ROWS)
    ledger.note("topic", "a", b"1")
    db = ledger._db
    assert db is not None
    db.execute(sql)

    assert not VALUES[sql](ledger)
    assert content(ledger) == {}
    ledger.put(ROWS)
    assert content(ledger) == expected(ROWS)
    assert len(said) == 1
    assert path.with_name("ledger.sqlite.aside").exists()
    ledger.close()


def test_a_defect_costs_one_ledger(path: Path) -> None:
    """V6: what cannot be read twice is no reason to begin anew again; it is told, and goes on."""

    def bad(_: bytes) -> None:
        raise KeyError

    ledger = Ledger(path)
    for _ in range(3):
        ledger.note("topic", "a", b"1")
        with suppress(StateError):
            ledger.notes("topic", bad)
    assert ledger.problem
    assert ledger.notes("topic") == {"a": b"1"}
    ledger.close()


def test_a_byte_that_nobody_would_miss_is_damage(path: Path) -> None:
    """V6: the file is not as it was left, although SQLite finds nothing wrong with it."""
    data = bytearray(filled(path))
    data[data.index(b"cardcard")] ^= 1
    path.write_bytes(data)
    assert usable(path)


def test_a_ledger_in_use_is_not_thrown_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """V6: another process holds it for a moment; that is no damage, and is told as such."""
    ledger = Ledger(path)
    ledger.put(ROWS)
    ledger.close()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda at, **rest: connect(at, timeout=0.05, **rest))
    other = connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(WriteError):
        Ledger(path)

    other.execute("COMMIT")
    other.close()
    again = Ledger(path)
    assert not again.rebuilt
    assert content(again) == expected(ROWS)
    again.close()


def test_a_place_that_takes_no_file_is_told(tmp_path: Path) -> None:
    """A4: a missing directory, or a directory in the file's place; nothing there is removed."""
    with pytest.raises(AccessError):
        Ledger(tmp_path / "missing" / "ledger.sqlite")
    (tmp_path / "ledger.sqlite").mkdir()
    with pytest.raises(AccessError):
        Ledger(tmp_path / "ledger.sqlite")
    assert (tmp_path / "ledger.sqlite").is_dir()

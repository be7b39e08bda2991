"""The logs of our databases are brought into their files beside whoever writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from indexerd.io.catalog import Catalog
from indexerd.io.wal import Log

WORDS = "A widget that turns, and turns again."


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """An open catalog with some messages, all of them in its log."""
    held = Catalog.open(tmp_path / "catalog.sqlite")
    for number in range(20):
        said = [(f"m{number}-{n}", "user", "", f"{WORDS} {n}") for n in range(50)]
        held.add_messages(f"s{number}", said)
    yield held
    held.close()


def alone(path: Path) -> int:
    """Messages in the file without its log, as a copy tells."""
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as db:
        return int(db.execute("SELECT count(*) FROM message").fetchone()[0])


def test_a_log_is_folded_while_somebody_writes(catalog: Catalog, tmp_path: Path) -> None:
    """F9: what was written is in the file itself, and the writer's transaction goes on."""
    path = tmp_path / "catalog.sqlite"
    with catalog.batch():
        catalog.add_messages("last", [("m", "user", "", WORDS)])
        other = threading.Thread(target=catalog.log.fold)
        other.start()
        other.join(20)
        assert not other.is_alive()
        assert alone(path) == 20 * 50
    catalog.log.fold()
    assert alone(path) == 20 * 50 + 1


def test_a_file_that_is_gone_is_not_made_by_folding(tmp_path: Path) -> None:
    """Where the state directory was emptied, a fold leaves no empty database behind."""
    Log(tmp_path / "catalog.sqlite").fold()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_database_holds_nobody_up(tmp_path: Path) -> None:
    """A fold that cannot be is left for another time."""
    (tmp_path / "ledger.sqlite").write_bytes(b"nothing of the kind" * 100)
    Log(tmp_path / "ledger.sqlite").fold()


def test_all_is_brought_in_although_another_folds(catalog: Catalog, tmp_path: Path) -> None:
    """X5: what was scoured is not left in the log because two folded at a time."""
    path = tmp_path / "catalog.sqlite"
    ended = threading.Event()

    def fold() -> None:
        while not ended.is_set():
            catalog.log.fold()

    other = threading.Thread(target=fold)
    other.start()
    try:
        for number in range(10):
            catalog.add_messages("more", [(f"n{number}", "user", "", WORDS)])
            for _ in catalog.scour():
                pass
            size = path.with_name("catalog.sqlite-wal").stat().st_size
            assert size < 3 * 4152  # a header, and that nothing more is owed
    finally:
        ended.set()
        other.join(20)

"""io/catalog_file: the file may be lost, damaged, foreign or shared; nothing else is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import AccessError, StateError, WriteError
from indexerd.store.catalog import Catalog
from tests.store.catalog_rows import fill, hits, ids, row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the catalog is."""
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    """An empty catalog."""
    found = Catalog.open(path)
    yield found
    found.close()


# The file.


def test_a_new_file_is_the_owner_s_alone(catalog: Catalog, path: Path) -> None:
    """What people said to their agents is nobody else's to read."""
    fill(catalog, row("a"))
    assert catalog.rebuilt
    for one in path.parent.iterdir():
        assert one.stat().st_mode & 0o077 == 0


def test_a_closed_catalog_keeps_its_rows(path: Path) -> None:
    """What was put is there when the file is opened again, and nothing has to be filled."""
    first = Catalog.open(path)
    fill(first, row("a"))
    first.close()
    first.close()
    with pytest.raises(StateError):
        first.get("a")
    second = Catalog.open(path)
    assert (second.rebuilt, second.count()) == (False, 1)
    second.close()


def _version(path: Path, version: int) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {version}")
    db.commit()
    db.close()


def _damage(path: Path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"not a database" * 1000)
    elif how == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "foreign":
        path.unlink()
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE other (x)")
        db.close()
    elif how == "tables missing":
        db = sqlite3.connect(path)
        db.execute("DROP TABLE record")
        db.close()
    else:
        _version(path, int(how))


DAMAGE = ["garbage", "cut", "foreign", "tables missing", "0", "-1", "999"]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_file_that_is_of_no_use_is_made_anew(path: Path, how: str) -> None:
    """V6: damaged, older, newer: set aside and begun again, which is said."""
    first = Catalog.open(path)
    fill(first, *(row(f"s{n}") for n in range(200)))
    first.close()
    _damage(path, how)
    bad = path.read_bytes()
    second = Catalog.open(path)
    assert (second.rebuilt, second.count()) == (True, 0)
    fill(second, row("a"))
    assert hits(second, "name of a") == [("a", "name")]
    second.close()
    assert path.with_name("catalog.sqlite.aside").stat().st_size == len(bad)


@pytest.mark.parametrize("how", [*DAMAGE, "missing"])
def test_a_reader_makes_do_without_a_file(path: Path, how: str) -> None:
    """A command without a daemon gets no rows and a reason, and leaves the file as it is."""
    if how != "missing":
        first = Catalog.open(path)
        fill(first, *(row(f"s{n}") for n in range(200)))
        first.close()
        _damage(path, how)
    before = path.read_bytes() if path.exists() else None
    reader = Catalog.open(path, readonly=True)
    assert reader.problem
    assert (reader.count(), reader.list().rows, reader.known()) == (0, (), ())
    assert reader.search("name").hits == ()
    assert reader.messages_mark("s1") is None
    with pytest.raises(StateError):
        fill(reader, row("a"))
    reader.close()
    assert (path.read_bytes() if path.exists() else None) == before


def test_damage_that_shows_late_is_made_good_at_the_next_start(path: Path) -> None:
    """V6: a page gone bad in the middle is a typed error now, and an empty catalog next time."""
    first = Catalog.open(path)
    fill(first, *(row(f"s{n}", description="word " * 200) for n in range(300)))
    first.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 3)
        file.write(b"\xff" * (size // 2))
    second = Catalog.open(path)
    with pytest.raises(StateError) as raised:
        [second.get(f"s{n}") for n in range(300)]
    assert "anew" in raised.value.hint
    second.close()
    third = Catalog.open(path)
    assert (third.rebuilt, third.count()) == (True, 0)
    third.close()
    fourth = Catalog.open(path)
    assert not fourth.rebuilt
    fourth.close()


def test_a_full_disk_loses_no_more_than_what_was_being_put(path: Path) -> None:
    """W: a write that SQLite refuses is a WriteError; what was there before is there still."""
    catalog = Catalog.open(path)
    fill(catalog, row("a"))
    writer = catalog._writer
    assert writer is not None
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = [row(f"s{n}", description="word " * 2000) for n in range(50)]
    with pytest.raises(WriteError):
        fill(catalog, *big)

    def swallow() -> None:
        with catalog.batch():
            fill(catalog, row("b"))
            with pytest.raises(WriteError):
                fill(catalog, *big)

    with pytest.raises(WriteError):
        swallow()
    assert ids(catalog) == ["a"]
    writer.execute("PRAGMA max_page_count = 1000000")
    fill(catalog, *big)
    assert catalog.count() == 51
    catalog.close()


def test_a_place_that_cannot_be_used_is_an_access_error(tmp_path: Path) -> None:
    """Where there can be no file, the error says which and why."""
    with pytest.raises(AccessError, match="catalog"):
        Catalog.open(tmp_path / "missing" / "catalog.sqlite")
    (tmp_path / "directory").mkdir()
    with pytest.raises(AccessError):
        Catalog.open(tmp_path / "directory")


def test_a_reader_sees_what_another_process_writes(path: Path) -> None:
    """A command reads beside a daemon that goes on writing, and never sees half of a batch."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin
    assert writer.stdout
    try:
        assert writer.stdout.readline() == "half\n"
        reader = Catalog.open(path, readonly=True)
        assert (reader.problem, reader.count()) == (None, 1)
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "whole\n"
        assert reader.count() == 3
        writer.kill()
        writer.wait(timeout=20)
        assert sorted(ids(reader)) == ["a", "b", "c"]
        reader.close()
    finally:
        writer.kill()
        writer.communicate(timeout=20)
    after = Catalog.open(path)
    assert (after.rebuilt, after.count()) == (False, 3)
    after.close()


WRITER = """
import sys
from pathlib import Path
from indexerd.store.catalog import Catalog, SearchText
catalog = Catalog.open(Path(sys.argv[1]))
put = lambda one: catalog.put([({"sessionId": one, "name": one}, SearchText())])
put("a")
with catalog.batch():
    put("b")
    print("half", flush=True)
    sys.stdin.readline()
    put("c")
print("whole", flush=True)
sys.stdin.readline()
"""


def test_any_thread_may_read_while_one_writes(catalog: Catalog) -> None:
    """Readers in several threads see whole states only, and each has its own connection."""
    fill(catalog, row("a", 0, messageCount=0), row("b", 0, messageCount=0))
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        for _ in range(100_000):
            counts = {one["messageCount"] for one in catalog.list().rows}
            found = {hit["sessionId"] for hit in catalog.search("name").hits}
            if len(counts) != 1 or found != {"a", "b"}:
                wrong.append((counts, found))
            if done.is_set():
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(60):
        fill(catalog, row("a", n, messageCount=n), row("b", n, messageCount=n))
    done.set()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_reading_needs_the_standard_library_only() -> None:
    """Hooks open the catalog when no daemon runs: nothing heavy is imported for it."""
    code = (
        "import sys, indexerd.store.catalog, indexerd.search.names;"
        "heavy = {'msgspec', 'pydantic', 'rapidfuzz', 'structlog', 'click', 'rich', 'asyncio'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.strip() == "[]"


def test_a_byte_that_nobody_would_miss_is_damage(path: Path) -> None:
    """V6: the file is not as it was left, although SQLite finds nothing wrong with it."""
    first = Catalog.open(path)
    fill(first, *(row(f"s{n}", description="word " * 200) for n in range(30)))
    first.close()
    data = bytearray(path.read_bytes())
    data[data.rindex(b"word word")] ^= 1
    path.write_bytes(data)
    said: list[str] = []
    second = Catalog.open(path, report=said.append)
    assert second.get("s1")
    second.check()
    assert (second.damaged, len(said)) == (True, 1)
    assert second.renew()
    assert (second.rebuilt, second.count(), len(said)) == (True, 0, 1)
    fill(second, row("a"))
    second.close()
    third = Catalog.open(path)
    third.check()
    assert (third.rebuilt, third.damaged, third.count()) == (False, False, 1)
    third.close()


def test_a_row_that_is_no_row_is_damage(path: Path) -> None:
    """V6: broken JSON, no UTF-8; once, and then it is told for as long as the process runs."""
    said: list[str] = []
    catalog = Catalog.open(path, report=said.append)
    for sql in ("UPDATE record SET row = '{'", "UPDATE record SET row = CAST(x'ff' AS TEXT)"):
        fill(catalog, row("a"))
        writer = catalog._writer
        assert writer is not None
        writer.execute(sql)
        with pytest.raises(StateError):
            catalog.get("a")
        assert catalog.damaged
        catalog.renew()
    assert len(said) == 2
    assert catalog.problem
    catalog.close()


def test_words_of_a_purged_session_are_not_in_what_was_set_aside(path: Path) -> None:
    """S2.23: it goes with the first thing that is to be forgotten."""
    first = Catalog.open(path)
    fill(first, row("a"))
    first.close()
    path.write_bytes(b"not a database" * 1000)
    second = Catalog.open(path)
    aside = path.with_name("catalog.sqlite.aside")
    assert aside.exists()
    second.stored_under("mark")
    assert not aside.exists()
    second.close()

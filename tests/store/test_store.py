"""The store: what it keeps, and what damage, a full disk or a lock do to it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import StateError, WriteError
from indexerd.store.store import StateStore, named
from tests.store.rows import row

HASH = 7


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    found = StateStore(tmp_path / "store.sqlite")
    yield found
    found.close()


def put(store: StateStore, *rows: dict[str, object]) -> list[str]:
    """Add rows, and which of them are due."""
    return store.put((row, named(row), HASH) for row in rows)


def listed(store: StateStore, **filters: Any) -> tuple[list[str], str | None]:
    """The ids of a page, and the cursor of the next one."""
    rows, cursor = store.page(**filters)
    return [row["sessionId"] for row in rows], cursor


def ids(store: StateStore, **filters: Any) -> list[str]:
    return listed(store, **filters)[0]


def test_a_lock_is_not_treated_as_damage(store: StateStore, tmp_path: Path) -> None:
    """Nothing is dropped, and readers go on."""
    put(store, row("a"))
    with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store._writer.execute("PRAGMA busy_timeout = 1")  # type: ignore[union-attr]  # a writer has one
        with pytest.raises(WriteError):
            put(store, row("b"))
        assert store.get("a")
        other.execute("ROLLBACK")
    assert not store.damaged
    assert put(store, row("b")) == ["b"]


def test_a_reader_gets_an_empty_store_and_a_problem(tmp_path: Path) -> None:
    """S3.26: whatever is wrong with the file, and nothing is created."""
    path = tmp_path / "store.sqlite"
    with closing(StateStore(path, readonly=True)) as store:
        assert (len(store.ids()), bool(store.problem), path.exists()) == (0, True, False)
        with pytest.raises(StateError):
            store.note("t", "k", b"")
    path.write_bytes(b"no database" * 1000)
    with closing(StateStore(path, readonly=True)) as store:
        assert (ids(store), bool(store.problem)) == ([], True)


@pytest.mark.parametrize("sort", ["recent", "cost", "longest", "prompts"])
def test_pages_in_every_order_have_each_row_once(store: StateStore, sort: str) -> None:
    """S3.6: the largest first, equal and unknown values by id; counts are those of the pages."""
    values = [0, 5, 5, None, 2, None, 1]
    rows = [
        row(f"s{n}", n % 3, costUsd=value, durationMs=value, userMessageCount=value, agent="pi")
        for n, value in enumerate(values)
    ]
    put(store, *rows, row("x", agent="claude"), row("sub", subagent=True))
    found, cursor = listed(store, sort=sort, agent="pi", limit=3)
    while cursor:
        more, cursor = listed(store, sort=sort, agent="pi", limit=3, cursor=cursor)
        found += more
    unknown = 0 if sort == "prompts" else -1
    keys = {f"s{n}": -(unknown if value is None else value) for n, value in enumerate(values)}
    keys = {f"s{n}": -(n % 3) for n in range(len(values))} if sort == "recent" else keys
    assert found == sorted(keys, key=lambda session: (keys[session], session))
    assert store.count("agent") == {"pi": 7, "claude": 1}
    assert store.count("agent", agent="pi", subagents=True) == {"pi": 8}

"""What the catalog owes and answers, whoever writes, begins again or ends meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexerd.store.catalog import Catalog, SearchText


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with nothing in it."""
    held = Catalog.open(tmp_path / "catalog.sqlite")
    yield held
    held.close()


def add(catalog: Catalog, session_id: str, parent: str = "", *said: str) -> None:
    """Put a session in; of `said`, equal texts are copies of each other."""
    row = {"sessionId": session_id, "name": "n", "cwd": "/w", "parentSessionId": parent}
    catalog.put([(row, SearchText())])
    catalog.add_messages(session_id, [(text, "user", "", text) for text in said])


def test_a_session_forgotten_for_good_is_owed_a_scouring(catalog: Catalog, tmp_path: Path) -> None:
    """V12: the words that are still in the indexes are not left there by a kill."""
    add(catalog, "kept", "", "something")
    add(catalog, "a", "", "unforgettable")
    catalog.forget("kept")
    assert not catalog.owes_scour
    catalog.forget("a", wholly=True)
    catalog.close()
    again = Catalog.open(tmp_path / "catalog.sqlite")
    assert again.owes_scour
    for more in again.scour():
        assert again.owes_scour is more
    again.close()
    assert b"unforgettable" not in (tmp_path / "catalog.sqlite").read_bytes()


def test_a_scouring_pays_nothing_that_a_later_one_has_begun(catalog: Catalog) -> None:
    """V12: a purge scours while what is owed otherwise is scoured, too."""
    for name in ("a", "b"):
        add(catalog, name, "", f"said {name}")
    catalog.forget("a", wholly=True)
    first = catalog.scour()
    next(first)
    catalog.forget("b", wholly=True)
    second = catalog.scour()
    next(second)
    for _ in first:
        pass
    assert catalog.owes_scour
    for _ in second:
        pass
    assert not catalog.owes_scour


def between(catalog: Catalog, statement: str, change: Callable[[], None]) -> None:
    """Do something once, right before this thread's reader begins such a statement."""
    waiting = [change]

    def look(begun: str) -> None:
        if begun.startswith(statement) and waiting:
            waiting.pop()()

    reader: sqlite3.Connection = catalog._reader()
    reader.set_trace_callback(look)


def test_children_are_those_of_one_moment(catalog: Catalog) -> None:
    """A session whose parent comes to be known by another name is no session less for that."""
    add(catalog, "child", "/its/file")
    asked = iter(["parent", "/its/file"])

    def parents() -> Iterator[str]:
        yield next(asked)
        add(catalog, "child", "parent")
        yield next(asked)

    assert [one.session_id for one in catalog.children(parents())] == ["child"]
    assert [one.parent for one in catalog.children(["parent", "/its/file"])] == ["parent"]


def test_how_a_session_went_on_is_told_of_one_moment(catalog: Catalog) -> None:
    """Another session may get a forgotten one's number; it is not taken for that."""
    add(catalog, "parent", "", "one", "two", "three")
    add(catalog, "child", "parent", "one", "two", "three", "four")

    def change() -> None:
        catalog.forget("child")
        add(catalog, "other", "parent", "one", "two", "new")

    between(catalog, "SELECT id, copy, role, text", change)
    assert catalog.carry_on([("parent", "child")]) == {"child": True}
    assert catalog.carry_on([("parent", "child"), ("parent", "other")]) == {
        "child": None,
        "other": False,
    }

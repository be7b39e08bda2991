"""A purged session whose row could not be dropped at once: its words go all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indexerd.daemon.purge import Purge
from indexerd.daemon.reader import Reader
from indexerd.errors import WriteError
from indexerd.store.catalog import Catalog
from tests.e2e.world import Session
from tests.store.one_store import library_of


def test_what_is_dropped_late_is_scoured_without_another_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V12: the disk was full as it was purged; what reads texts had settled long before."""
    library = library_of(tmp_path)
    catalog = library.catalog

    def settle() -> None:
        while library.texts.due:
            library.texts.some()

    def full(*_: Any, **__: Any) -> None:
        raise WriteError("the catalog cannot be used now: disk is full")

    library.load()
    session = Session(tmp_path / "sessions/--w--")
    session.turn("zebrafish one")
    for _ in library.scan():
        pass
    settle()
    library.files.exclusions.forgotten = frozenset({session.id})
    library.files.exclusions.changed()
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "forget", full)
        library.reconsider()
    assert library.trouble is not None
    for _ in library.scan():
        pass
    assert catalog.get(session.id) is None
    settle()
    assert not catalog.owes_scour
    library.close()


def test_a_scouring_that_fails_is_owed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2.23: the disk fills up half way through a purge; its words go without another start."""
    library = library_of(tmp_path)
    catalog, scour, woken = library.catalog, Catalog.scour, list[bool]()
    session = Session(tmp_path / "sessions/--w--")
    session.turn("zebrafish one")
    library.load()
    for _ in library.scan():
        pass
    while library.texts.due:
        library.texts.some()

    def half_way(held: Catalog) -> Iterator[bool]:
        yield next(scour(held))
        raise WriteError("the catalog cannot be used now: disk is full")

    async def purged() -> None:
        read = Reader()
        pipeline: Any = SimpleNamespace(
            library=library, read=read, owe=lambda: woken.append(library.texts.due)
        )
        nobody: Any = None
        purge = Purge(
            pipeline, nobody, nobody, writer=nobody, forgotten=nobody, forget=(), clock=time.time
        )
        try:
            with pytest.raises(WriteError):
                await purge._scour()
        finally:
            read.close()

    catalog.forget(session.id, wholly=True)
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "scour", half_way)
        asyncio.run(purged())
    assert woken == [True]
    while library.texts.due:
        library.texts.some()
    assert not catalog.owes_scour
    library.close()
    files = list(tmp_path.rglob("catalog.sqlite*"))
    assert files
    assert not [one.name for one in files if b"zebrafish" in one.read_bytes()]

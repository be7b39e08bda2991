"""A purged session whose row could not be dropped at once: its words go all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import WriteError
from indexerd.io.catalog import Catalog
from tests.e2e.world import Session
from tests.service.one_store import library_of


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

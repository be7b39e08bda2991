"""A library of one pi store, which every test fills for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexerd.daemon.library import Library
from indexerd.sources.stores import Store
from tests.store.rows import caches


def library_of(root: Path) -> Library:
    """Sessions, meta files, ledger and catalog below one directory; nothing is loaded yet."""
    store = Store("pi", str(root / "sessions"), str(root / "meta"))
    return Library(
        *caches(root),
        stores=lambda: [store],
        exclude=list,
        report=lambda *_: None,
        defect=lambda path, bug: pytest.fail(f"{path}: {bug!r}"),
    )

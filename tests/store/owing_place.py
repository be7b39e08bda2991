"""Sessions, a disk that is full at times, and a flow over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from indexerd.daemon.library import Library
from indexerd.errors import WriteError
from indexerd.sources.stores import Store
from indexerd.store.catalog import Catalog
from indexerd.store.ledger import Ledger
from tests.e2e.world import Session


class Faults:
    """Fails one write, counted from now on."""

    def __init__(self) -> None:
        self.left = 0
        self.fired = False

    def hit(self) -> None:
        """Say that something is to be written."""
        self.left -= 1
        if self.left == 0:
            self.fired = True
            raise WriteError("no space is left on the device")


class BadLedger(Ledger):
    """A ledger on a disk that is full at times."""

    faults = Faults()

    def put(self, *args: Any) -> None:
        """As the ledger does."""
        self.faults.hit()
        super().put(*args)

    def forget(self, *args: Any) -> None:
        """As the ledger does."""
        self.faults.hit()
        super().forget(*args)

    def note(self, *args: Any) -> None:
        """As the ledger does."""
        self.faults.hit()
        super().note(*args)


class BadCatalog(Catalog):
    """A catalog on a disk that is full at times."""

    faults = Faults()

    def put(self, *args: Any) -> int:
        """As the catalog does."""
        self.faults.hit()
        return super().put(*args)

    def forget(self, *args: Any) -> None:
        """As the catalog does."""
        self.faults.hit()
        super().forget(*args)

    def add_messages(self, *args: Any, **more: Any) -> int:
        """As the catalog does."""
        self.faults.hit()
        return super().add_messages(*args, **more)


class Place:
    """One store, and libraries of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "agent/sessions/--w--"
        self.metas = root / "agent/sessions-meta"
        self.metas.mkdir(parents=True)
        self.excluded: list[str] = []
        self.faults = Faults()

    def library(self, state: str) -> Library:
        """A library over caches of its own."""
        home = self.root / state
        home.mkdir(exist_ok=True)
        ledger = BadLedger(home / "ledger.sqlite")
        catalog = BadCatalog.open(home / "catalog.sqlite")
        ledger.faults = catalog.faults = self.faults
        return Library(
            ledger,
            catalog,
            stores=lambda: [Store("pi", f"{self.root}/agent/sessions", str(self.metas))],
            exclude=lambda: self.excluded,
            report=lambda *_: None,
            defect=_no_defect,
        )

    def meta(self, session: Session) -> None:
        """Another hand describes a session."""
        held = {
            "schemaVersion": 1,
            "sessionId": session.id,
            "sessionFile": str(session.path),
            "name": "Adjust the widgets",
            "description": "Widgets are adjusted.",
            "summary": "All of them.",
            "tags": ["widgets"],
            "cwd": "/w",
            "createdAt": "2026-11-21T10:00:00.000Z",
            "updatedAt": "2026-11-21T10:00:00.000Z",
            "model": "other/model",
            "lastIndexedLeafId": session.last,
        }
        (self.metas / f"{session.id}.meta.json").write_text(json.dumps(held))


def _no_defect(path: str, bug: Exception) -> None:
    raise AssertionError(path) from bug

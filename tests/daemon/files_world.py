"""Files of every kind that come, grow and go, and what is known of them."""

from __future__ import annotations

from pathlib import Path

from indexerd.daemon.files import Files
from indexerd.sources.scan import scan
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore


class World:
    """The stores of three agents in one directory, and readers of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stores = [
            Store("pi", f"{root}/pi/sessions", f"{root}/meta"),
            Store("claude", f"{root}/claude/projects", f"{root}/meta"),
            Store("codex", f"{root}/codex/sessions", f"{root}/meta"),
            Store("codex", f"{root}/codex/archived_sessions", f"{root}/meta", archive=True),
        ]
        for store in self.stores:
            Path(store.sessions).mkdir(parents=True)

    def reader(self, ledger: Path) -> Files:
        """Files over a ledger that may hold something already."""
        files = Files(
            StateStore(ledger),
            stores=lambda: self.stores,
            since=lambda _: None,
            title=lambda _agent, _id: None,
            exclude=list,
            defect=self.defect,
        )
        files.load()
        return files

    @staticmethod
    def defect(path: str, bug: Exception) -> None:
        """No file may provoke one."""
        raise AssertionError(path) from bug

    def look(self, files: Files) -> None:
        """One reconciling scan."""
        found = scan([store.sessions for store in self.stores]).files
        gone = files.missing(found, lambda _: False)
        for _ in files.refresh([*files.differing(found), *gone]):
            pass

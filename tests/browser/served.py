"""A home with a daemon and a web view, to which tests add sessions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser.exported import FORKED
from tests.browser.site import Site, site
from tests.browser.tabs import Tabs
from tests.e2e.world import World, until
from tests.sessions.tree_sessions import line, said

if TYPE_CHECKING:
    from playwright.sync_api import Page

STAMP = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class Placed:
    """A pi session in the home."""

    id: str
    path: Path

    def append(self, *entries: bytes) -> None:
        """It goes on."""
        with self.path.open("ab") as file:
            file.write(b"".join(entries))

    def say(self, entry_id: str, parent: str, role: str, text: str, **more: Any) -> None:
        self.append(said(entry_id, parent, role, text, **more))


@dataclass(frozen=True, slots=True)
class Served:
    """A running daemon and its web view."""

    world: World
    running: Site
    cookies: list[Any]

    def put(
        self,
        entries: list[bytes] | None = None,
        *,
        cwd: str = "/w",
        parent: str = "",
        name: str = "",
    ) -> Placed:
        """Write a new session, by default with two branches, and wait until the daemon lists it."""
        key = str(uuid.uuid4())
        head = {"type": "session", "version": 3, "id": key, "timestamp": STAMP, "cwd": cwd}
        head |= {"parentSession": parent} if parent else {}
        lines = [line(**head), *(FORKED if entries is None else entries)]
        if name:
            info = {"type": "session_info", "id": "name0", "parentId": json.loads(lines[-1])["id"]}
            lines.append(line(**info, timestamp=STAMP, name=name))
        path = self.world.sessions / f"2026-01-01T00-00-00-000Z_{key}.jsonl"
        path.write_bytes(b"".join(lines))
        until(lambda: self.world.row(key), f"session {key}")
        return Placed(key, path)

    def open(self, tabs: Tabs, path: str, **how: Any) -> Page:
        """A page of the view, in a browser with a valid cookie."""
        return tabs.open(self.running.origin + path, cookies=self.cookies, **how)


@contextmanager
def served(root: Path) -> Iterator[Served]:
    """A home that pi has used, with a daemon and a web view."""
    world = World(root / "w")
    world.install_pi()
    with world.daemon(), site(world) as running:
        yield Served(world, running, running.cookies())

"""A service of context sets over real files, with sessions of pi's to hang them on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from indexerd.daemon.answers import Place, is_fork, stored
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.methods import stored_methods
from indexerd.daemon.pipeline import Reader
from indexerd.daemon.sidecar import Contexts, Resumes, Sidecars
from indexerd.errors import (
    NotFoundError,
)
from indexerd.logs import get_logger
from indexerd.meta.model import UserFile
from indexerd.meta.writer import MetaWriter
from indexerd.protocol.methods import asked
from indexerd.store.store import StateStore


class Slow(MetaWriter):
    """A writer that can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.may.set()
        self.begun = threading.Event()

    def write_user(self, directory: Path, session_id: str, user: UserFile) -> Any:
        self.begun.set()
        assert self.may.wait(10)
        return super().write_user(directory, session_id, user)


class Shop:
    """Sidecars and contexts over a directory, with the rest of a daemon left out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1_800_000_000.0
        self.rows: dict[str, dict[str, Any]] = {}
        self.writer = Slow()
        self.bus = EventBus(get_logger(), self.clock)
        self.heard: list[dict[str, Any]] = []
        self.bus.subscribe(self.heard.append)
        self.kept: list[dict[str, Any]] = []
        self.rewritten: list[str] = []
        self.open()
        self.session("a", cwd="/w")

    def clock(self) -> float:
        self.now += 1
        return self.now

    def open(self) -> None:
        """Start, as a daemon does, from what is on the disk."""
        self.ledger = StateStore(self.root / "store.sqlite")
        self.reader = Reader()
        pipeline = SimpleNamespace(
            library=SimpleNamespace(home=lambda _session_id: str(self.root / "metas")),
            read=self.reader,
            rewritten=self._rewritten,
            bus=self.bus,
            scanned=asyncio.Event(),
        )
        pipeline.scanned.set()
        answers = SimpleNamespace(
            row=self._row,
            certain=self._row,
            by_id=self._row,
            forks=self._forks,
            home=pipeline.library.home,
        )
        answers.held = lambda row: asyncio.run(self.sidecars.held(row))
        self.sidecars = Sidecars(cast("Any", pipeline), cast("Any", answers), self.writer)
        self.resumes = Resumes(self.ledger, self.reader, self.clock)
        self.contexts = Contexts(
            self.sidecars,
            cast("Any", answers),
            self.bus,
            resumes=self.resumes,
            record=lambda row: self.kept.append(dict(row)),
            clock=self.clock,
        )
        for name in ("list", "get", "resolve", "complete"):
            setattr(answers, name, None)
        stored = stored_methods(cast("Any", answers))
        self.methods = {
            "set_relevant_context": self.contexts.set,
            "resume_context": self.contexts.resume,
            "get_relevant_context": stored["get_relevant_context"],
            "footer": stored["footer"],
        }

    def close(self) -> None:
        self.reader.close()
        self.ledger.close()

    async def _rewritten(self, session_id: str, _directory: str) -> None:
        self.rewritten.append(session_id)

    def _row(self, ref: str, *, cwd: str | None = None, fuzzy: bool = True) -> dict[str, Any]:
        if ref not in self.rows:
            raise NotFoundError(f"no session {ref}")
        return self.rows[ref]

    def _forks(self, session_id: str) -> list[dict[str, Any]]:
        below = (row for row in self.rows.values() if row.get("parentSessionId") == session_id)
        return [row for row in below if is_fork(row)]

    def session(self, name: str, **fields: Any) -> None:
        self.rows[name] = {"sessionId": name, "name": name, "cwd": "/w", **fields}

    async def call(self, method: str, **params: Any) -> Any:
        return await self.methods[method](asked(method, params))

    async def put(self, session: str, name: str, *items: str, mode: str = "replace") -> Any:
        given = {"session": session, "setName": name, "items": list(items), "mode": mode}
        return await self.call("set_relevant_context", **given)

    async def context(self, session: str) -> Any:
        return (await self.call("get_relevant_context", session=session))["context"]

    def forget_copies(self, *sessions: str) -> None:
        """As if these had begun only now."""
        for one in sessions:
            (self.root / f"metas/{one}.user.json").unlink(missing_ok=True)

    def shown(self, *line: str) -> dict[str, Any]:
        """What `get` reads of a session, and of those it came from."""
        own, *before = [Place(self.root / "metas", one) for one in line]
        return stored(own, before)

    async def update(self, session: str, **params: Any) -> Any:
        return await self.sidecars.update(
            self.rows[session], asked("update", {"ref": session, **params})
        )

    def stored(self, session: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / f"metas/{session}.user.json").read_text())
        return found

    def events(self) -> list[tuple[Any, ...]]:
        """Name, reason, context and set of each event since the last look."""
        keys = ("event", "reason", "context", "setName")
        found = [tuple(one.get(key) for key in keys) for one in self.heard]
        self.heard.clear()
        return found


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run in a loop of its own."""
    return asyncio.run(work)

"""Index a session repeatedly while it grows, without a daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.open_session import read_alone
from indexerd.errors import IndexerdError
from indexerd.indexing.indexer import Indexer, Snapshot, take_snapshot
from indexerd.indexing.policy import Forced, SessionRuntime
from indexerd.meta.writer import MetaWriter
from indexerd.models.attempts import append_row
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.settings import Index, Settings
from tests.e2e.world import Session
from tests.fakes.scripted import Scripted


def answer(summary: str = "## Goal\n- Build it.", name: str = "Build the billing importer") -> str:
    tags = ["billing", "importer", "cents"]
    held = {"name": name, "description": "An importer is built.", "summary": summary, "tags": tags}
    return json.dumps(held)


def paid(*replies: Any) -> Scripted:
    """A model whose summary can be continued."""
    return Scripted(list(replies) or [answer()], key="google/x", remote=False)


class Silence:
    """Events that nobody hears of but one."""

    def __init__(self) -> None:
        self.error: IndexerdError | None = None

    def failed(self, _session: SessionRuntime, error: IndexerdError, _retry_at: float) -> None:
        self.error = error

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


class Bench:
    """A pi session of its own, and the code that indexes it."""

    def __init__(self, root: Path, **index: Any) -> None:
        self.root = root
        self.settings = Settings(index=Index(**index))
        self.session = Session(root / ".pi/agent/sessions/--w--")
        self.metas = root / ".pi/agent/sessions-meta"
        self.metas.mkdir(parents=True)
        self.path = self.metas / f"{self.session.id}.meta.json"
        self.now = 1e9

    @property
    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_bytes())
        return found

    def amend(self, **fields: Any) -> None:
        """Change the meta file as another program would."""
        self.path.write_text(json.dumps(self.meta | fields))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The audit trail."""
        lines = (self.root / "telemetry.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def turn(self, number: int, *facts: str) -> None:
        """A turn with unique words."""
        said = f"Part{number} is in. {' '.join(facts)}"
        self.session.turn(f"Ask number{number}: add part{number}.", said)

    def indexed(self, **fields: Any) -> None:
        """Three turns, indexed by a paid model."""
        for number in range(3):
            self.turn(number)
        self.index(paid())
        if fields:
            self.amend(**fields)

    def index(self, *models: Model, forced: bool = False) -> IndexerdError | None:
        """One index run as the daemon does it; return why it failed, or None."""
        self.now += 60
        silence = Silence()
        self._alone(lambda library: self._run(library, models, silence, forced=forced))
        return silence.error

    def snapshot(self) -> Snapshot:
        """The text that would be sent now."""
        made: Snapshot = self._alone(
            lambda library: take_snapshot(library, at_once, self.session.id, self.settings)
        )
        return made

    def _alone(self, work: Callable[[Any], Any]) -> Any:
        file, session_id = str(self.session.path), self.session.id
        row = {"agent": "pi", "sessionFile": file, "sessionId": session_id}
        with read_alone(row, self.settings, {}, self.root) as library:
            return asyncio.run(work(library))

    async def _run(
        self, library: Any, models: tuple[Model, ...], silence: Silence, *, forced: bool
    ) -> None:
        indexer = Indexer(
            library,
            read=at_once,
            budget=Budget(
                self.root / "budget.jsonl",
                lambda: self.settings,
                lambda: self.now,
                lambda *_: None,
                partial(append_row, self.root / "telemetry.jsonl"),
            ),
            writer=MetaWriter(),
            events=silence,
        )
        info = library.files.info(self.session.id)
        session = SessionRuntime(info, None, self.now, self.now)
        if forced:
            session.forced = Forced(self.now, asyncio.get_running_loop().create_future())
        run = asyncio.create_task(indexer.run(session, "due", self.settings, models))
        await asyncio.wait([run])
        assert run.cancelled() or not run.exception()


async def at_once(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)

"""A session that is indexed, goes on, and is indexed again by a model that merges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexerd.daemon.trees import read_alone
from indexerd.indexing.indexer import Indexer, Prepared, prepare
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.scripted import Scripted
from indexerd.models.telemetry import Telemetry
from indexerd.settings import Index, Settings
from tests.e2e.world import Session


def answer(summary: str, name: str = "Build the billing importer") -> str:
    """An answer of the right shape."""
    tags = ["billing", "importer", "cents"]
    held = {"name": name, "description": "An importer is built.", "summary": summary, "tags": tags}
    return json.dumps(held)


class Bench:
    """A pi session of its own, and the code that indexes it, without a daemon."""

    agent = "pi"

    def __init__(self, root: Path, **index: Any) -> None:
        self.root = root
        self.settings = Settings(index=Index(**index))
        self.session: Any = Session(root / ".pi/agent/sessions/--w--")
        self.metas = root / ".pi/agent/sessions-meta"
        self.audit = root / "telemetry.jsonl"
        self.now = 1e9

    @property
    def meta(self) -> dict[str, Any]:
        """The meta file there is."""
        found: dict[str, Any] = json.loads(self._path.read_bytes())
        return found

    def amend(self, **fields: Any) -> None:
        """Change the meta file, as another hand would."""
        self._path.write_text(json.dumps(self.meta | fields))

    @property
    def _path(self) -> Path:
        return self.metas / f"{self.session.id}.meta.json"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The audit trail."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def index(self, model: Model, *, asked: bool | None = None) -> None:
        """One indexing run, as the daemon makes it."""
        self.metas.mkdir(parents=True, exist_ok=True)
        self._alone(lambda library: asyncio.run(self._run(library, model, asked=asked)))

    def prepared(self) -> Prepared:
        """What would be sent now."""
        run: Prepared = self._alone(
            lambda library: prepare(library, self.session.id, self.settings)
        )
        return run

    def _alone(self, work: Callable[[Any], Any]) -> Any:
        row = {
            "agent": self.agent,
            "sessionFile": str(self.session.path),
            "sessionId": self.session.id,
        }
        with read_alone(row, self.settings, {}, self.root) as library:
            return work(library)

    async def _run(self, library: Any, model: Model, *, asked: bool | None) -> None:
        self.now += 60
        budget = Budget(
            self.root / "budget.jsonl",
            lambda: self.settings,
            lambda: self.now,
            lambda _event, _fields: None,
        )
        indexer = Indexer(
            library,
            reader=_at_once,
            budget=budget,
            telemetry=Telemetry(self.audit),
            writer=MetaWriter(),
            notify=lambda _event, _session, _fields: None,
            clock=lambda: self.now,
        )
        await indexer.run(self.session.id, self.settings, [model], asked=asked)


async def _at_once(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


def told(bench: Bench, number: int, *facts: str) -> None:
    """A turn with words of its own."""
    bench.session.turn(
        f"Ask number{number}: add part{number}.", f"Part{number} is in. {' '.join(facts)}"
    )


def indexed(bench: Bench, turns: int = 3, **fields: Any) -> Bench:
    """A session that was indexed by a paid model after some turns, or one very long one."""
    if not turns:
        told(bench, 0, "Many words. " * 600)
    for number in range(turns):
        told(bench, number)
    bench.index(Scripted([answer("## Goal\n- Build it.")], key="google/x", remote=False))
    if fields:
        bench.amend(**fields)
    return bench


def paid() -> Scripted:
    """A model that is paid for."""
    return Scripted([answer("## Goal\n- Build it.")], key="google/x", remote=False)

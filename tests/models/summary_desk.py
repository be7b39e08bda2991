"""A desk at which summaries are asked for, of models that say what they are told."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from indexerd.digests.summaries import Summaries, Summary, Task
from indexerd.digests.talk import Talk
from indexerd.events import Stretch
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.scripted import Answer, Scripted
from indexerd.settings import Settings
from tests.models.digest_bench import NOW

PARTS = ("[User]: Where do alerts go?", "[Assistant]: We decided to write alerts to a file.")
TASK = Task(
    session_id="s1",
    agent="pi",
    name="segment",
    talk=Talk(PARTS, {"github-token": 2}),
    base=Stretch(kind="segment", messages=(), cwd="/w", max_tokens=1000),
    covering=(0, 1),
)


class Desk:
    """Models, settings, and what was recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = Settings()
        self.models: list[Model] = []
        self.rows: list[dict[str, Any]] = []
        self.said: list[tuple[str, str, dict[str, Any]]] = []
        budget = Budget(
            root / "budget.jsonl",
            lambda: self.settings,
            lambda: NOW,
            lambda _event, _told: None,
        )
        self._summaries = Summaries(
            budget=budget,
            record=self.rows.append,
            clock=lambda: NOW,
            notify=lambda event, session, told: self.said.append((event, session, told)),
        )

    def scripted(self, *replies: Answer, **more: Any) -> Scripted:
        """One more model."""
        model = Scripted(list(replies), **more)
        self.models.append(model)
        return model

    def write(self, task: Task = TASK) -> Summary:
        """The summary."""
        return asyncio.run(self._summaries.write(task, self.settings, self.models))

    def hook(self, code: str) -> None:
        """Use a real command that is this Python code; it writes what it is told beside it."""
        script = self.root / "hook.py"
        script.write_text(f"import json, sys\ntold = json.load(sys.stdin)\n{code}\n")
        wanted = {"hook": [sys.executable, "-S", "-E", str(script)], "hook_seconds": 20.0}
        self.settings = Settings.model_validate({"digest": wanted})

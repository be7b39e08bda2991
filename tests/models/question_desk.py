"""A desk at which questions about one session are asked, of models that say what they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from indexerd.daemon.answers import Answers
from indexerd.daemon.one_session import open_session
from indexerd.daemon.reader import Reader
from indexerd.errors import (
    IndexerdError,
)
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.scripted import Answer, Scripted
from indexerd.models.telemetry import Telemetry
from indexerd.protocol.methods import asked
from indexerd.references.ask import Questions
from indexerd.settings import Settings
from tests.e2e.world import Session

NOW = 1_800_000_000.0
GOOD = json.dumps({"answerMarkdown": "To a file.", "confidence": "high", "citations": []})


def made(**sections: dict[str, Any]) -> Settings:
    """Settings with these tables."""
    return Settings.model_validate(sections)


class Desk:
    """One session file, and everything that answers questions about it."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        self.session = Session(root / "pi/sessions/--w--")
        self.settings = made()
        self.models: list[Model] = []
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self._stack = stack
        self._questions: Questions | None = None

    def open(self) -> Questions:
        """Read the file as it is now."""
        if self._questions is None:
            env = {"PI_CODING_AGENT_DIR": str(self.root / "pi")}
            opened = open_session(self.row, self.settings, env, self.root)
            self.library = self._stack.enter_context(opened)
            reader = Reader()
            self._stack.callback(reader.close)
            journal = self.root / "budget.jsonl"
            self.budget = Budget(
                journal, lambda: self.settings, lambda: NOW, lambda _event, _fields: None
            )
            self._questions = Questions(
                self.library,
                Answers(self.library.catalog, lambda: NOW),
                read=reader,
                models=lambda: self.models,
                settings=lambda: self.settings,
                budget=self.budget,
                record=Telemetry(self.root / "telemetry.jsonl").append,
                clock=lambda: NOW,
                notify=lambda event, session, told: self.events.append((event, session, told)),
            )
        return self._questions

    @property
    def row(self) -> dict[str, Any]:
        """What is known of the session's place."""
        return {
            "agent": "pi",
            "sessionFile": str(self.session.path),
            "sessionId": self.session.id,
        }

    def scripted(self, *replies: Answer, **more: Any) -> Scripted:
        """One more model, which answers so."""
        model = Scripted(list(replies), **more)
        self.models.append(model)
        return model

    def ask(self, question: str = "Where do alerts go?", **more: Any) -> dict[str, Any]:
        """The answer to a question."""
        return asyncio.run(self.open().answer(self.session.id, question, **more))

    def call(self, **params: Any) -> Any:
        """What the socket's method answers."""

        async def run() -> Any:
            return await self.open().query(cast("Any", asked("query_session", params)))

        return asyncio.run(run())

    def fails(self, *args: Any, **more: Any) -> IndexerdError:
        """The error of a question that cannot be answered."""
        with pytest.raises(IndexerdError) as caught:
            self.ask(*args, **more)
        return caught.value

    def telemetry(self) -> list[dict[str, Any]]:
        """The rows so far."""
        path = self.root / "telemetry.jsonl"
        return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []


def desks(root: Path) -> Iterator[Desk]:
    """A session of two turns: what a fixture yields."""
    with ExitStack() as stack:
        found = Desk(root, stack)
        found.session.turn("Where do alerts go?", "We write alerts to a file.")
        found.session.turn("And the tests?", "They pass.")
        yield found

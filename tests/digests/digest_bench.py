"""One pi session in a directory, and the services that sum it up, without a daemon."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library
from indexerd.daemon.pipeline import Reader
from indexerd.daemon.trees import open_session as opened
from indexerd.daemon.trees import read_alone
from indexerd.digests.digest import Digests
from indexerd.digests.summarize import Services as DigestServices
from indexerd.events import Entry, Kind
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model, Reply, Tokens
from indexerd.models.budget import Budget
from indexerd.models.telemetry import Telemetry
from indexerd.protocol.methods import asked
from indexerd.sessions.context import ContextMessage
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool
from tests.e2e.world import Session
from tests.fakes.scripted import Answer, Scripted

NOW = 1_800_000_000.0
KEY = "ghp_" + "a1B2c3D4e5F6" * 3


class Log:
    """What was logged, in memory."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def log(self, level: int, event: str, **fields: Any) -> None:
        self.lines.append({"level": level, "event": str(event), **fields})


@dataclass(frozen=True)
class Services:
    """What answers, for the session as it is now."""

    library: Library
    digests: Digests
    bus: EventBus
    read: Reader


class Bench:
    """A session, models, settings; every call reads the session's file as it is then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.session = Session(root / "pi/sessions/--w--")
        self.metas = root / "pi/sessions-meta"
        self.sidecar = self.metas / f"{self.session.id}.digest.jsonl"
        self.settings = Settings()
        self.models: list[Model] = []
        self.log = Log()
        self.heard: list[dict[str, Any]] = []
        self.telemetry = Telemetry(root / "telemetry.jsonl")

    def made(self, **sections: dict[str, Any]) -> None:
        """Use settings with these tables."""
        self.settings = Settings.model_validate(sections)

    def scripted(self, *replies: Answer, **more: Any) -> Scripted:
        """One more model, which answers so."""
        model = Scripted(list(replies), **more)
        self.models.append(model)
        return model

    # -- calls ---------------------------------------------------------------------------

    def digest(self, **more: Any) -> Any:
        """What the method answers."""
        return self._ask("digest", more)

    def history(self, **more: Any) -> Any:
        """What the method answers."""
        return self._ask("history", more)

    def compact(self, **more: Any) -> Any:
        """What the method answers."""
        return self._ask("compact", more)

    def branch_summary(self, leaf: str, **more: Any) -> Any:
        """What the method answers."""
        return self._ask("branch_summary", {"leaf": leaf} | more)

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        async def work(held: Services) -> Any:
            given = asked(method, {"ref": self.session.id} | params)
            return await getattr(held.digests, method)(given)

        return self.run(work)

    def run(self, work: Callable[[Services], Coroutine[Any, Any, Any]]) -> Any:
        """Do something with the services."""
        with self._services() as held:
            return asyncio.run(work(held))

    @contextmanager
    def _services(self) -> Iterator[Services]:
        env = {"PI_CODING_AGENT_DIR": str(self.root / "pi")}
        row = {"agent": "pi", "sessionFile": str(self.session.path), "sessionId": self.session.id}
        reader = Reader()
        try:
            with read_alone(row, self.settings, env, self.root) as library:
                library.index.open()  # rows are kept from here on
                library.only("pi", str(self.session.path), self.session.id)
                yield self._made_of(library, reader)
        finally:
            reader.close()

    def _made_of(self, library: Library, reader: Reader) -> Services:
        bus = EventBus(self.log, lambda: NOW)
        bus.subscribe(self.heard.append)
        pool = SessionReaderPool(partial(opened, library), library.reread, reader)
        answers = Answers(library.index, lambda: NOW)
        services = DigestServices(
            rows=answers,
            pool=pool,
            settings=lambda: self.settings,
            models=lambda: self.models,
            budget=self.budget(),
            record=self.telemetry.append,
            writer=MetaWriter(),
            events=bus,
            on_history=len,
            excluded=lambda: self.settings.digest.exclude,
            clock=lambda: NOW,
        )
        return Services(library, Digests(services), bus, reader)

    def budget(self) -> Budget:
        """Money, counted in a file of its own."""
        journal = self.root / "budget.jsonl"
        return Budget(journal, lambda: self.settings, lambda: NOW, lambda _event, _told: None)

    # -- looking -------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """The audit trail."""
        path = self.root / "telemetry.jsonl"
        return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []

    def lines(self) -> list[dict[str, Any]]:
        """What is stored."""
        if not self.sidecar.exists():
            return []
        return [json.loads(one) for one in self.sidecar.read_text().splitlines()]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of a name."""
        return [line for line in self.log.lines if line["event"] == name]


def calls(session: Session, name: str, arguments: dict[str, Any], output: str = "ok") -> None:
    """An answer that calls a tool, and the tool's result."""
    call = {"type": "toolCall", "id": f"c{session.turns}", "name": name, "arguments": arguments}
    session.entry(
        "message", message={"role": "assistant", "content": [call], "stopReason": "toolUse"}
    )
    result = [{"type": "text", "text": output}]
    told = {"role": "toolResult", "toolCallId": call["id"], "toolName": name, "content": result}
    session.entry("message", message=told)


def working(bench: Bench, turns: int = 20) -> Session:
    """A session in which things were done and decided."""
    session = bench.session
    session.turn("Where do the alerts go?", "We decided to write alerts to a file. It is small.")
    session.say("user", "Please write it.")
    session.turns += 1
    calls(session, "write", {"path": "/w/alerts.py", "content": "x"})
    session.turns += 1
    calls(session, "bash", {"command": f"deploy --token {KEY} CUSTOM-42"}, f"used {KEY}")
    session.say("assistant", f"Deployed with {KEY}.", stopReason="stop")
    session.talk(turns)
    return session


def spoken(path: Path) -> list[ContextMessage]:
    """What a pi session says, without any code of ours but the estimate."""
    found = []
    for line in path.read_text().splitlines():
        held = json.loads(line).get("message")
        if held is None:
            continue
        texts = tuple(one["text"] for one in held["content"] if one["type"] == "text")
        entry = Entry("", Kind.OTHER, "", held["role"], "")
        asked = [one for one in held["content"] if one["type"] == "toolCall"]
        extra = "".join(
            one["name"] + json.dumps(one["arguments"], separators=(",", ":")) for one in asked
        )
        found.append(ContextMessage(held["role"], entry, (*texts, extra) if extra else texts))
    return found


class Quoting(Scripted):
    """A model that repeats the facts it is shown, as `FACT n`."""

    async def generate(self, prompt: Any, *, timeout: float) -> Reply:
        self.calls.append(prompt)
        facts = dict.fromkeys(re.findall(r"FACT \d+", prompt.user))
        return Reply("; ".join(facts), "m", tokens=Tokens(1, 1))

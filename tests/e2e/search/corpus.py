"""Write the corpus of tests/fixtures/retrieval as session files of four agents.

Each session in `corpus.txt` begins with `= key | agent | cwd | days ago`. Then follow lines with
`u:` (user), `a:` (answer), `e:` or `w:` (file edited or written before that answer), and for a
session that a model has named `m: name | description | tags` and `s: summary`. Ids are derived from
the keys, so they never change.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.references.expanding import meta
from tests.e2e.world import Session, World, clock, opencode_rows, stamp
from tests.sessions.opencode_rows import Rows

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


@dataclass
class Turn:
    asked: str
    answer: str = ""
    edits: list[str] = field(default_factory=list)


@dataclass
class Spec:
    key: str
    agent: str
    cwd: str
    began: datetime
    turns: list[Turn] = field(default_factory=list)
    named: tuple[str, ...] = ()  # name, description, tags
    summary: str = ""

    @property
    def id(self) -> str:
        derived = uuid.uuid5(uuid.NAMESPACE_URL, self.key)
        return f"ses_{derived.hex[:26]}" if self.agent == "opencode" else str(derived)

    def at(self, n: int) -> datetime:
        return self.began + n * _MINUTE


def read(path: Path) -> list[Spec]:
    specs: list[Spec] = []
    for line in path.read_text().splitlines():
        mark, _, text = line.partition(" ")
        if mark == "=":
            key, agent, cwd, days = (part.strip() for part in text.split("|"))
            specs.append(Spec(key, agent, cwd, NOW - timedelta(days=int(days))))
        elif mark == "m:":
            specs[-1].named = tuple(part.strip() for part in text.split("|"))
        elif mark == "s:":
            specs[-1].summary = text
        elif mark == "u:":
            specs[-1].turns.append(Turn(text))
        elif mark == "a:":
            specs[-1].turns[-1].answer = text
        elif mark in {"e:", "w:"}:
            specs[-1].turns[-1].edits.append(text)
        else:
            assert not line, line
    return specs


def write(world: World, specs: Iterable[Spec]) -> None:
    rows: Rows | None = None
    for spec in specs:
        if spec.agent == "opencode":
            rows = rows or opencode_rows(world)
            path, leaf = _opencode(rows, spec)
        else:
            clock.now = spec.began
            path, leaf = {"pi": _pi, "claude": _claude, "codex": _codex}[spec.agent](world, spec)
            clock.now = None
            moment = spec.at(2 * len(spec.turns)).timestamp()
            os.utime(path, (moment, moment))
        if spec.named:
            _meta(world, spec, path, leaf)


def _turns(specs: Spec) -> Iterator[Turn]:
    for n, turn in enumerate(specs.turns):
        clock.now = specs.at(2 * n + 1)
        yield turn


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _pi(world: World, specs: Spec) -> tuple[Path, str]:
    folder = world.pi / "sessions" / f"--{specs.cwd.strip('/').replace('/', '-')}--"
    session = Session(folder, specs.cwd, specs.id)
    for turn in _turns(specs):
        session.say("user", turn.asked)
        for path in turn.edits:
            session.tool("edit", path=path)
        session.answer(turn.answer)
    return session.path, str(session.last)


def _claude(world: World, specs: Spec) -> tuple[Path, str]:
    home = world.root / "home"
    folder = home / ".claude/projects" / specs.cwd.replace("/", "-")
    session = ClaudeSession(home, specs.cwd, folder, specs.id)
    for turn in _turns(specs):
        session.prompt(turn.asked)
        for path in turn.edits:
            session.tool("Edit", file_path=path)
        session.say(turn.answer)
    return session.path, str(session.last)


def _codex(world: World, specs: Spec) -> tuple[Path, str]:
    thread, leaf = CodexThread(world.root / "home", thread=specs.id, cwd=specs.cwd), ""
    for turn in _turns(specs):
        leaf = thread.turn(turn.asked, *turn.edits, answer=turn.answer)
    return thread.path, leaf


def _opencode(rows: Rows, specs: Spec) -> tuple[Path, str]:
    times = {"time_created": _ms(specs.began), "time_updated": _ms(specs.at(2 * len(specs.turns)))}
    title = f"New session - {stamp(specs.began)}"
    rows.session(specs.id, directory=specs.cwd, title=title, **times)
    leaf = ""
    for n, turn in enumerate(specs.turns):
        asked, leaf = (f"msg_{specs.id[4:]}{2 * n + k:02}" for k in (0, 1))
        rows.said(specs.id, asked, "user", turn.asked, at=_ms(specs.at(2 * n)))
        at = _ms(specs.at(2 * n + 1))
        rows.said(specs.id, leaf, "assistant", turn.answer, at=at, parentID=asked)
    return rows.path, leaf


def _meta(world: World, specs: Spec, path: Path, leaf: str) -> None:
    name, description, tags = specs.named
    stored = meta(
        specs.id,
        name,
        sessionFile=str(path),
        description=description,
        summary=specs.summary,
        tags=[tag.strip() for tag in tags.split(",")],
        cwd=specs.cwd,
        createdAt=stamp(specs.began),
        updatedAt=stamp(specs.at(2 * len(specs.turns))),
        lastIndexedLeafId=leaf,
        agent=specs.agent,
    )
    path = world.meta_path(specs.id, specs.agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored))

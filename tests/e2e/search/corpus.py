"""Write the corpus of tests/fixtures/retrieval as session files of four agents.

Each session in `corpus.txt` begins with `= key | agent | cwd | days ago`. Then follow lines with
`u:` (user), `a:` (answer), `e:` or `w:` (file edited or written before that answer), and for a
session that a model has named `m: name | description | tags` and `s: summary`. Ids are derived from
the keys, so they never change.
"""

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


def _turns(spec: Spec) -> Iterator[Turn]:
    for n, turn in enumerate(spec.turns):
        clock.now = spec.at(2 * n + 1)
        yield turn


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _pi(world: World, spec: Spec) -> tuple[Path, str]:
    folder = world.pi / "sessions" / f"--{spec.cwd.strip('/').replace('/', '-')}--"
    session = Session(folder, spec.cwd, spec.id)
    for turn in _turns(spec):
        session.say("user", turn.asked)
        for path in turn.edits:
            session.tool("edit", path=path)
        session.answer(turn.answer)
    return session.path, str(session.last)


def _claude(world: World, spec: Spec) -> tuple[Path, str]:
    home = world.root / "home"
    folder = home / ".claude/projects" / spec.cwd.replace("/", "-")
    session = ClaudeSession(home, spec.cwd, folder, spec.id)
    for turn in _turns(spec):
        session.prompt(turn.asked)
        for path in turn.edits:
            session.tool("Edit", file_path=path)
        session.say(turn.answer)
    return session.path, str(session.last)


def _codex(world: World, spec: Spec) -> tuple[Path, str]:
    thread, leaf = CodexThread(world.root / "home", thread=spec.id, cwd=spec.cwd), ""
    for turn in _turns(spec):
        leaf = thread.turn(turn.asked, *turn.edits, answer=turn.answer)
    return thread.path, leaf


def _opencode(rows: Rows, spec: Spec) -> tuple[Path, str]:
    times = {"time_created": _ms(spec.began), "time_updated": _ms(spec.at(2 * len(spec.turns)))}
    title = f"New session - {stamp(spec.began)}"
    rows.session(spec.id, directory=spec.cwd, title=title, **times)
    leaf = ""
    for n, turn in enumerate(spec.turns):
        asked, leaf = (f"msg_{spec.id[4:]}{2 * n + k:02}" for k in (0, 1))
        rows.said(spec.id, asked, "user", turn.asked, at=_ms(spec.at(2 * n)))
        at = _ms(spec.at(2 * n + 1))
        rows.said(spec.id, leaf, "assistant", turn.answer, at=at, parentID=asked)
    return rows.path, leaf


def _meta(world: World, spec: Spec, path: Path, leaf: str) -> None:
    name, description, tags = spec.named
    stored = meta(
        spec.id,
        name,
        sessionFile=str(path),
        description=description,
        summary=spec.summary,
        tags=[tag.strip() for tag in tags.split(",")],
        cwd=spec.cwd,
        createdAt=stamp(spec.began),
        updatedAt=stamp(spec.at(2 * len(spec.turns))),
        lastIndexedLeafId=leaf,
        agent=spec.agent,
    )
    path = world.meta_path(spec.id, spec.agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored))

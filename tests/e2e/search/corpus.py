"""The written-out corpus of tests/fixtures/retrieval, as session files of four agents.

`corpus.txt` holds one session after the other: `= key | agent | cwd | days ago`, then lines
`u:` (a human), `a:` (the answer), `e:`/`w:` (a file edited or written on the way to the answer
above), and of sessions that a model has named `m: name | description | tags` and `s: summary`.
Ids are made from the keys, so that they are the same in every run.
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
class Told:
    key: str
    agent: str
    cwd: str
    began: datetime
    turns: list[Turn] = field(default_factory=list)
    named: tuple[str, ...] = ()  # name, description, tags
    summary: str = ""

    @property
    def id(self) -> str:
        made = uuid.uuid5(uuid.NAMESPACE_URL, self.key)
        return f"ses_{made.hex[:26]}" if self.agent == "opencode" else str(made)

    def at(self, n: int) -> datetime:
        return self.began + n * _MINUTE


def read(path: Path) -> list[Told]:
    told: list[Told] = []
    for line in path.read_text().splitlines():
        mark, _, text = line.partition(" ")
        if mark == "=":
            key, agent, cwd, days = (one.strip() for one in text.split("|"))
            told.append(Told(key, agent, cwd, NOW - timedelta(days=int(days))))
        elif mark == "m:":
            told[-1].named = tuple(one.strip() for one in text.split("|"))
        elif mark == "s:":
            told[-1].summary = text
        elif mark == "u:":
            told[-1].turns.append(Turn(text))
        elif mark == "a:":
            told[-1].turns[-1].answer = text
        elif mark in {"e:", "w:"}:
            told[-1].turns[-1].edits.append(text)
        else:
            assert not line, line
    return told


def write(world: World, told: Iterable[Told]) -> None:
    rows: Rows | None = None
    for one in told:
        if one.agent == "opencode":
            rows = rows or opencode_rows(world)
            path, leaf = _opencode(rows, one)
        else:
            clock.now = one.began
            path, leaf = {"pi": _pi, "claude": _claude, "codex": _codex}[one.agent](world, one)
            clock.now = None
            moment = one.at(2 * len(one.turns)).timestamp()
            os.utime(path, (moment, moment))
        if one.named:
            _meta(world, one, path, leaf)


def _turns(told: Told) -> Iterator[Turn]:
    for n, turn in enumerate(told.turns):
        clock.now = told.at(2 * n + 1)
        yield turn


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _pi(world: World, told: Told) -> tuple[Path, str]:
    folder = world.pi / "sessions" / f"--{told.cwd.strip('/').replace('/', '-')}--"
    session = Session(folder, told.cwd, told.id)
    for turn in _turns(told):
        session.say("user", turn.asked)
        for path in turn.edits:
            session.tool("edit", path=path)
        session.answer(turn.answer)
    return session.path, str(session.last)


def _claude(world: World, told: Told) -> tuple[Path, str]:
    home = world.root / "home"
    folder = home / ".claude/projects" / told.cwd.replace("/", "-")
    session = ClaudeSession(home, told.cwd, folder, told.id)
    for turn in _turns(told):
        session.prompt(turn.asked)
        for path in turn.edits:
            session.tool("Edit", file_path=path)
        session.say(turn.answer)
    return session.path, str(session.last)


def _codex(world: World, told: Told) -> tuple[Path, str]:
    thread, leaf = CodexThread(world.root / "home", thread=told.id, cwd=told.cwd), ""
    for turn in _turns(told):
        leaf = thread.turn(turn.asked, *turn.edits, answer=turn.answer)
    return thread.path, leaf


def _opencode(rows: Rows, told: Told) -> tuple[Path, str]:
    times = {"time_created": _ms(told.began), "time_updated": _ms(told.at(2 * len(told.turns)))}
    title = f"New session - {stamp(told.began)}"
    rows.session(told.id, directory=told.cwd, title=title, **times)
    leaf = ""
    for n, turn in enumerate(told.turns):
        asked, leaf = (f"msg_{told.id[4:]}{2 * n + k:02}" for k in (0, 1))
        rows.said(told.id, asked, "user", turn.asked, at=_ms(told.at(2 * n)))
        at = _ms(told.at(2 * n + 1))
        rows.said(told.id, leaf, "assistant", turn.answer, at=at, parentID=asked)
    return rows.path, leaf


def _meta(world: World, told: Told, path: Path, leaf: str) -> None:
    name, description, tags = told.named
    held = meta(
        told.id,
        name,
        sessionFile=str(path),
        description=description,
        summary=told.summary,
        tags=[tag.strip() for tag in tags.split(",")],
        cwd=told.cwd,
        createdAt=stamp(told.began),
        updatedAt=stamp(told.at(2 * len(told.turns))),
        lastIndexedLeafId=leaf,
        agent=told.agent,
    )
    path = world.meta_path(told.id, told.agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held))

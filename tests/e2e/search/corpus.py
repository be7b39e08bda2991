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
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.world import World
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
            rows = rows or _database(world)
            path, leaf = _opencode(rows, one)
        else:
            path, leaf = {"pi": _pi, "claude": _claude, "codex": _codex}[one.agent](world, one)
            moment = one.at(2 * len(one.turns)).timestamp()
            os.utime(path, (moment, moment))
        if one.named:
            _meta(world, one, path, leaf)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _lines(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def _pi(world: World, told: Told) -> tuple[Path, str]:
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": told.id, "timestamp": _stamp(told.began)}
        | {"cwd": told.cwd}
    ]
    parent: str | None = None

    def say(n: int, role: str, content: list[dict[str, Any]], **more: Any) -> str:
        made = f"{len(lines):08x}"
        message = {"role": role, "content": content, "timestamp": _ms(told.at(n))} | more
        entry = {"type": "message", "id": made, "parentId": parent, "message": message}
        lines.append(entry | {"timestamp": _stamp(told.at(n))})
        return made

    for n, turn in enumerate(told.turns):
        parent = say(2 * n, "user", [{"type": "text", "text": turn.asked}])
        for path in turn.edits:
            call = {"type": "toolCall", "id": path, "name": "edit", "arguments": {"path": path}}
            parent = say(2 * n, "assistant", [call], stopReason="toolUse")
            done = [{"type": "text", "text": "ok"}]
            parent = say(2 * n, "toolResult", done, toolCallId=path, toolName="edit", isError=False)
        answer = [{"type": "text", "text": turn.answer}]
        parent = say(2 * n + 1, "assistant", answer, stopReason="stop")
    folder = world.pi / "sessions" / f"--{told.cwd.strip('/').replace('/', '-')}--"
    stem = _stamp(told.began).replace(":", "-").replace(".", "-")
    return _lines(folder / f"{stem}_{told.id}.jsonl", lines), str(parent)


def _claude(world: World, told: Told) -> tuple[Path, str]:
    lines: list[dict[str, Any]] = []
    parent: str | None = None

    def line(n: int, kind: str, content: Any, **more: Any) -> str:
        made = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{told.key} {len(lines)}"))
        held = {"parentUuid": parent, "isSidechain": False, "type": kind, "uuid": made}
        held |= {"cwd": told.cwd, "sessionId": told.id, "version": "2.1.330"}
        message = {"role": kind, "content": content} | more
        lines.append(held | {"timestamp": _stamp(told.at(n)), "message": message})
        return made

    for n, turn in enumerate(told.turns):
        parent = line(2 * n, "user", turn.asked)
        for path in turn.edits:
            call = {"type": "tool_use", "id": path, "name": "Edit", "input": {"file_path": path}}
            parent = line(2 * n, "assistant", [call], id=f"c{n}{path}", stop_reason="tool_use")
            result = {"type": "tool_result", "tool_use_id": path, "content": "ok"}
            parent = line(2 * n, "user", [result])
        answer = [{"type": "text", "text": turn.answer}]
        parent = line(2 * n + 1, "assistant", answer, id=f"m{n}", stop_reason="end_turn")
    folder = world.root / "home/.claude/projects" / told.cwd.replace("/", "-")
    return _lines(folder / f"{told.id}.jsonl", lines), str(parent)


def _codex(world: World, told: Told) -> tuple[Path, str]:
    lines: list[dict[str, Any]] = []
    turn_id = ""

    def add(n: int, kind: str, payload: dict[str, Any]) -> None:
        held = {"timestamp": _stamp(told.at(n)), "ordinal": len(lines), "type": kind}
        lines.append(held | {"payload": payload})

    def event(n: int, kind: str, **more: Any) -> None:
        add(n, "event_msg", {"type": kind, "thread_id": told.id, "turn_id": turn_id, **more})

    meta = {"id": told.id, "session_id": told.id, "timestamp": _stamp(told.began)}
    meta |= {"cwd": told.cwd, "source": "cli", "cli_version": "0.169.0"}
    add(0, "session_meta", meta | {"history_mode": "paginated"})
    for n, turn in enumerate(told.turns):
        turn_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{told.key} {n}"))
        event(2 * n, "task_started")
        add(2 * n, "turn_context", {"turn_id": turn_id, "cwd": told.cwd, "model": "gpt-x"})
        asked = {"type": "UserMessage", "id": f"u{n}"}
        text = [{"type": "text", "text": turn.asked}]
        event(2 * n, "item_completed", item=asked | {"content": text})
        for path in turn.edits:
            change = {path: {"type": "update", "unified_diff": "", "move_path": None}}
            item = {"type": "FileChange", "id": path, "changes": change, "status": "completed"}
            event(2 * n, "item_completed", item=item)
        said = {"type": "message", "role": "assistant", "id": f"m{n}"}
        content = [{"type": "output_text", "text": turn.answer}]
        add(2 * n + 1, "response_item", said | {"content": content})
        event(2 * n + 1, "task_complete", last_agent_message="")
    stem = f"rollout-{_stamp(told.began)[:19].replace(':', '-')}-{told.id}"
    folder = world.root / "home/.codex/sessions" / told.began.strftime("%Y/%m/%d")
    return _lines(folder / f"{stem}.jsonl", lines), turn_id


def _database(world: World) -> Rows:
    path = world.root / "data/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    return Rows(path)


def _opencode(rows: Rows, told: Told) -> tuple[Path, str]:
    times = {"time_created": _ms(told.began), "time_updated": _ms(told.at(2 * len(told.turns)))}
    rows.session(told.id, directory=told.cwd, title=f"New session - {_stamp(told.began)}", **times)
    leaf = ""
    for n, turn in enumerate(told.turns):
        asked, leaf = (f"msg_{told.id[4:]}{2 * n + k:02}" for k in (0, 1))
        for key, role, text in ((asked, "user", turn.asked), (leaf, "assistant", turn.answer)):
            moment = _ms(told.at(2 * n + (role == "assistant")))
            done = {"finish": "stop", "parentID": asked} if role == "assistant" else {}
            rows.message(told.id, key, role, at=moment, **done)
            rows.part(told.id, key, f"prt_{key}", type="text", text=text)
    return rows.path, leaf


def _meta(world: World, told: Told, path: Path, leaf: str) -> None:
    name, description, tags = told.named
    held = {
        "sessionId": told.id,
        "sessionFile": str(path),
        "name": name,
        "description": description,
        "summary": told.summary,
        "tags": [tag.strip() for tag in tags.split(",")],
        "cwd": told.cwd,
        "createdAt": _stamp(told.began),
        "updatedAt": _stamp(told.at(2 * len(told.turns))),
        "model": "someone/model-1",
        "lastIndexedLeafId": leaf,
        "agent": told.agent,
    }
    elsewhere = world.root / f"data/indexerd/sessions-meta/{told.agent}"
    folder = world.metas if told.agent == "pi" else elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{told.id}.meta.json").write_text(json.dumps(held, indent=2) + "\n")

"""Lists of four agents' sessions through the socket and the command line."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import UsageError
from tests.e2e.search import corpus
from tests.e2e.search.corpus import NOW, Spec, Turn
from tests.e2e.world import Session, World, append, pages, stamp, until
from tests.sessions.opencode_rows import Rows

HOUR = timedelta(hours=1)
AGENTS = ("pi", "claude", "codex", "opencode")


@dataclass(frozen=True)
class Expected:
    id: str
    agent: str
    cwd: str
    modified: str
    archived: bool = False
    subagent: bool = False


class Home:
    def __init__(self, root: Path) -> None:
        self.world = world = World(root.resolve())
        world.install_pi()
        self.shop, self.other = str(world.root / "shop"), str(world.root / "shop-2")
        for folder in (f"{self.shop}/api", self.other):
            Path(folder).mkdir(parents=True)
        specs = []
        for number, cwd in enumerate((self.shop, f"{self.shop}/api", self.other, self.shop)):
            for place, agent in enumerate(AGENTS):
                began = NOW + (4 * number + place) * HOUR
                specs.append(Spec(f"{agent} {number}", agent, cwd, began, [Turn("Why?", "So.")]))
        corpus.write(world, specs)
        hidden = {specs[14].id: {"archived": True}, specs[15].id: {"archived": True}}
        self.expected = [
            Expected(spec.id, spec.agent, spec.cwd, stamp(spec.at(1)), **hidden.get(spec.id, {}))
            for spec in specs
        ]
        self._archive(self.expected[14], self.expected[15])
        self._below(specs[1], self.expected[1])

    def _archive(self, codex: Expected, opencode: Expected) -> None:
        home = self.world.root / "home/.codex"
        (path,) = home.glob(f"sessions/**/*{codex.id}.jsonl")
        (home / "archived_sessions").mkdir()
        path.rename(home / "archived_sessions" / path.name)
        rows = Rows(self.world.root / "data/opencode/opencode.db", schema="")
        rows.run("UPDATE session SET time_archived = time_updated WHERE id = ?", opencode.id)

    def _below(self, specs: Spec, parent: Expected) -> None:
        (path,) = (self.world.root / "home/.claude").glob(f"**/{parent.id}.jsonl")
        lines = (json.loads(line) for line in path.read_text().splitlines())
        side = ({**line, "isSidechain": True, "agentId": "a0b1"} for line in lines)
        below = path.with_suffix("") / "subagents/agent-a0b1.jsonl"
        below.parent.mkdir(parents=True)
        below.write_text("".join(json.dumps(line) + "\n" for line in side))
        below_row = Expected("agent-a0b1", "claude", parent.cwd, parent.modified, subagent=True)
        self.expected.insert(1, below_row)

    def listed(self, **filters: Any) -> list[str]:
        def shown(row: Expected) -> bool:
            cwd, since = filters.get("cwd"), filters.get("since")
            return (
                filters.get("agent") in (None, row.agent)
                and (cwd is None or row.cwd == cwd or row.cwd.startswith(f"{cwd}/"))
                and (since is None or row.modified >= since)
                and (filters.get("archived", False) or not row.archived)
                and (filters.get("subagents", False) or not row.subagent)
            )

        newest = sorted(filter(shown, self.expected), key=lambda row: row.modified, reverse=True)
        return [row.id for row in newest]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("listing"))
    with home.world.daemon():

        def read() -> bool:
            found = home.world.call("list", archived=True, subagents=True)["sessions"]
            return len(found) == len(home.expected) and not home.world.call("status")["textPending"]

        until(read, "the reading of every session")
        yield home


def ids(found: dict[str, Any]) -> list[str]:
    return [row["sessionId"] for row in found["sessions"]]


LATE = stamp(NOW + 7 * HOUR)
FILTERS: list[dict[str, Any]] = [
    {},
    {"agent": "pi"},
    {"agent": "claude", "subagents": True},
    {"agent": "codex", "archived": True},
    {"cwd": "shop"},
    {"cwd": "shop/api"},
    {"cwd": "shop-2", "archived": True},
    {"since": LATE, "agent": "claude", "cwd": "shop"},
    {"archived": True, "subagents": True, "since": LATE},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_work_for_every_agent(agents: Home, filters: dict[str, Any]) -> None:
    """S3.12: agent, directory, time, archived, sub-agents; newest first, in socket and CLI."""
    if "cwd" in filters:
        filters = filters | {"cwd": str(agents.world.root / filters["cwd"])}
    found = agents.world.call("list", **filters)
    assert sorted(ids(found)) == sorted(agents.listed(**filters))
    times = [row["modifiedAt"] for row in found["sessions"]]
    assert times == sorted(times, reverse=True)
    argv = [] if "cwd" in filters else ["--all"]
    for key, value in filters.items():
        argv += [f"--{key}"] if value is True else [f"--{key}", value]
    assert agents.world.run("list", *argv, "--json") == found


def test_every_agents_rows_have_the_common_fields(agents: Home) -> None:
    """S3.11, S1.43: the same fields with the same types, and no text left to read."""
    found = agents.world.call("list", archived=True, subagents=True)["sessions"]
    rows = {row["sessionId"]: row for row in found}
    for expected in agents.expected:
        row = rows[expected.id]
        assert (row["agent"], row["cwd"], row["gone"]) == (expected.agent, expected.cwd, False)
        assert (row["archived"], row["subagent"]) == (expected.archived, expected.subagent)
        assert (row["modifiedAt"], row["createdAt"] != "") == (expected.modified, True)
        assert Path(row["sessionFile"]).exists()
        assert (row["messageCount"] >= 1, row["compactions"]) == (True, 0)
        assert expected.subagent or row["firstUserMessage"] in {"Why?", "And?"}
    until(lambda: not agents.world.call("status")["textPending"], "all texts")
    status = agents.world.call("status")
    assert status["sessions"] == len(agents.expected)
    assert agents.world.run("tree", "agent-a0b1").split("\t")[2].startswith("* Task: ")
    kinds = {"listed": len(agents.world.call("list")["sessions"])}
    kinds["subagents"] = sum(expected.subagent for expected in agents.expected)
    assert {key: status["kinds"][key] for key in kinds} == kinds
    assert sum(status["kinds"].values()) == status["sessions"]
    shown = rf"^sessions +{status['sessions']} \({kinds['listed']} listed, .*1 of sub-agents"
    assert re.search(shown, agents.world.run("status"), re.MULTILINE)


def test_pages_are_stable_while_sessions_grow(agents: Home) -> None:
    """S3.12: no session appears twice, and no unchanged session is missing."""
    world, wanted = agents.world, agents.listed()
    seen: list[str] = []
    grown: set[str] = set()
    for page in pages(world, limit=2):
        seen += page
        if len(grown) < 2:  # one already listed, one not yet listed
            grown.add(_grow(agents, wanted[::-1] if grown else wanted))
    assert len(seen) == len(set(seen))
    assert [session_id for session_id in seen if session_id not in grown] == [
        session_id for session_id in wanted if session_id not in grown
    ]
    with pytest.raises(UsageError):
        world.call("list", cursor="bm9uZQ==")


def _grow(agents: Home, candidates: list[str]) -> str:
    rows = {expected.id: expected for expected in agents.expected if expected.agent == "pi"}
    chosen = next(rows[key] for key in candidates if key in rows)
    at = NOW + (20 + len(candidates) % 7) * HOUR
    (path,) = agents.world.pi.glob(f"sessions/*/*_{chosen.id}.jsonl")
    message = {"role": "user", "content": "And?", "timestamp": at.timestamp() * 1000}
    entry = {"type": "message", "id": "0000feed", "parentId": None, "timestamp": stamp(at)}
    append(path, entry | {"message": message})
    until(lambda: agents.world.row(chosen.id)["modifiedAt"] == stamp(at), "the turn")
    until(lambda: not agents.world.call("status")["textPending"], "its words, which come later")
    agents.expected[agents.expected.index(chosen)] = replace(chosen, modified=stamp(at))
    return chosen.id


def test_a_session_without_any_message_is_listed_only_on_request(world: World) -> None:
    empty, said = Session(world.sessions), Session(world.sessions)
    said.say("user", "Why?")
    world.run("run", "--once")

    def listed(*argv: str) -> set[str]:
        return {row["sessionId"] for row in world.run("list", "--all", "--json", *argv)["sessions"]}

    assert listed() == {said.id}
    assert listed("--archived") == {said.id, empty.id}

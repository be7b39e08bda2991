"""Lists over four agents' sessions: the real daemon, its socket, and the command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexerd.daemon.answers import Answers
from indexerd.errors import UsageError
from indexerd.protocol import params, wire
from indexerd.protocol.params import decode
from indexerd.times import iso_of_ms
from tests.e2e.world import Session, World, until
from tests.sessions.opencode_rows import Rows
from tests.store.rows import fill, row, scratch

START_MS = 1_790_000_000_000  # the oldest session's last word
STEP_MS = 3_600_000  # from one session's to the next's


@dataclass(frozen=True, slots=True)
class Made:
    """A session that was written, as a list should have it."""

    id: str
    agent: str
    cwd: str
    ms: int
    archived: bool = False
    subagent: bool = False


def uuid(number: int) -> str:
    """An id as every agent but opencode makes them."""
    return f"{number:08x}-0000-7000-8000-{number:012x}"


def write(path: Path, *lines: dict[str, Any]) -> None:
    """Append lines to a session file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(json.dumps(one).encode() + b"\n" for one in lines))


class Agents:
    """One home in which four agents were used, each in its turn, an hour apart."""

    def __init__(self, root: Path) -> None:
        self.world = world = World(root.resolve())
        self.home = world.root / "home"
        self.shop, self.other = str(world.root / "shop"), str(world.root / "shop-2")
        for one in (f"{self.shop}/api", self.other):
            Path(one).mkdir(parents=True)
        world.install_pi()
        (world.root / "data/opencode").mkdir(parents=True)
        self.rows = Rows(world.root / "data/opencode/opencode.db")
        self.made: list[Made] = []
        for round_ in range(3):
            cwd = (self.shop, f"{self.shop}/api", self.other)[round_]
            self.pi(cwd)
            self.claude(cwd)
            self.codex(cwd)
            self.opencode(cwd)
        self.parent = self.claude(self.shop)
        self.claude(self.shop, below=self.parent)
        self.codex(self.shop, archived=True)
        self.opencode(self.other, archived=True)
        self.opencode(self.shop, parent=self.made[3].id)

    def _made(self, agent: str, cwd: str, session_id: str = "", **more: bool) -> Made:
        number = len(self.made)
        ms = START_MS + number * STEP_MS
        made = Made(session_id or uuid(number + 1), agent, cwd, ms, **more)
        self.made.append(made)
        return made

    def pi(self, cwd: str) -> Made:
        made = self._made("pi", cwd)
        session = Session(self.world.sessions, cwd=cwd, session_id=made.id)
        for role in ("user", "assistant"):
            more = {"stopReason": "stop"} if role == "assistant" else {}
            said = {"role": role, "content": [{"type": "text", "text": f"{role} of {made.id}"}]}
            message = said | {"timestamp": made.ms} | more
            session.entry("message", message=message, timestamp=iso_of_ms(made.ms))
        return made

    def claude(self, cwd: str, below: Made | None = None) -> Made:
        folder = self.home / ".claude/projects/-shop"
        if below is None:
            made = self._made("claude", cwd)
            path = folder / f"{made.id}.jsonl"
        else:
            made = self._made("claude", cwd, "agent-a0b1c2d3", subagent=True)
            path = folder / below.id / "subagents" / f"{made.id}.jsonl"
        self.claude_turn(path, made, below)
        return made

    def claude_turn(self, path: Path, made: Made, below: Made | None = None) -> None:
        """A question, a tool, an answer."""
        common: dict[str, Any] = {
            "isSidechain": below is not None,
            "sessionId": below.id if below else made.id,
            "cwd": made.cwd,
            "version": "2.1.330",
            "gitBranch": "feature/list",
        }
        common |= {"agentId": made.id.removeprefix("agent-")} if below else {}
        call: Any = {
            "type": "tool_use",
            "id": "t1",
            "name": "Bash",
            "input": {"command": "make test"},
        }
        usage = {"input_tokens": 1200, "output_tokens": 30, "cache_read_input_tokens": 40_000}
        answers = [([call], "tool_use"), ([{"type": "text", "text": "Done."}], "end_turn")]
        lines: list[dict[str, Any]] = [
            {"type": "user", "message": {"role": "user", "content": f"Question of {made.id}"}}
        ]
        for number, (content, stop) in enumerate(answers):
            said: Any = {"id": f"m{number}", "role": "assistant", "model": "claude-sonnet-4-5"}
            said |= {"content": content, "stop_reason": stop, "usage": usage}
            lines.append({"type": "assistant", "message": said})
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
        lines.insert(2, {"type": "user", "message": {"role": "user", "content": [result]}})
        for number, line in enumerate(lines):
            at = iso_of_ms(made.ms - (3 - number) * 1_000_000)  # 50 minutes in all
            before = f"{made.id}-{number - 1}" if number else None
            tree = {"uuid": f"{made.id}-{number}", "parentUuid": before}
            write(path, line | tree | common | {"timestamp": at})

    def codex(self, cwd: str, *, archived: bool = False) -> Made:
        made = self._made("codex", cwd, archived=archived)
        at, name = iso_of_ms(made.ms), f"rollout-2026-11-21T10-00-00-{made.id}.jsonl"
        folder = "archived_sessions" if archived else "sessions/2026/11/21"
        meta = {"id": made.id, "timestamp": at, "cwd": cwd}
        asked = [{"type": "input_text", "text": f"Question of {made.id}"}]
        told = [{"type": "output_text", "text": "Done."}]
        lines: list[tuple[str, dict[str, Any]]] = [
            ("session_meta", meta),
            ("event_msg", {"type": "task_started", "turn_id": "t"}),
            ("response_item", {"type": "message", "role": "user", "content": asked}),
            ("event_msg", {"type": "user_message", "message": asked[0]["text"]}),
            ("response_item", {"type": "message", "role": "assistant", "content": told}),
            ("event_msg", {"type": "task_complete", "turn_id": "t"}),
        ]
        written = [{"timestamp": at, "type": kind, "payload": one} for kind, one in lines]
        write(self.home / ".codex" / folder / name, *written)
        return made

    def opencode(self, cwd: str, *, archived: bool = False, parent: str | None = None) -> Made:
        key = f"ses_{len(self.made):026d}"
        made = self._made("opencode", cwd, key, archived=archived, subagent=parent is not None)
        times = {"time_created": made.ms, "time_updated": made.ms}
        times |= {"time_archived": made.ms} if archived else {}
        self.rows._now = made.ms - 10
        self.rows.session(key, directory=cwd, parent_id=parent, title=f"Title of {key}", **times)
        for number, role in enumerate(("user", "assistant")):
            at = made.ms - 1 + number
            self.rows._now = at - 10
            self.rows.said(key, f"msg_{key}_{number}", role, f"{role} of {key}", at=at)
        return made

    # -- what a list should have -----------------------------------------------------------

    def listed(self, **filters: Any) -> list[str]:
        """The contract of `list`, said once more."""

        def shown(one: Made) -> bool:
            cwd, since = filters.get("cwd"), filters.get("since")
            return (
                filters.get("agent") in (None, one.agent)
                and (cwd is None or one.cwd == cwd or one.cwd.startswith(f"{cwd}/"))
                and (since is None or iso_of_ms(one.ms) >= since)
                and (filters.get("archived", False) or not one.archived)
                and (filters.get("subagents", False) or not one.subagent)
            )

        newest = sorted(filter(shown, self.made), key=lambda one: -one.ms)
        return [one.id for one in newest]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """A daemon that has read everything."""
    agents = Agents(tmp_path_factory.mktemp("listing"))
    with agents.world.daemon():
        everything = {"archived": True, "subagents": True}

        def read() -> bool:
            found = agents.world.call("list", **everything)["sessions"]
            pending = agents.world.call("status")["textPending"]
            return len(found) == len(agents.made) and not pending

        until(read, "the reading of every session")
        yield agents


def ids(found: dict[str, Any]) -> list[str]:
    """The ids of a page."""
    return [row["sessionId"] for row in found["sessions"]]


LATE = iso_of_ms(START_MS + 7 * STEP_MS)
FILTERS: list[dict[str, Any]] = [
    {},
    {"agent": "pi"},
    {"agent": "claude", "subagents": True},
    {"agent": "codex", "archived": True},
    {"agent": "opencode", "archived": True, "subagents": True},
    {"agent": "nobody"},
    {"cwd": "shop"},
    {"cwd": "shop/api"},
    {"cwd": "shop-2", "archived": True},
    {"since": LATE},
    {"since": LATE, "agent": "claude", "cwd": "shop"},
    {"archived": True},
    {"subagents": True},
    {"archived": True, "subagents": True, "since": LATE},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_mean_the_same_for_every_agent(agents: Agents, filters: dict[str, Any]) -> None:
    """S3.12: agent, directory, time, archived, sub-agents; newest first; CLI and socket alike."""
    if "cwd" in filters:
        filters = filters | {"cwd": str(agents.world.root / filters["cwd"])}
    found = agents.world.call("list", **filters)
    assert ids(found) == agents.listed(**filters)
    argv = [] if "cwd" in filters else ["--all"]
    for key, value in filters.items():
        argv += [f"--{key}"] if value is True else [f"--{key}", value]
    assert agents.world.run("list", *argv, "--json") == found


def test_a_session_of_every_agent_has_the_common_fields(agents: Agents) -> None:
    """S3.11: the same fields for each agent, of the same types."""
    found = agents.world.call("list", archived=True, subagents=True)["sessions"]
    rows = {row["sessionId"]: row for row in found}
    for one in agents.made:
        row = rows[one.id]
        assert (row["agent"], row["cwd"], row["gone"]) == (one.agent, one.cwd, False)
        assert (row["archived"], row["subagent"]) == (one.archived, one.subagent)
        assert row["modifiedAt"] == iso_of_ms(one.ms)
        assert row["createdAt"] != ""
        assert Path(row["sessionFile"]).exists()
        assert row["messageCount"] >= 1
        assert isinstance(row["compactions"], int)
        assert one.subagent or one.id in row["firstUserMessage"]


def test_pages_are_stable_while_sessions_are_appended_to(agents: Agents) -> None:
    """S3.12: none is shown twice, and none that was left alone is left out."""
    world, wanted = agents.world, agents.listed()
    seen: list[str] = []
    grown: set[str] = set()
    cursor: dict[str, str] = {}
    for turn in range(len(wanted) + 2):
        page = world.call("list", limit=2, **cursor)
        seen += ids(page)
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
        if turn < 4:  # one that was shown, if there is one; one that is still to come
            grown.add(_grow(agents, [*seen, *wanted] if turn % 2 else wanted[::-1]))
    assert "nextCursor" not in page
    assert len(seen) == len(set(seen))
    assert grown
    assert [one for one in seen if one not in grown] == [one for one in wanted if one not in grown]
    by_command = world.run("list", "--all", "--limit", "2", "--json", *_flags(cursor))
    assert ids(by_command) == ids(page)
    with pytest.raises(UsageError):
        world.call("list", agent="pi", **cursor)


def _flags(cursor: dict[str, str]) -> list[str]:
    return ["--cursor", cursor["cursor"]] if cursor else []


def _grow(agents: Agents, candidates: list[str]) -> str:
    """Append a turn to the first pi session of these, and wait until the daemon shows it."""
    known = {made.id: made for made in agents.made if made.agent == "pi"}
    one = next(known[key] for key in candidates if key in known)
    last = max(made.ms for made in agents.made) + STEP_MS
    agents.made[agents.made.index(one)] = Made(one.id, one.agent, one.cwd, last)
    (path,) = agents.world.sessions.glob(f"*_{one.id}.jsonl")
    said = {"role": "user", "content": [{"type": "text", "text": "And?"}], "timestamp": last}
    entry = {"type": "message", "id": f"{last % 0xFFFFFFFF:08x}", "parentId": None}
    write(path, entry | {"timestamp": iso_of_ms(last), "message": said})
    until(lambda: agents.world.row(one.id)["modifiedAt"] == iso_of_ms(last), "the turn")
    return one.id


@given(
    st.lists(st.text(st.characters(), max_size=12) | st.text('\ud83d\ude00\\u"d8\n', max_size=6))
)
@example(["\ud800", "\ud83d\ude00", "\n\u2028", "C:\\udata", '"'])
def test_a_page_for_the_socket_is_the_list(texts: list[str]) -> None:
    """S3.12: rows are passed on unread, and are the same JSON, in one line of valid UTF-8."""
    with scratch() as catalog:
        fill(catalog, *(row(f"s{n}", n, name=text) for n, text in enumerate(texts)))
        answers = Answers(catalog, lambda: 0.0)
        line = wire.result(1, answers.page(decode(params.List, {"limit": 3})))
        assert line.index(b"\n") == len(line) - 1
        expected = wire.result(1, answers.list(decode(params.List, {"limit": 3})))
        assert json.loads(line.decode()) == json.loads(expected)


def test_marks_stand_before_the_names_of_hidden_sessions(agents: Agents) -> None:
    """S3.12: agent, archived and sub-agent are seen at a glance; others have no mark."""
    text = agents.world.run("list", "--all", "--archived", "--subagents")
    cells = {line.split("\t")[0]: line.split("\t") for line in text.splitlines()}
    for one in agents.made:
        assert cells[one.id][2] == one.agent
        mark = "(archived) " * one.archived + "(sub-agent) " * one.subagent
        marked = re.match(r"(\((?:archived|sub-agent)\) )*", cells[one.id][4])
        assert marked is not None
        assert marked[0] == mark
    agents.world.run("list", "--all", "--limit", "1")
    assert re.search(r"the next: --cursor [\w=-]+\n", agents.world.stderr)


def test_show_tells_what_a_session_took(agents: Agents) -> None:
    """S3.11, S1.43: models, tokens, branch, duration, uses of tools; the parent of a sub-agent."""
    shown = agents.world.run("show", agents.parent.id)
    for line in (
        r"git branch +feature/list",
        r"lasted +50 min",
        r"models +claude-sonnet-4-5",
        r"tokens +2,400 in, 60 out, 80,000 read from a cache",
        r"tools +Bash x1",
        r"such as +Bash: make test",
        rf"resume +cd {re.escape(agents.shop)} && claude --resume {agents.parent.id}",
    ):
        assert re.search(f"^{line}$", shown, re.MULTILINE), (line, shown)
    below = agents.world.run("show", "agent-a0b1c2d3")
    assert re.search(rf"^parent +{agents.parent.id}", below, re.MULTILINE)
    assert below.startswith("(sub-agent) ")


RESUMED = {
    "pi": "pi --session {file}",
    "claude": "claude --resume {id}",
    "codex": "codex resume {id}",
    "opencode": "opencode --session {id}",
}


def test_every_agent_has_its_own_command(agents: Agents) -> None:
    """S3.13: `resume` prints it, `continue-recent` that of the newest, of one agent or of all."""
    for one in [made for made in agents.made if not made.subagent][:6]:
        row = agents.world.row(one.id)
        file = shlex.quote(row["sessionFile"])
        wanted = f"cd {one.cwd} && {RESUMED[one.agent].format(id=one.id, file=file)}"
        assert agents.world.run("resume", one.id) == wanted + "\n"
    for agent in (None, "claude", "codex"):
        (newest, *_) = agents.listed(cwd=agents.shop, **({"agent": agent} if agent else {}))
        argv = ["--cwd", agents.shop, *(["--agent", agent] if agent else [])]
        assert agents.world.run("continue-recent", *argv, "--json")["sessionId"] == newest


def test_a_first_start_says_how_far_it_is(agents: Agents) -> None:
    """S1.43: sessions found, and those whose text is still to be read; then nothing is."""
    found = agents.world.call("status")
    assert (found["sessions"], found["textPending"]) == (len(agents.made), 0)
    assert "text pending" not in agents.world.run("status")

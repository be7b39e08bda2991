"""Families seen from outside: forks whose origin is gone, names taken back, copied sub-agents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import NotFoundError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, until
from tests.sessions.opencode_rows import Rows


@pytest.fixture
def home(world: World) -> Path:
    """Where the agents keep their sessions."""
    return world.root / "home"


def wait(world: World, session_id: str, **wanted: Any) -> dict[str, Any]:
    """The session's row, once it says this."""

    def agrees() -> dict[str, Any] | None:
        row = world.row(session_id)
        return row if row and all(row.get(key) == one for key, one in wanted.items()) else None

    row: dict[str, Any] = until(agrees, f"{wanted} of {session_id}")
    return row


def scanned(world: World) -> None:
    """Wait for a scan that begins after this."""
    for _ in range(2):
        before = world.call("status")["lastScanAt"]
        until(partial(_scanned_since, world, before), "a scan")


def _scanned_since(world: World, before: str) -> bool:
    return bool(world.call("status")["lastScanAt"] != before)


def test_forks_keep_an_origin_that_is_gone(world: World, home: Path) -> None:
    """S1.16, S0.31: neither lost nor given to a sibling, also after a restart."""
    origin = ClaudeSession(home)
    origin.turn("The first prompt.")
    with world.daemon():
        wait(world, origin.id, userMessageCount=1)
        forks = []
        for n in range(2):
            fork = origin.fork()
            fork.turn(f"Only here: {n}")
            wait(world, fork.id, parentSessionId=origin.id)
            forks.append(fork)
        origin.path.unlink()
        wait(world, origin.id, gone=True)
        scanned(world)
        for fork in forks:
            row = wait(world, fork.id, parentSessionId=origin.id)
            assert row["parentSessionFile"] == str(origin.path)
    with world.daemon():
        for fork in forks:
            fork.turn("One more.")
            wait(world, fork.id, userMessageCount=3, parentSessionId=origin.id)


def test_a_fork_of_opencode_is_linked_and_stays_so(world: World) -> None:
    """S1.16: by title, beginning and age; its messages are copies under other ids."""
    rows = database(world)
    rows.session("ses_o", title="Cache")
    at = rows.message("ses_o", "msg_1", "user")
    rows.part("ses_o", "msg_1", "prt_1", type="text", text="Which cache?")
    with world.daemon():
        wait(world, "ses_o", userMessageCount=1)
        rows.session("ses_f", title="Cache (fork #1)")
        rows.message("ses_f", "msg_2", "user", at=at)
        rows.part("ses_f", "msg_2", "prt_2", type="text", text="Which cache?")
        wait(world, "ses_f", userMessageCount=1, parentSessionId="ses_o")
        rows.run("UPDATE session SET title = 'Redis', time_updated = 5 WHERE id = 'ses_o'")
        wait(world, "ses_o", agentTitle="Redis")
        wait(world, "ses_f", parentSessionId="ses_o")
        for table in ("part", "message", "session"):
            key = "id" if table == "session" else "session_id"
            rows.run(f"DELETE FROM {table} WHERE {key} = 'ses_o'")  # noqa: S608 - our own names
        wait(world, "ses_o", gone=True)
        wait(world, "ses_f", parentSessionId="ses_o")


def database(world: World) -> Rows:
    """A database of opencode."""
    data = world.root / "data/opencode"
    data.mkdir(parents=True)
    return Rows(data / "opencode.db")


def test_a_store_that_is_away_keeps_its_sessions(world: World) -> None:
    """S3.9: a data directory that is moved, or not mounted, says nothing of its sessions."""
    rows = database(world)
    rows.session("ses_a")
    with world.daemon():
        wait(world, "ses_a", gone=False)
        away = rows.path.parent.rename(world.root / "away")
        scanned(world)
        assert world.row("ses_a")["gone"] is False
        away.rename(rows.path.parent)
        for end in ("", "-wal", "-shm"):
            Path(f"{rows.path}{end}").unlink(missing_ok=True)
        wait(world, "ses_a", gone=True)


def test_a_log_without_its_index_says_what_helps(world: World) -> None:
    """S3.9: of a database that was copied while it was open the cure is known."""
    rows = database(world)
    with rows.writing() as db:
        db.execute("CREATE TABLE more (id TEXT)")
        db.commit()
        held = Path(f"{rows.path}-wal").read_bytes()
    Path(f"{rows.path}-wal").write_bytes(held)
    with world.daemon():
        (problem,) = until(lambda: world.call("status")["problems"], "the problem")
        assert problem["code"] == "unreadable"
        assert "without its index" in problem["cause"]
        assert "open and close it" in problem["cure"]


def test_a_copied_sub_agent_is_no_problem(world: World, home: Path) -> None:
    """F16, S1.16: a fork has its origin's sub-agents; a session that is there twice is told of."""
    origin = ClaudeSession(home)
    origin.turn("The first prompt.")
    fork = origin.fork()
    for one in (origin, fork):
        helper = one.path.with_suffix("") / "subagents/agent-l1.jsonl"
        helper.parent.mkdir(parents=True)
        lines = (json.loads(line) for line in origin.path.read_text().splitlines())
        side = ({**line, "isSidechain": True, "agentId": "l1"} for line in lines)
        helper.write_text("".join(json.dumps(line) + "\n" for line in side))
    twin = world.session(turns=1)
    shutil.copy(twin.path, twin.path.with_name(f"2026-11-22T10-00-00-000Z_{twin.id}.jsonl"))
    with world.daemon():
        wait(world, "agent-l1", subagent=True)

        def told() -> list[dict[str, Any]]:
            problems = world.call("status")["problems"]
            return [one for one in problems if one["code"] == "duplicate_session"]

        (problem,) = until(told, "the problem")
        assert twin.id in problem["cause"]


def test_a_later_subscription_replaces_the_earlier_one(world: World) -> None:
    """interfaces.md 5: a connection gets each event once, and those it asked for last."""
    with world.daemon(), Client(world.socket, timeout=20) as ear:
        until(lambda: world.call("status")["lastScanAt"], "the first scan")
        ear.call("subscribe", {"events": ["session.created"]})
        ear.call("subscribe", {"events": ["session.renamed"]})
        told = ear.events(["session.created", "session.renamed"])
        session = world.session(turns=1)
        until(lambda: world.row(session.id), "the session")
        for title in ("one", "two"):
            world.call("update", ref=session.id, title=title)
        heard = [next(told)["event"] for _ in range(3)]
    assert heard == ["session.created", "session.renamed", "session.renamed"]


def test_no_entry_no_label(world: World) -> None:
    """S1.31: `update` refuses what `label` refuses; any label can be taken back."""
    session = world.session(turns=1)
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        refused = _refusal(lambda: label(world, session.id, "nobody", "x"))
        other = _refusal(lambda: world.call("label", ref=session.id, entryId="nobody", text="x"))
        assert refused == other
        sidecar = world.metas / f"{session.id}.user.json"
        assert not sidecar.exists()
        assert session.last
        label(world, session.id, session.last, "mine")
        assert json.loads(sidecar.read_bytes())["labels"] == {session.last: "mine"}
        label(world, session.id, "nobody", None)


def label(world: World, session_id: str, entry_id: str, text: str | None) -> None:
    """Label an entry by `update`."""
    world.call("update", ref=session_id, label={"entryId": entry_id, "text": text})


def _refusal(ask: Callable[[], Any]) -> str:
    with pytest.raises(NotFoundError) as failed:
        ask()
    return f"{failed.value}, {failed.value.hint}"


def test_a_name_that_codex_took_back_is_gone(world: World, home: Path) -> None:
    """S3.3: the index was emptied, while we looked and while we did not."""
    threads = [CodexThread(home), CodexThread(home)]
    index = home / ".codex/session_index.jsonl"
    for thread in threads:
        thread.turn()
        thread.rename("The name")
    second = index.read_text().splitlines(keepends=True)[1]
    with world.daemon():
        for thread in threads:
            wait(world, thread.id, agentTitle="The name")
        index.write_text(second)
        wait(world, threads[0].id, agentTitle=None)
        wait(world, threads[1].id, agentTitle="The name")
    index.write_text("")
    with world.daemon():
        wait(world, threads[1].id, agentTitle=None)

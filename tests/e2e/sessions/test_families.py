"""Families: forks whose origin is gone, names taken back, copied sub-agents."""

from __future__ import annotations

from pathlib import Path

from indexerd.client import Client
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, forget, opencode_rows, scanned, until, wait


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
    rows = opencode_rows(world)
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
        forget(rows, "ses_o")
        wait(world, "ses_o", gone=True)
        wait(world, "ses_f", parentSessionId="ses_o")


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


def test_a_name_that_codex_took_back_is_gone(world: World, home: Path) -> None:
    """S3.3: one line was taken out of the index; the other name stays."""
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

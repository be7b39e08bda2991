"""Forks whose origin is deleted, and forks of opencode."""

from pathlib import Path

from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World, forget, opencode_rows, scanned, wait


def test_forks_keep_a_deleted_origin(world: World, home: Path) -> None:
    """S1.16, S0.31: the parent stays, also after a restart, and is not replaced by a sibling."""
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


def test_an_opencode_fork_is_linked_permanently(world: World) -> None:
    """S1.16: by title, first messages and age, since its messages have other ids."""
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

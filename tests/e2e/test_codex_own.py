"""What of a Codex file is its session's own: tokens, tools, files, prompts, and its name.

Files as older releases wrote them, read by the real program, and its `list` looked at.
"""

from __future__ import annotations

from typing import Any

from tests.e2e.codex_rollouts import Rollout
from tests.e2e.world import World


def rows(world: World, *rollouts: Rollout) -> list[dict[str, Any]]:
    """The rows of these threads, once all was read."""
    world.run("run", "--once", "--json")
    told = world.run("list", "--all", "--subagents", "--json")["sessions"]
    known = {row["sessionId"]: row for row in told}
    return [known[one.id] for one in rollouts]


def used(row: dict[str, Any]) -> tuple[int, int]:
    """Tokens given and got."""
    return row["tokens"]["input"], row["tokens"]["output"]


def test_a_sum_that_starts_again_goes_on(bare_world: World) -> None:
    """S3.11: `exec resume` counts from nothing; the session spent what all its runs did."""
    falls, grows = Rollout(1, 0), Rollout(2, 5)
    for one, later in ((falls, 1700), (grows, 9000)):
        one.turn("Count the lines.", given=4000)
        one.turn("Count the words, too.", given=2000)
        one.at += 600
        one.asks("And the letters?")
        one.answers()
        one.spends(later, 17, anew=True)
        one.spends(100, 1)
        one.event("token_count", info=None)
        one.spends(0, 0)
        one.write(bare_world.root / "home")

    fell, grew = rows(bare_world, falls, grows)

    assert used(fell) == (6000 + 1800, 60 + 18)
    assert used(grew) == (6000 + 9100, 60 + 18)

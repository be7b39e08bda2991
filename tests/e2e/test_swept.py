"""What dead writers left is swept when the daemon starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.world import World, until

pytestmark = pytest.mark.faults

DEAD = 4_194_999  # beyond any pid
ID = "4f6c0a52-6f0e-4c0e-9d54-2d5f3f0a0001"
LEFT = (f".{ID}.{DEAD}.1.tmp", f"{ID}.meta.json.{DEAD}.1767225600000.tmp", f".s1.{DEAD}.77.tmp")
FOREIGN = (
    *("notes.tmp", f".{ID}.tmp", f".{ID}.{DEAD}.tmp", f".{ID}.x.1.tmp", f".{ID}.{DEAD}.1.tmp~"),
    *(f"{ID}.meta.json.bak", f"{ID}.user.json.{DEAD}.1767225600000.tmp", f"..{DEAD}.1.tmp"),
)


def names(place: Path) -> set[str]:
    """What is in a directory, hidden files too."""
    return {one.name for one in place.iterdir()}


@pytest.mark.parametrize("argv", [("run",), ("run", "--once")])
def test_what_dead_writers_left_is_swept_at_the_start(world: World, argv: tuple[str, ...]) -> None:
    """A1, S0.37: temporary files of ours and of the older extension; no other name is touched.

    Neither is what a process that lives is writing, nor a directory of such a name.
    """
    world.scripted()
    world.metas.mkdir()
    alive = f".{ID}.1.5.tmp"
    for name in (*LEFT, *FOREIGN, alive):
        (world.metas / name).write_bytes(b'{"half":')
    (world.metas / f".dir.{DEAD}.1.tmp").mkdir()
    stays = {*FOREIGN, alive, f".dir.{DEAD}.1.tmp"}
    if argv == ("run",):
        with world.daemon():
            until(lambda: names(world.metas) == stays, "the sweep")
    else:
        world.run(*argv)
        assert names(world.metas) == stays
    assert (world.metas / alive).read_bytes() == b'{"half":'

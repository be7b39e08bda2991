"""A session that never pauses is read in time and indexed rarely."""

from pathlib import Path

import pytest

from tests.e2e.world import World, proc, until, wait

pytestmark = pytest.mark.faults


APPENDS = 2000
MAX_WAIT = 3.0  # seconds


@pytest.fixture(autouse=True)
def no_digests(world: World) -> None:
    world.env["INDEXERD_DIGEST__ENABLED"] = "false"


def test_a_session_that_never_pauses_is_indexed_at_intervals(world: World) -> None:
    """With a turn at every poll, a call is made each time `max_wait_seconds` is over."""
    world.scripted()
    world.env |= {
        "INDEXERD_MIN_NEW_USER_MESSAGES": "1",
        "INDEXERD_INDEX__QUIET_SECONDS": "1",
        "INDEXERD_INDEX__MAX_WAIT_SECONDS": str(MAX_WAIT),
    }
    with world.daemon():
        session = world.session(turns=1)

        def busy() -> bool:
            session.turn()
            return len(world.calls()) == 3

        until(busy, "three calls for a busy session")
        world.wait_meta(session.id, lambda meta: meta["lastIndexedLeafId"] == session.last)
        assert world.row(session.id)["userMessageCount"] == session.turns
        assert world.call("status")["queued"] == 0
    first, second, third, *rest = [call["t"] for call in world.calls()]
    assert min(second - first, third - second) > MAX_WAIT / 2
    assert len(rest) <= 1


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc")
def test_a_burst_is_read_in_few_steps(world: World) -> None:
    """S3.27: of 2,000 appends each byte is read a few times at most, and one call is made."""
    world.scripted()
    world.env |= {"INDEXERD_INDEX__QUIET_SECONDS": "2", "INDEXERD_WATCH__RESCAN_SECONDS": "300"}
    with world.daemon() as process:
        session = world.session(turns=1)
        wait(world, session.id, userMessageCount=1)
        before = proc(process.pid, "io", "rchar")
        session.talk(APPENDS // 2)
        wait(world, session.id, userMessageCount=session.turns)
        world.wait_meta(session.id, lambda meta: meta["lastIndexedLeafId"] == session.last)
        taken = proc(process.pid, "io", "rchar") - before
        size = session.path.stat().st_size
    assert len(world.calls()) == 1
    # Text and prompt read the file once each, and the stores are read; appends never reread it.
    assert taken < 8 * size + 8_000_000 < size * APPENDS / 20

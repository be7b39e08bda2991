"""The archive stays below its limit: the oldest copies go first, pinned ones stay."""

import os
import random
import signal

import pytest

from indexerd.errors import ConfigError, UsageError
from tests.archive.keeping import Archived
from tests.e2e.world import Session, World, problems, until, wait

LIMIT = 0.001  # GB: a megabyte


def noise(size: int) -> str:
    """Make a text that can hardly be compressed."""
    return "".join(random.Random(size).choices([*map(chr, range(35, 92))], k=size))


def noisy(world: World, days_ago: int, size: int = 236_000) -> Session:
    session = world.session(turns=1)
    session.turn(answer=noise(size + days_ago))
    at = session.path.stat().st_mtime - days_ago * 86_400
    os.utime(session.path, (at, at))
    return session


@pytest.mark.faults
def test_the_oldest_copies_go_first_and_pinned_ones_stay(world: World) -> None:
    """A session that is too old to fit is not copied again and again; `status` says so."""
    archived = Archived(world)
    world.env["INDEXERD_ARCHIVE__MAX_GB"] = str(LIMIT)
    pinned, deleted = noisy(world, 40), noisy(world, 30)
    with world.daemon():
        archived.copied(pinned.path, deleted.path)
        world.run("pin", pinned.id)
        pinned.path.unlink()
        deleted.path.unlink()
        for session in (pinned, deleted):
            archived.taken_over(session.id)
        assert not problems(world)
        sessions = [noisy(world, days) for days in (5, 4, 3, 2)]
        archived.copied(*(session.path for session in sessions))
        until(lambda: not archived.copies("*", deleted.path.name), "the oldest copy's removal")
        assert archived.copies("gone", pinned.path.name)
        assert not problems(world)
        before = {*archived.copies()}
        repeated = world.session(turns=1)
        repeated.turn(answer="x" * 840_000)  # which compressed is next to nothing
        archived.copied(repeated.path)
        assert before < {*archived.copies()}
        repeated.path.unlink()
        archived.taken_over(repeated.id)
        world.run("purge", repeated.id, "--yes")
        sessions[0].turn(answer=noise(150_000))
        cause = until(lambda: problems(world).get("archive_full"), "the warning")
        assert cause.endswith("of 0.001 GB")

        late = noisy(world, 20)  # older than all others but the pinned one
        until(lambda: "1 session did not fit" in problems(world)["archive_full"], "the warning")
        before = {path: path.stat().st_ino for path in archived.copies()}
        sessions[1].turn()
        archived.copied(sessions[1].path)
        assert not archived.copies("*", late.path.name)
        assert {path: path.stat().st_ino for path in archived.copies()}.keys() == before.keys()
        sizes = world.run("archive", "status", "--json")
        assert sizes["liveBytes"] + sizes["goneBytes"] == sum(
            path.stat().st_size for path in archived.copies()
        )
        assert (sizes["liveSessions"], sizes["goneSessions"], sizes["maxGb"]) == (4, 1, LIMIT)
    with world.daemon():
        until(lambda: "did not fit" in problems(world).get("archive_full", ""), "the warning")
        assert archived.copies() == sorted(before)


@pytest.mark.faults
def test_a_raised_limit_lets_in_what_did_not_fit(world: World) -> None:
    """What cannot fit at all removes nothing."""
    archived = Archived(world)
    world.configure(f"[archive]\nenabled = true\nmax_gb = {LIMIT}\n")
    small = noisy(world, 5)
    with world.daemon() as daemon:
        archived.copied(small.path)
        large = noisy(world, 1, size=3_000_000)
        until(lambda: "did not fit" in problems(world).get("archive_full", ""), "the warning")
        assert archived.copies("live", small.path.name)
        world.configure("[archive]\nenabled = true\nmax_gb = 1\n")
        os.kill(daemon.pid, signal.SIGHUP)
        archived.copied(small.path, large.path)
        until(lambda: not problems(world), "the end of the warning")
        wait(world, large.id, userMessageCount=2)


def test_a_lowered_limit_removes_nothing(world: World) -> None:
    """One mistyped number must not cost the only copies."""
    archived = Archived(world)
    world.configure("[archive]\nenabled = true\nmax_gb = 1\n")
    gone, live = noisy(world, 30, 900_000), noisy(world, 5, 900_000)
    with world.daemon() as daemon:
        archived.copied(gone.path, live.path)
        gone.path.unlink()
        archived.taken_over(gone.id)
        before = archived.copies()
        world.configure(f"[archive]\nenabled = true\nmax_gb = {LIMIT}\n")
        os.kill(daemon.pid, signal.SIGHUP)
        until(lambda: "archive_full" in problems(world), "the warning")
        noisy(world, 1)
        until(lambda: "did not fit" in problems(world)["archive_full"], "the refusal")
        assert archived.copies() == before


@pytest.mark.parametrize("switch", ["on", "off"])
def test_a_switch_without_effect_is_refused(world: World, switch: str) -> None:
    """Where the environment decides, or the daemon would not read the configuration."""
    before = f"[archive]\nenabled = {'false' if switch == 'on' else 'true'}\n"
    world.configure(before)
    world.env["INDEXERD_ARCHIVE__ENABLED"] = str(switch == "off").lower()
    world.run("archive", switch, code=UsageError.exit_code)
    assert "INDEXERD_ARCHIVE__ENABLED" in world.stderr
    del world.env["INDEXERD_ARCHIVE__ENABLED"]
    world.env["INDEXERD_ARCHIVE__MAX_GB"] = "0"
    world.run("archive", switch, code=ConfigError.exit_code)
    assert "archive.max_gb" in world.stderr
    assert world.config.read_text() == before

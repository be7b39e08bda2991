"""Kills, a full disk and a second daemon: the archive has whole copies only, and loses none."""

import os
import signal
from pathlib import Path

import pytest
import zstandard

from indexerd.errors import SessionUnreadableError
from tests.archive.keeping import Archived, content
from tests.e2e.daemon.test_broken_places import fill, mounts, on_a_small_disk
from tests.e2e.world import Session, World, problems, scanned, until, wait

pytestmark = pytest.mark.faults


def test_kills_while_a_large_file_is_copied(world: World) -> None:
    archived = Archived(world)
    session = world.session(turns=1)
    session.answer(os.urandom(6_000_000).hex())
    size, seen = 0, 0
    for number in range(4):
        with world.daemon() as daemon:

            def writing(size: int = size) -> bool:
                every = [p for p in archived.directory.glob("live/**/*") if p.is_file()]
                return any(size < path.stat().st_size for path in every)

            until(writing, "the writing of a copy")
            seen += bool([*archived.directory.rglob(".*.new")])
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
        whole = session.path.read_bytes()
        for copy in archived.copies("live") if not number else ():
            assert content(copy) == whole
        with world.daemon() as daemon:
            archived.copied(session.path)
            daemon.kill()  # it may be starting again, with a new text index
            daemon.wait()
        (copy,) = archived.copies()
        assert not [*archived.directory.rglob(".*.new")]
        size = copy.stat().st_size
        session.answer(os.urandom(3_000_000).hex())
    before = content(copy)
    session.path.unlink()
    with world.daemon() as daemon:
        archived.taken_over(session.id)
        world.run("restore", session.id)
        assert session.path.read_bytes() == before
        daemon.kill()  # see above
        daemon.wait()
    assert seen


@mounts
def test_a_full_disk_loses_nothing_and_is_retried(world: World) -> None:
    archived = Archived(world)
    old, new = world.session(turns=3), world.session(turns=3)
    with world.daemon(under=on_a_small_disk(archived.directory, "4m")) as daemon:
        archived.directory = Path(f"/proc/{daemon.pid}/root{archived.directory}")
        archived.copied(old.path, new.path)
        (copy,) = archived.copies("live", old.path.name)
        before = copy.read_bytes()
        ballast = fill(archived.directory)
        old.answer(os.urandom(1_000_000).hex())  # several blocks
        third = world.session(turns=3)
        third.answer(os.urandom(100_000).hex())
        until(lambda: "archive_unwritable" in problems(world), "the problem")
        assert copy.read_bytes() == before
        new.path.unlink()  # its copy is not lost either
        until(lambda: world.row(new.id).get("gone"), "its removal")
        ballast.unlink()
        os.kill(daemon.pid, signal.SIGHUP)  # rather than to wait for a minute
        archived.copied(old.path, third.path)
        archived.taken_over(new.id)
        until(lambda: "archive_unwritable" not in problems(world), "the end of the problem")


def test_a_second_daemon_copies_nothing(world: World) -> None:
    """Two daemons with the same data, but other state: the second says who has the archive."""
    archived = Archived(world)
    first = world.session(turns=3)
    with world.daemon() as daemon:
        archived.copied(first.path)
        world.socket = world.root / "t.sock"
        home = world.root / "other"
        world.env |= {"INDEXERD_SOCKET": str(world.socket), "HOME": str(home)}
        world.env |= {"XDG_STATE_HOME": str(home / "state")}
        second = Session(home / ".pi/agent/sessions/--w--")
        second.talk(3)
        with world.daemon():
            cause = until(lambda: problems(world).get("archive_unwritable"), "the problem")
            assert f"(pid {daemon.pid}," in cause
            second.turn()
            wait(world, second.id, userMessageCount=4)
            scanned(world)
            assert not archived.copies("*", second.path.name)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
    with world.daemon():
        archived.copied(first.path, second.path)


def test_a_file_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    archived = Archived(world)
    fine = world.session(turns=3)
    linked = world.session(turns=3)
    with world.daemon():
        archived.copied(fine.path, linked.path)
        before = archived.copies("live", linked.path.name)[0].read_bytes()
        aside = linked.path.rename(world.root / "aside.jsonl")
        linked.path.symlink_to(aside)
        fine.turn()
        archived.copied(fine.path)
        assert "archive_unwritable" not in problems(world)
        assert zstandard.frame_content_size(before) > 0
        assert archived.copies("*", linked.path.name)[0].read_bytes() == before


def test_the_advice_for_a_damaged_copy_fits_it(world: World) -> None:
    """Its path is quoted for the shell, and `status` does not only speak of modes."""
    archived, session = Archived(world), world.session(turns=3)
    world.env["XDG_DATA_HOME"] = str(world.root / "my data")
    archived.directory = world.root / "my data/indexerd/archive"
    with world.daemon():
        archived.copied(session.path)
        session.path.unlink()
        archived.taken_over(session.id)
    (copy,) = archived.copies("gone")
    copy.write_bytes(b"x" * 200)
    world.run("restore", session.id, code=SessionUnreadableError.exit_code)
    assert f"`zstdcat '{copy}'`" in world.stderr
    with world.daemon():
        (problem,) = until(lambda: world.call("status")["problems"], "the problem")
        assert "cannot be decompressed" in problem["cause"]
        assert "if it is damaged" in problem["cure"]

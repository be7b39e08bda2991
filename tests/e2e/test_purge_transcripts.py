"""Forgetting with the agent's own file: what goes, what is refused, what cannot go (S2.23)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import NotFoundError, UsageError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.test_purge import SECRET, ours, print_of, stored, talked
from tests.e2e.world import World, until
from tests.sessions.opencode_rows import Rows

pytestmark = pytest.mark.faults


def prints(home: Path) -> dict[Path, tuple[bytes, int, int]]:
    """Every session file of an agent."""
    return {path: print_of(path) for path in sorted(home.rglob("*.jsonl*"))}


def forgotten(world: World, session_id: str) -> bool:
    """Whether a session was noted as one that is not read any more."""
    kept = world.state / "forgotten.jsonl"
    return kept.exists() and session_id in kept.read_text()


def known(world: World, session_id: str) -> None:
    """Wait until the daemon knows a session."""
    until(lambda: world.row(session_id), f"the row of {session_id}")


def counted(world: World, session_id: str, messages: int) -> None:
    """Wait until so many messages of the user's are known."""
    until(lambda: world.row(session_id).get("userMessageCount") == messages, f"{messages} read")


def test_claude_codes_own_file_goes_and_no_other(world: World) -> None:
    """The file named goes; the files of other sessions in the same directory are as they were."""
    home = world.root / "home"
    session, other = ClaudeSession(home), ClaudeSession(home)
    for one in (session, other):
        one.turn()
    with world.daemon():
        counted(world, session.id, 1)
        counted(world, other.id, 1)
        before = prints(home / ".claude")
        done = world.run("purge", session.id, "--yes", "--transcript", "--json")
        assert done["transcriptRemoved"]
        assert "notRemoved" not in done
        assert str(session.path) in done["removed"]
        assert session.path in before
        assert prints(home / ".claude") == {other.path: before[other.path]}
        assert (world.row(session.id), world.row(other.id)["userMessageCount"]) == ({}, 1)


def test_threads_of_codex_go_plain_and_compressed_but_not_from_under_a_fork(world: World) -> None:
    """S3.2, S3.3: a file that another thread's history begins in is refused; nothing has gone."""
    zstandard = pytest.importorskip("zstandard")
    home = world.root / "home"
    plain, packed = CodexThread(home), CodexThread(home)
    for thread in (plain, packed):
        thread.turn("Step")
    pressed = packed.path.with_name(packed.path.name + ".zst")
    pressed.write_bytes(zstandard.compress(packed.path.read_bytes()))
    packed.path.unlink()
    with world.daemon():
        fork = plain.fork()
        fork.turn("Another way")
        counted(world, fork.id, 2)
        counted(world, packed.id, 1)
        before = prints(home / ".codex")
        told = world.run("purge", plain.id, "--yes", "--transcript", "--json", code=2)
        assert fork.id in told["error"]["message"]
        assert prints(home / ".codex") == before
        assert (forgotten(world, plain.id), bool(world.row(plain.id))) == (False, True)

        for thread_id, path in ((packed.id, pressed), (fork.id, fork.path), (plain.id, plain.path)):
            done = world.run("purge", thread_id, "--yes", "--transcript", "--json")
            assert (str(path) in done["removed"], done["transcriptRemoved"]) == (True, True)
            del before[path]
            assert prints(home / ".codex") == before


def test_the_database_of_opencode_is_its_own(world: World) -> None:
    """The session stays as it is, and the command that deletes it is told."""
    data = world.root / "data/opencode"
    data.mkdir(parents=True)
    rows = Rows(data / "opencode.db")
    rows.session("ses_one", directory="/w")
    rows.said("ses_one", "msg_1", "user", "Psst.")
    with world.daemon():
        known(world, "ses_one")
        told = world.run("purge", "ses_one", "--yes", "--transcript", "--json", code=2)
        assert "opencode session delete ses_one" in told["error"]["hint"]
        assert (forgotten(world, "ses_one"), bool(world.row("ses_one"))) == (False, True)


def test_a_file_that_cannot_go_is_told_of(world: World) -> None:
    """A link stays, with what it points to; one that is gone is no removal; ours go (exit 1)."""
    linked, gone = talked(world), world.session(turns=5)
    target = world.root / "elsewhere.jsonl"
    with world.daemon():
        for one in (linked, gone):
            world.wait_meta(one.id)
        linked.path.rename(target)
        linked.path.symlink_to(target)
        before = print_of(target)
        world.run("purge", linked.id, "--yes", "--transcript", code=1)
        assert f"not removed: {linked.path}: it is a link" in world.stderr
        assert f"forgotten: {linked.id}" in world.stderr
        assert (linked.path.is_symlink(), print_of(target)) == (True, before)
        assert (ours(world, linked), world.row(linked.id)) == ([], {})

        gone.path.unlink()
        until(lambda: world.row(gone.id)["gone"], "its end")
        done: Any = world.run("purge", gone.id, "--yes", "--transcript", "--json", code=1)
        reason = {"path": str(gone.path), "reason": "it is not there any more"}
        assert (done["transcriptRemoved"], done["notRemoved"]) == (False, [reason])
        assert done["removed"] == [str(world.metas / f"{gone.id}.meta.json")]
        assert (ours(world, gone), forgotten(world, gone.id)) == ([], True)


def test_an_excluded_session_can_be_forgotten_by_its_whole_id(world: World) -> None:
    """S2.23: what its user excluded afterwards has no row, and our files of it go all the same."""
    private = world.root / "private"
    session, other = talked(world, cwd=str(private)), world.session(turns=1)
    word = talked(world, cwd=str(private), session_id="fix-the-login")
    excluded = (session, word)
    with world.daemon() as daemon:
        for one in excluded:
            world.wait_meta(one.id)
        world.call("update", ref=session.id, title="Mine")
        (world.metas / f"{session.id}.digest.jsonl").write_text("{}\n")
        known(world, other.id)
        world.config.parent.mkdir(parents=True)
        world.config.write_text(f'[privacy]\nexclude = ["{private}"]\n')
        daemon.send_signal(signal.SIGHUP)
        until(lambda: not any(world.row(one.id) for one in excluded), "the exclusion")
        world.call("update", ref=other.id, title="Fix the login")

        with pytest.raises(NotFoundError):
            world.call("purge", ref=session.id[:8])
        with pytest.raises(UsageError, match="excluded"):
            world.call("purge", ref=session.id, transcript=True)
        held = ours(world, session)
        before = print_of(session.path)
        assert (len(held), forgotten(world, session.id)) == (3, False)
        done = world.run("purge", session.id, "--yes", "--json")
        assert sorted(done["removed"]) == [str(world.metas / name) for name in held]
        assert (ours(world, session), forgotten(world, session.id)) == ([], True)
        assert print_of(session.path) == before

        # An id stands before a name, for what is hidden, too.
        assert world.call("purge", ref=word.id)["sessionId"] == word.id
        assert (ours(world, word), ours(world, other)) == ([], [f"{other.id}.user.json"])
        assert world.row(other.id)["name"] == "Fix the login"
    assert SECRET.encode() not in stored(world)

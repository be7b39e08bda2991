"""Forgetting a session: what goes, what stays, and that it does not come back (S2.23)."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import pytest

from indexerd.errors import NotFoundError, UsageError
from tests.e2e.terminal import on_terminal
from tests.e2e.world import Session, World, until

SECRET = "xylophone"
QUESTION = b"[y/N]: "
TURNS, AGAIN = 50, 1.0  # seconds until a key is pressed again
REFS = ("get", "tree", "context", "history", "as_sent", "footer")


def talked(world: World, **options: Any) -> Session:
    """A session about something that nothing else is about."""
    session = world.session(**options)
    session.turn(f"The hidden word is {SECRET}.")
    session.talk(5)
    return session


@pytest.mark.parametrize("front", [[], ["--color", "auto"]], ids=["plain", "click"])
@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_a_question_that_is_broken_off_ends_with_130(
    world: World, front: list[str], key: bytes
) -> None:
    """S2.23: an interrupted question removes nothing, and is no defect."""
    session = talked(world)
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        child, ours_end = pty.fork()
        if child == 0:
            words = [sys.executable, "-m", "indexerd", *front, "purge", session.id]
            os.execve(sys.executable, words, world.env)  # noqa: S606 - no shell is wanted
        got = b""
        with suppress(OSError):  # Linux's way to say that nobody holds the other end any more
            for _ in range(TURNS):
                quiet = not select([ours_end], [], [], AGAIN)[0]
                got += b"" if quiet else os.read(ours_end, 4096)
                # A key that comes just before Python waits for it is heard with the next one.
                if got.endswith(QUESTION) or (quiet and QUESTION in got):
                    os.write(ours_end, key)
        os.close(ours_end)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
        assert b"Traceback" not in got
        assert world.row(session.id)


def test_without_stdin_there_is_nobody_to_ask(world: World) -> None:
    """Closed by whoever started us: said in words, with exit code 2."""
    session = talked(world)
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m indexerd purge {session.id} <&-', sys.executable],
            env=world.env,
            capture_output=True,
            timeout=30,
            check=False,
        )
    assert (done.returncode, b"nobody to ask" in done.stderr) == (2, True)


def print_of(path: Path) -> tuple[bytes, int, int]:
    """A file's bytes, time and inode."""
    found = path.stat()
    return path.read_bytes(), found.st_mtime_ns, found.st_ino


def assert_unknown(world: World, session: Session) -> None:
    """Nothing that can be asked knows of a session."""
    assert session.id not in {row["sessionId"] for row in world.call("list")["sessions"]}
    assert world.call("search", query=SECRET)["hits"] == []
    assert world.call("complete", prefix=session.id[:8])["items"] == []
    for method in REFS:
        with pytest.raises(NotFoundError):
            world.call(method, ref=session.id)
    with pytest.raises(NotFoundError):
        world.call("resolve", ref=session.id)


def ours(world: World, session: Session) -> list[str]:
    """Our files of a session."""
    return sorted(path.name for path in world.metas.glob(f"*{session.id}*"))


def stored(world: World) -> bytes:
    """All bytes of our state."""
    return b"".join(path.read_bytes() for path in world.state.rglob("*") if path.is_file())


def test_a_purged_session_is_gone_and_stays_gone(world: World) -> None:
    """No answer knows of it, its files are gone, the agent's is untouched; over restarts, too."""
    session, other = talked(world), world.session(turns=5)
    with world.daemon():
        world.wait_meta(session.id)
        world.wait_meta(other.id)
        world.call("update", ref=session.id, title="Mine", envHint="make")
        (world.metas / f"{session.id}.digest.jsonl").write_text("{}\n")
        until(lambda: world.call("search", query=SECRET)["hits"], "the text")
        before = print_of(session.path)
        done = world.run("purge", session.id[:8], "--yes", "--json")
        assert (session.id, False) == (done["sessionId"], done["transcriptRemoved"])
        names = [f"{session.id}.{kind}" for kind in ("digest.jsonl", "meta.json", "user.json")]
        assert [str(world.metas / name) for name in names] == sorted(done["removed"])
        assert_unknown(world, session)
        assert (ours(world, session), print_of(session.path)) == ([], before)

        session.talk(6)  # the agent goes on: nobody listens
        other.turn("A new word: marimba.")
        until(lambda: world.call("search", query="marimba")["hits"], "the other session's text")
        assert_unknown(world, session)
        kept = world.state / "forgotten.jsonl"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        row = json.loads(kept.read_text())
        assert (session.id, "pi", "cli") == (row["sessionId"], row["agent"], row["by"])
        log = [json.loads(line) for line in (world.state / "log.jsonl").read_text().splitlines()]
        purged = next(one for one in log if one["event"] == "session.purged")
        assert (session.id, 3, False) == (purged["session"], purged["count"], purged["transcript"])
    assert SECRET.encode() not in stored(world)

    (world.state / "store.sqlite").unlink()
    shutil.rmtree(world.state / "search")
    world.run("run", "--once")
    assert (ours(world, session), ours(world, other)) == ([], [f"{other.id}.meta.json"])
    assert SECRET.encode() not in stored(world)

    told = world.run("purge", other.id, "--yes", "--json", code=69)
    assert told["error"]["code"] == "daemon_down"
    # As a crash would leave it, right after the session was noted: the store has it still.
    with kept.open("a") as file:
        file.write(json.dumps(row | {"sessionId": other.id}) + "\n")
    assert world.run("list", "--all", "--json")["sessions"] == []


def test_a_run_under_way_writes_nothing_and_all_can_be_taken_back(world: World) -> None:
    """The call is given up; what is left can be purged again; `--undo` has all read anew."""
    world.scripted({"match": SECRET, "delay": 30, "times": 1})
    session = talked(world)
    with world.daemon():
        until(world.calls, "the run")
        assert world.call("purge", ref=session.id)["removed"] == []
        after = world.session(turns=5)
        world.wait_meta(after.id)  # others are indexed, and this one is not
        assert_unknown(world, session)
        assert ours(world, session) == []

        left = world.metas / f"{session.id}.user.json"
        left.write_text('{"title": "Mine"}')  # by another hand, or before a crash
        assert world.call("purge", ref=session.id)["removed"] == [str(left)]
        assert world.call("purge", ref=session.id, undo=True)["undone"]
        world.wait_meta(session.id)
        until(lambda: world.call("search", query=SECRET)["hits"], "its text")
        with pytest.raises(NotFoundError):
            world.call("purge", ref=session.id, undo=True)

        short = world.session(turns=1)
        until(lambda: world.row(short.id), "a session without a meta file")
        short.path.unlink()
        until(lambda: world.row(short.id)["gone"], "its end")
        assert world.call("purge", ref=short.id)["removed"] == []
        assert world.row(short.id) == {}


def forked(world: World, session: Session) -> Session:
    """A fork of a session, as pi makes one: a copy under another id."""
    fork = world.session()
    lines = session.path.read_text().splitlines(keepends=True)[1:]
    header = json.loads(fork.path.read_text()) | {"parentSession": str(session.path)}
    fork.path.write_text(json.dumps(header) + "\n" + "".join(lines))
    until(lambda: world.row(fork.id).get("parentSessionId") == session.id, "the fork")
    return fork


def answered(world: World, *argv: str, say: str) -> tuple[int, str]:
    """Run a command on a terminal on which a person types this; its code, and what it showed."""
    command = [sys.executable, "-m", "indexerd", *argv]
    code, got = on_terminal(command, env=world.env, cwd=world.root, typed=say)
    return code, got.decode()


def test_what_is_removed_is_asked_for(world: World) -> None:
    """Twice for the agent's own file; with nobody to ask nothing goes; forks keep their sets."""
    session = talked(world)
    with world.daemon():
        world.wait_meta(session.id)
        sets = {"setName": "files", "items": ["a.py"]}
        world.call("set_relevant_context", session=session.id, **sets)
        fork = forked(world, session)

        told = world.run("purge", session.id, "--json", code=2)
        assert "nobody to ask" in told["error"]["message"]
        code, shown = answered(world, "purge", session.id, "--transcript", say="y\nn\n")
        assert (code, "nothing was removed" in shown) == (1, True)
        for path in (session.path, world.metas / f"{session.id}.meta.json"):
            assert str(path) in shown
            assert path.exists()
        planned = world.call("purge", ref=session.id, dryRun=True)
        assert (planned["sessionFile"], len(planned["files"])) == (str(session.path), 2)

        code, _ = answered(world, "purge", session.id, "--transcript", say="y\ny\n")
        assert (code, session.path.exists(), ours(world, session)) == (0, False, [])
        found = world.call("get_relevant_context", session=fork.id)["context"]
        assert found == {"files": ["a.py"]}
        assert world.row(fork.id)["sessionId"] == fork.id
        hits = until(lambda: world.call("search", query=SECRET)["hits"], "the fork's text")
        assert hits[0]["sessionId"] == fork.id
        with pytest.raises(UsageError, match="purged"):
            world.call("purge", ref=session.id, transcript=True)

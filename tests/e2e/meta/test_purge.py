"""Purging a session: what is removed, what stays, and that it does not return (S2.23)."""

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import zstandard

from indexerd.errors import NotFoundError, UsageError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import (
    Session,
    World,
    hit_by,
    holding,
    listed,
    logged,
    opencode_rows,
    until,
    wait,
)

SECRET = "xylophone"
REFS = ("get", "tree", "context", "history", "as_sent", "footer", "resolve")


def session_with_secret(world: World, **options: Any) -> Session:
    session = world.session(**options)
    session.turn(f"The hidden word is {SECRET}.")
    session.talk(5)
    return session


def file_state(path: Path) -> tuple[bytes, int, int]:
    found = path.stat()
    return path.read_bytes(), found.st_mtime_ns, found.st_ino


def assert_unknown(world: World, session: Session) -> None:
    assert session.id not in listed(world)
    assert hit_by(world, SECRET) == set()
    assert world.call("complete", prefix=session.id[:8])["items"] == []
    for method in REFS:
        with pytest.raises(NotFoundError):
            world.call(method, ref=session.id)


def meta_files(world: World, session: Session) -> list[str]:
    return sorted(path.name for path in world.metas.glob(f"*{session.id}*"))


def test_a_purged_session_does_not_return(world: World) -> None:
    """S2.23: its files and text are gone, also after a restart; the agent's file is untouched."""
    session, other = session_with_secret(world), world.session(turns=5)
    with world.daemon():
        world.wait_meta(session.id)
        world.wait_meta(other.id)
        world.call("update", ref=session.id, title="Mine", envHint="make")
        left = f".{session.id}.4194999.1.tmp"  # by a dead writer
        for name in (f"{session.id}.digest.jsonl", left):
            (world.metas / name).write_text("{}\n")
        until(lambda: hit_by(world, SECRET), "the text")
        before = file_state(session.path)
        done = world.run("purge", session.id[:8], "--yes", "--json")
        assert (session.id, False) == (done["sessionId"], done["transcriptRemoved"])
        names = [f"{session.id}.{kind}" for kind in ("digest.jsonl", "meta.json", "user.json")]
        removed = [str(world.metas / name) for name in (left, *names)]
        assert removed == sorted(done["removed"])
        assert_unknown(world, session)
        assert (meta_files(world, session), file_state(session.path)) == ([], before)
        session.talk(6)  # the agent writes on, and indexerd ignores it
        other.turn("A new word: marimba.")
        until(lambda: hit_by(world, "marimba"), "the other session's text")
        assert_unknown(world, session)
        kept = world.state / "forgotten.jsonl"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        row = json.loads(kept.read_text())
        assert (session.id, "pi", "cli") == (row["sessionId"], row["agent"], row["by"])
        (purged,) = logged(world, "session.purged")
        assert (session.id, 4, False) == (purged["session"], purged["count"], purged["transcript"])
    assert holding(SECRET, world.state) == set()
    (world.state / "store.sqlite").unlink()
    shutil.rmtree(world.state / "search")
    world.run("run", "--once")
    assert (meta_files(world, session), meta_files(world, other)) == ([], [f"{other.id}.meta.json"])
    assert holding(SECRET, world.state) == set()
    refusal = world.run("purge", other.id, "--yes", "--json", code=69)
    assert refusal["error"]["code"] == "daemon_down"
    # As after a crash right after the note of the purge: the store still has the session. No
    # other line, whoever wrote it, keeps the daemon from starting.
    with kept.open("a") as file:
        file.write(f'null\n[]\n{"[" * 99_999}\n{{"sessionId":"tor\n')
        file.write(json.dumps(row | {"sessionId": other.id}) + "\n")
    assert world.run("list", "--all", "--json")["sessions"] == []


def test_purging_cancels_a_running_index_call(world: World) -> None:
    """An interrupted purge can be repeated; deleting its note undoes it."""
    world.scripted({"match": SECRET, "delay": 30, "times": 1})
    session = session_with_secret(world)
    with world.daemon():
        until(world.calls, "the run")
        assert world.call("purge", ref=session.id)["removed"] == []
        until(world.telemetry, "the audit row, since the text was sent (S2.24)")
        assert [row["error"] for row in world.telemetry()] == ["cancelled"]
        after = world.session(turns=5)
        world.wait_meta(after.id)  # only the other session is indexed
        assert_unknown(world, session)
        left = world.metas / f"{session.id}.user.json"
        left.write_text('{"title": "Mine"}')  # another program, or a crash, left it
        assert world.call("purge", ref=session.id)["removed"] == [str(left)]
    (world.state / "forgotten.jsonl").unlink()
    with world.daemon():
        world.wait_meta(session.id)
        until(lambda: hit_by(world, SECRET), "its text")


def test_purging_asks_for_confirmation(world: World) -> None:
    """S2.23: twice for the agent's own file; without a terminal nothing goes; forks stay."""
    session = session_with_secret(world)
    with world.daemon():
        world.wait_meta(session.id)
        world.call("update", ref=session.id, title="Mine")
        fork = session.fork(copied=True)
        wait(world, fork.id, parentSessionId=session.id)
        refusal = world.run("purge", session.id, "--json", code=2)
        assert "not a terminal" in refusal["error"]["message"]
        shown = world.on_terminal("purge", session.id, "--transcript", typed="y\nn\n")
        assert (world.code, "nothing was removed" in shown) == (1, True)
        for said in ("your title, tags and notes", "This cannot be undone. [y/N]"):
            assert said in " ".join(shown.split())
        for path in (session.path, world.metas / f"{session.id}.meta.json"):
            assert str(path) in shown
            assert path.exists()
        planned = world.call("purge", ref=session.id, dryRun=True)
        assert (planned["sessionFile"], len(planned["files"])) == (str(session.path), 2)
        world.on_terminal("purge", session.id, "--transcript", typed="y\ny\n")
        assert (world.code, session.path.exists(), meta_files(world, session)) == (0, False, [])
        until(lambda: hit_by(world, SECRET) == {fork.id}, "the fork's text")
        with pytest.raises(UsageError, match="purged"):
            world.call("purge", ref=session.id, transcript=True)


def session_files(home: Path) -> dict[Path, tuple[bytes, int, int]]:
    return {path: file_state(path) for path in sorted(home.rglob("*.jsonl*"))}


def test_only_the_agents_own_file_is_removed(world: World, home: Path) -> None:
    """S2.23, S3.2, S3.3: plain or compressed, but not if a fork needs it or it is a database."""
    session, other = ClaudeSession(home), ClaudeSession(home)
    plain, packed = CodexThread(home), CodexThread(home)
    for new in (session, other, plain, packed):
        new.turn("Step")
    pressed = packed.path.with_name(packed.path.name + ".zst")
    pressed.write_bytes(zstandard.compress(packed.path.read_bytes()))
    packed.path.unlink()
    rows = opencode_rows(world)
    rows.session("ses_one", directory="/w")
    rows.said("ses_one", "msg_1", "user", "Psst.")
    with world.daemon():
        fork = plain.fork()
        fork.turn("Another way")
        wait(world, fork.id, userMessageCount=2)
        for ref in (session.id, other.id, packed.id, "ses_one"):
            wait(world, ref, userMessageCount=1)
        before = session_files(home)
        refusal = world.run("purge", plain.id, "--yes", "--transcript", "--json", code=2)
        assert fork.id in refusal["error"]["message"]
        refusal = world.run("purge", "ses_one", "--yes", "--transcript", "--json", code=2)
        assert "opencode session delete ses_one" in refusal["error"]["hint"]
        assert session_files(home) == before
        assert not (world.state / "forgotten.jsonl").exists()
        gone = {packed.id: pressed, fork.id: fork.path, plain.id: plain.path}
        for session_id, path in (gone | {session.id: session.path}).items():
            done = world.run("purge", session_id, "--yes", "--transcript", "--json")
            assert (str(path) in done["removed"], done["transcriptRemoved"]) == (True, True)
            del before[path]
            assert session_files(home) == before


@pytest.mark.faults
def test_a_file_that_cannot_be_removed_is_reported(world: World) -> None:
    """A link and its target stay, a missing file is not counted; the exit code is 1."""
    linked, gone = session_with_secret(world), world.session(turns=5)
    target = world.root / "elsewhere.jsonl"
    with world.daemon():
        for session in (linked, gone):
            world.wait_meta(session.id)
        linked.path.rename(target)
        linked.path.symlink_to(target)
        before = file_state(target)
        world.run("purge", linked.id, "--yes", "--transcript", code=1)
        assert f"not removed: {linked.path}: it is a link" in world.stderr
        assert f"forgotten: {linked.id}" in world.stderr
        assert (linked.path.is_symlink(), file_state(target)) == (True, before)
        assert meta_files(world, linked) == []
        gone.path.unlink()
        wait(world, gone.id, gone=True)
        done: Any = world.run("purge", gone.id, "--yes", "--transcript", "--json", code=1)
        reason = {"path": str(gone.path), "reason": "it no longer exists"}
        assert (done["transcriptRemoved"], done["notRemoved"]) == (False, [reason])
        assert done["removed"] == [str(world.metas / f"{gone.id}.meta.json")]


def test_sub_agents_go_with_their_session(world: World, home: Path) -> None:
    """S2.23: theirs too, and with the transcript those of all, and tools' results."""
    session, other = ClaudeSession(home), ClaudeSession(home)
    other.turn("Look.")
    session.prompt(f"Find the {SECRET}.")
    call = session.call("Agent", prompt=f"Look for the {SECRET}.")
    above, below = session.helper("agent-a0b1c2d3"), session.helper("agent-e4f5a6b7")
    above.turn(f"Look for the {SECRET}.")
    below.turn("Look in the box.")
    spawned = {"toolUseId": call, "agentType": "Explore", "description": SECRET}
    about = above.path.with_suffix(".meta.json")
    about.write_text(json.dumps(spawned))
    output = session.path.with_suffix("") / "tool-results/one.txt"
    output.parent.mkdir()
    output.write_text(SECRET)
    session.result(call)
    session.say("Found.")
    ids = {above.id, below.id}
    with world.daemon():
        for each in (session, above, below):
            wait(world, each.id, subagent=each is not session)
        planned = world.call("purge", ref=session.id, dryRun=True, transcript=True)
        assert set(planned["subagents"]) == ids
        files = {session.path, above.path, below.path, about, output}
        assert files <= {*map(Path, planned["files"])}
        assert "and its 2 sub-agents?" in world.on_terminal("purge", session.id, typed="n\n")
        done = world.run("purge", session.id, "--yes", "--transcript", "--json")
        assert (set(done["subagents"]), done["transcriptRemoved"]) == (ids, True)
        assert (holding(SECRET, home), other.path.exists()) == (set(), True)
        assert set(listed(world)) == {other.id}
        assert {row["session"] for row in logged(world, "session.purged")} == {session.id, *ids}

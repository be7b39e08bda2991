"""Copies of sessions: made, grown, read once the file is gone, put back, limited, forgotten."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import Session, World, append, hit_by, problems, until

SID = "0c1a0de0-aaaa-4bbb-8ccc-0123456789ab"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.install_pi()
    world.env |= {"INDEXERD_ARCHIVE__ENABLED": "true", "INDEXERD_ARCHIVE__QUIET_SECONDS": "0.2"}
    return world


def copies(world: World, kind: str = "*") -> list[Path]:
    return sorted((world.root / "data/indexerd/archive").glob(f"{kind}/**/*.zst"))


def copied(world: World, file: Path) -> Path:
    """Wait until a file's copy has all of it."""

    def found() -> Path | None:
        return next((one for one in copies(world, "live") if whole(one) == file.read_bytes()), None)

    place: Path = until(found, f"the copy of {file}")
    return place


def whole(place: Path) -> bytes:
    import zstandard

    try:
        with place.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            return reader.read()
    except (FileNotFoundError, zstandard.ZstdError):
        return b""


def archived(world: World, session_id: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        row = world.row(session_id)
        return row if row and row["archived"] and not row["gone"] else None

    row: dict[str, Any] = until(found, "the copy is read")
    return row


def claude(world: World) -> Path:
    """A session of Claude Code with a sub-agent and a tool's result in a file of its own."""
    project = world.root / "home/.claude/projects/-w"
    side = project / SID / "tool-results/big.txt"
    side.parent.mkdir(parents=True)
    side.write_text("a long result\n" * 1000)
    for path, more in (
        (project / f"{SID}.jsonl", {}),
        (project / SID / "subagents/agent-a1.jsonl", {"isSidechain": True, "agentId": "a1"}),
    ):
        parent = None
        for kind, text in (("user", "Find the walrus"), ("assistant", "It is in the harbour")):
            line = {"type": kind, "uuid": f"{kind}-{path.stem}", "parentUuid": parent, "cwd": "/w"}
            line |= {"sessionId": SID, "version": "2.1.330", "timestamp": "2026-11-20T10:00:00Z"}
            content: Any = text if kind == "user" else [{"type": "text", "text": text}]
            message = {"role": kind, "content": content, "stop_reason": "end_turn"}
            append(path, line | {"message": message} | more)
            parent = str(line["uuid"])
    return project / f"{SID}.jsonl"


def codex(world: World) -> Path:
    path = world.root / f"home/.codex/sessions/2026/11/20/rollout-2026-11-20T10-00-00-{SID}.jsonl"
    meta = {"id": SID, "cwd": "/w", "timestamp": "2026-11-20T10:00:00Z", "cli_version": "0.120.0"}
    said = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Find the walrus"}],
    }
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "It is in the harbour"}],
    }
    event = {"type": "user_message", "message": "Find the walrus"}
    kinds = ("session_meta", "event_msg", "response_item", "response_item")
    for kind, payload in zip(kinds, (meta, event, said, answer), strict=True):
        append(path, {"timestamp": "2026-11-20T10:00:01Z", "type": kind, "payload": payload})
    return path


def pi(world: World) -> Path:
    session = Session(world.sessions, session_id=SID)
    session.turn("Find the walrus", "It is in the harbour")
    return session.path


@pytest.mark.parametrize("agent", [pi, claude, codex])
def test_a_deleted_session_is_read_and_put_back(
    world: World, agent: Callable[[World], Path]
) -> None:
    """Everything works on the copy; restoring gives each byte and the agent's command again."""
    (world.root / "home/.codex/sessions").mkdir(parents=True)
    (world.root / "home/.claude/projects").mkdir(parents=True)
    path = agent(world)
    folder = path.with_suffix("")
    with world.daemon():
        copied(world, path)
        count = len([*folder.rglob("*.*")]) + 1
        until(lambda: len(copies(world, "live")) == count, "all copies")
        before = {file: file.read_bytes() for file in (path, *folder.rglob("*.*"))}
        resume = world.row(SID)["resume"]
        path.unlink()  # as the agent's own clean-up does
        shutil.rmtree(folder, ignore_errors=True)
        row = archived(world, SID)
        assert row["resume"] == ""
        assert SID not in world.run("list", "--all")
        assert SID in world.run("list", "--all", "--archived")
        assert SID in hit_by(world, "walrus")
        for argv in (("tree", SID), ("ask", SID, "Where is the walrus?"), ("context", SID)):
            assert "harbour" in world.run(*argv)
        world.run("export", SID, "-o", str(world.root / "export.md"), "--format", "md")
        assert "harbour" in (world.root / "export.md").read_text()
        assert world.run("resume", SID, code=3) == ""
        assert f"indexerd restore {SID}" in world.stderr
        world.run("restore", SID, "--to", str(world.root / "elsewhere"))
        assert (world.root / "elsewhere" / path.name).read_bytes() == before[path]
        restored = world.run("--json", "restore", SID)["files"]
        assert {Path(file) for file in restored} == before.keys()
        assert all(file.read_bytes() == data for file, data in before.items())
        assert all(file.stat().st_mode & 0o077 == 0 for file in before)
        until(lambda: world.row(SID)["resume"] == resume, "the file is read again")
        assert world.run("restore", SID, code=3) == ""
        assert len(world.call("list", archived=True, subagents=False)["sessions"]) == 1


def test_growth_is_appended_and_unfinished_lines_wait(world: World) -> None:
    session = world.session(3)
    with world.daemon():
        place = copied(world, session.path)
        first = place.read_bytes()
        session.turn()
        copied(world, session.path)
        assert place.read_bytes().startswith(first)
        done = session.path.read_bytes()
        with session.path.open("ab") as file:
            file.write(b'{"type":"message","id":"torn')
        session.path.touch()
        other = world.session(1)
        copied(world, other.path)
        assert whole(place) == done
        session.path.write_bytes(first_lines(done, 3))  # rewritten, and shorter
        copied(world, session.path)
    assert place.stat().st_mode & 0o077 == 0
    modes = {path.stat().st_mode & 0o077 for path in place.parents if "archive" in path.parts}
    assert modes == {0}


def first_lines(data: bytes, count: int) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:count])


def test_nothing_is_copied_until_it_is_turned_on_nor_after(world: World) -> None:
    """`archive on` and `off` change one key of the configuration, and the daemon reads it."""
    del world.env["INDEXERD_ARCHIVE__ENABLED"]
    world.configure("# mine\n[watch]\nrescan_seconds = 1.0 # often\n")
    session = world.session(1)
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        assert world.run("--json", "archive", "status")["enabled"] is False
        assert copies(world) == []
        world.run("archive", "on")
        copied(world, session.path)
        text = world.config.read_text()
        assert text.startswith("# mine\n[watch]\nrescan_seconds = 1.0 # often\n")
        assert "[archive]\nenabled = true" in text
        status = world.run("--json", "archive", "status")
        assert (status["enabled"], status["liveSessions"], status["goneSessions"]) == (True, 1, 0)
        world.run("archive", "off")
        later = world.session(1)
        until(lambda: world.row(later.id), "the session")
        session.path.unlink()
        archived(world, session.id)  # its copy is still read
        assert len(copies(world)) == 1
    world.run("archive", "on")
    assert "the daemon is not running" in world.stderr


@pytest.mark.faults
def test_what_went_while_no_daemon_ran_is_found(world: World) -> None:
    """Also if the store was deleted."""
    sessions = [world.session(2) for _ in range(2)]
    with world.daemon():
        for session in sessions:
            copied(world, session.path)
    for session in sessions:
        session.path.unlink()
    shutil.rmtree(world.state)
    with world.daemon():
        for session in sessions:
            archived(world, session.id)


@pytest.mark.parametrize("state", ["live", "gone", "off"])
def test_purge_removes_copies(world: World, state: str) -> None:
    session = world.session(2)
    with world.daemon():
        copied(world, session.path)
        if state == "gone":
            session.path.unlink()
            archived(world, session.id)
    if state == "off":
        world.env["INDEXERD_ARCHIVE__ENABLED"] = "false"
    with world.daemon():
        until(lambda: world.row(session.id), "the session")
        world.run("purge", session.id, "--yes")
        assert copies(world) == []
    assert session.path.exists() == (state != "gone")


def test_exclusions_keep_sessions_out(world: World) -> None:
    secret = Session(world.pi / "sessions/--secret--", cwd="/secret")
    secret.talk(2)
    with world.daemon() as daemon:
        copied(world, secret.path)
        world.configure('[privacy]\nexclude = ["/secret"]\n')
        daemon.send_signal(signal.SIGHUP)
        until(lambda: not copies(world), "its removal")
        secret.turn()
        other = world.session(1)
        copied(world, other.path)
        assert len(copies(world)) == 1


@pytest.mark.faults
def test_the_oldest_unpinned_copies_go_first(world: World) -> None:
    """And are not made again; `status` says that the archive is full."""
    text = "".join(os.urandom(24).hex() for _ in range(20_000))  # about 0.5 MB compressed
    world.env["INDEXERD_ARCHIVE__MAX_GB"] = "0.00155"
    files = []
    for age in (40, 30, 20):
        session = world.session()
        session.turn(text[age:])
        os.utime(session.path, (1.7e9 - age * 86_400,) * 2)
        files.append(session)
    pinned, oldest, newer = files
    with world.daemon():
        until(lambda: world.row(pinned.id), "the session")
        world.run("pin", pinned.id)
        for session in files:
            copied(world, session.path)
        newest = world.session()
        newest.turn(text)
        copied(world, newest.path)
        kept = {path.name for path in copies(world)}
        assert kept == {f"{one.path.name}.zst" for one in (pinned, newer, newest)}
        until(lambda: "archive_full" in problems(world), "the warning")
    with world.daemon():
        until(lambda: "archive_full" in problems(world), "the warning")
        assert f"{oldest.path.name}.zst" not in {path.name for path in copies(world)}


@pytest.mark.faults
def test_a_damaged_copy_is_not_restored(world: World) -> None:
    """The error says how to read the rest; other sessions are well."""
    damaged, well = world.session(5), world.session(5)
    with world.daemon():
        for session in (damaged, well):
            copied(world, session.path)
            session.path.unlink()
            archived(world, session.id)
        place = next(path for path in copies(world, "gone") if damaged.id in path.name)
        data = bytearray(place.read_bytes())
        data[len(data) // 2] ^= 0xFF
        place.write_bytes(data)
        world.run("restore", damaged.id, code=1)
        assert "zstdcat" in world.stderr
        assert not damaged.path.exists()
        assert place.read_bytes() == data
        world.run("restore", well.id)


def test_a_session_that_its_agent_moves_is_not_doubled(world: World) -> None:
    """Codex archives and compresses sessions itself."""
    import zstandard

    path = codex(world)
    aside = world.root / "home/.codex/archived_sessions"
    with world.daemon():
        copied(world, path)
        aside.mkdir()
        moved = path.replace(aside / path.name)
        until(lambda: world.row(SID)["sessionFile"] == str(moved), "the new place")
        copied(world, moved)
        packed = moved.with_name(f"{moved.name}.zst")
        packed.write_bytes(zstandard.ZstdCompressor().compress(moved.read_bytes()))
        moved.unlink()
        until(lambda: world.row(SID)["sessionFile"] == str(packed), "the compressed file")
    with world.daemon():
        until(lambda: world.row(SID), "the session")
        until(lambda: len(copies(world)) == 1, "one copy")
        assert copies(world, "gone") == []
        assert len(world.call("list", archived=True)["sessions"]) == 1


@pytest.mark.faults
def test_two_daemons_do_not_share_an_archive(world: World, tmp_path: Path) -> None:
    session = world.session(1)
    other = World(tmp_path / "other")
    other.install_pi()
    other.env |= {"INDEXERD_ARCHIVE__ENABLED": "true", "INDEXERD_ARCHIVE__QUIET_SECONDS": "0.2"}
    other.env["XDG_DATA_HOME"] = world.env["XDG_DATA_HOME"]
    theirs = other.session(1)
    with world.daemon():
        copied(world, session.path)
        with other.daemon():
            until(lambda: "archive_unwritable" in problems(other), "the problem")
            until(lambda: other.row(theirs.id), "the session")
        assert len(copies(world)) == 1


@pytest.mark.faults
def test_a_kill_while_copying_leaves_whole_copies_only(world: World) -> None:
    """The next start makes the copy again; until then the old one has a whole beginning."""
    session = world.session(2)
    with world.daemon():
        copied(world, session.path)
    line = json.dumps({"type": "custom", "id": "x" * 8, "text": os.urandom(3000).hex()})
    with session.path.open("a") as file:
        file.writelines(f"{line}\n" for _ in range(20_000))  # 120 MB
    before = whole(copies(world, "live")[0])
    with world.daemon() as daemon:
        until(lambda: copies(world, "live")[0].stat().st_size > len(before) + 1000, "the copying")
        daemon.kill()
        daemon.wait()
    assert session.path.read_bytes().startswith(before)
    with world.daemon():
        copied(world, session.path)

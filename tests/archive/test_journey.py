"""Sessions are copied, outlive their deletion by the agent, and are put back byte for byte."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from indexerd.errors import NotFoundError
from tests.archive.keeping import AGENTS, RESUMES, Archived, clean_up, content, with_company
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import FIXTURES, World, chat, hit_by, logged, opencode_rows, until, wait


@pytest.mark.parametrize("agent", AGENTS)
def test_a_deleted_session_is_read_from_the_archive_and_put_back(
    world: World, agent: str, tmp_path: Path
) -> None:
    archived = Archived(world, on=False)
    (world.root / "home/.claude/projects").mkdir(parents=True)
    (world.root / "home/.codex/sessions").mkdir(parents=True)
    with world.daemon():
        session = AGENTS[agent](world)
        session.turn("First, about zebras.")
        wait(world, session.id, userMessageCount=1)
        assert not archived.directory.exists()  # off until asked for
        world.run("archive", "on")
        archived.copied(session.path)
        (copy,) = archived.copies()
        first = copy.read_bytes()
        session.turn("Then, about quaggas.")
        archived.copied(session.path)
        assert copy.read_bytes().startswith(first)  # growth costs growth
        assert all(path.stat().st_mode & 0o077 == 0 for path in archived.directory.rglob("*"))
        whole = session.path.read_bytes()

        session.path.unlink()
        archived.taken_over(session.id)
        wait(world, session.id, archived=True, gone=False, userMessageCount=2)
        assert session.id not in world.run("list", "--all")
        assert session.id in world.run("list", "--all", "--archived")
        until(lambda: session.id in hit_by(world, "quaggas"), "its text")
        for command in (["show"], ["tree"], ["ask"], ["export"], ["digest"]):
            question = ["What about quaggas?"] if command == ["ask"] else []
            assert world.run(*command, session.id, *question).strip(), command
        assert "quaggas" in world.run("export", session.id)
        world.run("resume", session.id, code=NotFoundError.exit_code)
        assert f"indexerd restore {session.id}" in world.stderr

        world.run("restore", session.id, "--to", str(tmp_path / "else/where"))
        assert (tmp_path / "else/where" / session.path.name).read_bytes() == whole
        world.run("restore", session.id, "--to", str(tmp_path / "else/where"), code=2)
        assert "never overwritten" in world.stderr
        shutil.rmtree(session.path.parent)
        assert world.run("restore", session.id).strip() == str(session.path)
        assert session.path.read_bytes() == whole
        resume = f"cd /w && {RESUMES[agent].format(path=session.path, id=session.id)}"
        wait(world, session.id, sessionFile=str(session.path), archived=False, resume=resume)
        world.run("restore", session.id, code=NotFoundError.exit_code)
        until(lambda: not archived.copies("gone"), "the copy's return")

        session.turn("And last, about okapis.")
        archived.copied(session.path)
        assert content(copy).startswith(whole)
        world.run("archive", "off")
        until(lambda: len(logged(world, "daemon.config_reloaded")) == 2, "the reload")
        session.turn("Not kept.")
        wait(world, session.id, userMessageCount=4)
        session.path.unlink()  # copies that exist stay in use
        archived.taken_over(session.id)
        assert b"okapis" in content(archived.copies("gone")[0])
        assert b"Not kept" not in content(archived.copies("gone")[0])


@pytest.mark.parametrize("running", [True, False])
def test_claude_codes_own_clean_up_is_survived(world: World, running: bool) -> None:
    """Outputs and sub-agents in the session's directory are kept and come back with it."""
    archived = Archived(world)
    session = ClaudeSession(world.root / "home")
    session.turn("Look into the quaggas.")
    files = [session.path, *with_company(session)]
    young = ClaudeSession(world.root / "home")
    young.turn("Stays.")
    before = {path: path.read_bytes() for path in files}
    with world.daemon():
        archived.copied(*files, young.path)
        if running:
            clean_up(session)
            archived.taken_over(session.id)
    if not running:
        clean_up(session)
        shutil.rmtree(world.state)  # nor is the archive part of any cache
    with world.daemon():
        archived.taken_over(session.id)
        until(lambda: session.id in hit_by(world, '"Look into the quaggas"'), "its text")
        rows = world.call("list", archived=True, subagents=True, limit=50)["sessions"]
        helpers = [row for row in rows if row["sessionId"] not in (session.id, young.id)]
        assert [row["parentSessionId"] for row in helpers] == [session.id]
        world.run("restore", session.id)
        assert {path: path.read_bytes() for path in files} == before
        archived.at(session.id, session.path)
        archived.at("agent-a1b2c3d4", session.path.with_suffix(""))
        until(lambda: not archived.copies("gone", session.id), "the copy's return")


def test_codex_moves_and_compresses_its_own_files(world: World) -> None:
    """A moved session is one session with one copy; a compressed one is still restored."""
    archived = Archived(world)
    thread = CodexThread(world.root / "home")
    thread.turn("About zebras.")
    (world.root / "home/.codex/archived_sessions").mkdir()
    with world.daemon() as daemon:
        archived.copied(thread.path)
        thread.archive()
        wait(world, thread.id, sessionFile=str(thread.path))
        until(lambda: archived.copies("live")[1:], "its copy where it is now")
        os.kill(daemon.pid, signal.SIGHUP)  # or a session is deleted, or the daemon starts again
        until(lambda: all("archived_sessions" in str(c) for c in archived.copies()), "one copy")
        archived.copied(thread.path)
        whole = thread.path.read_bytes()
        packed = thread.path.with_name(f"{thread.path.name}.zst")
        packed.write_bytes(zstandard.compress(whole))
        thread.path.unlink()
        wait(world, thread.id, sessionFile=str(packed), gone=False)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
    with world.daemon():
        until(lambda: content(archived.copies("live")[0]) == whole, "the copy")
        assert len(world.call("list", archived=True)["sessions"]) == 1
        packed.unlink()
        archived.taken_over(thread.id)
        world.run("restore", thread.id)
        assert thread.path.read_bytes() == whole
        assert len(archived.copies()) == 1


def test_a_copy_goes_only_if_another_file_has_all_of_it(world: World) -> None:
    """A shorter file of the same name elsewhere is not the one that moved."""
    archived, thread = Archived(world), CodexThread(world.root / "home")
    for number in range(6):
        thread.turn(f"About quagga {number}.")
    whole = thread.path.read_bytes()
    other = world.root / "home/.codex/archived_sessions" / thread.path.name
    other.parent.mkdir()
    other.write_bytes(b"".join(whole.splitlines(keepends=True)[:9]))
    with world.daemon():
        until(lambda: len(archived.copies("live")) == 2, "both copies")
    thread.path.unlink()
    with world.daemon():
        until(lambda: [content(copy) for copy in archived.copies("gone")] == [whole], "the copy")


def test_a_deleted_session_that_goes_on_keeps_what_it_was(world: World) -> None:
    """An agent that still runs writes only what is new, to a new file of the same name."""
    archived, session = Archived(world), ClaudeSession(world.root / "home")
    session.turn("Look into the quaggas.")
    with world.daemon():
        archived.copied(session.path)
        whole = session.path.read_bytes()
        session.path.unlink()
        archived.taken_over(session.id)
        session.turn("And into the zebras.")
        archived.copied(session.path)
        wait(world, f"{session.id}-1", archived=True)
        assert [content(copy) for copy in archived.copies("gone")] == [whole]
        assert world.run("restore", f"{session.id}-1").strip().endswith("-1.jsonl")


def test_a_pass_without_a_daemon_copies_too(world: World) -> None:
    archived, session = Archived(world), ClaudeSession(world.root / "home")
    session.turn("Look into the quaggas.")
    world.run("run", "--once")
    whole = session.path.read_bytes()
    assert [content(copy) for copy in archived.copies("live")] == [whole]
    session.path.unlink()
    for _ in range(2):  # it is found to be gone, and read from the copy
        world.run("run", "--once")
    assert "quaggas" in world.run("tree", session.id)
    world.run("restore", session.id)
    assert session.path.read_bytes() == whole


def test_both_files_of_a_reverted_session_of_codex_come_back(world: World) -> None:
    archived, place = Archived(world), world.root / "home/.codex/sessions/2026/11"
    session_id = "01a1fff2-4af8-7d91-a9c0-6da4d3734e79"
    stored = FIXTURES / "real/codex/sessions/2026/11/21"
    found = sorted(stored.glob(f"*{session_id}*"))
    files = [place / day / path.name for day, path in zip(("21", "22"), found, strict=True)]
    for path, old in zip(files, found, strict=True):
        path.parent.mkdir(parents=True)
        shutil.copy(old, path)
    before = {path: path.read_bytes() for path in files}
    with world.daemon():
        archived.copied(*files)
        for path in files:
            path.unlink()
        archived.taken_over(session_id)
        below = world.root / "below"
        world.run("restore", session_id, "--to", str(below))
        there = {place / path.relative_to(below): path for path in below.rglob("*.jsonl")}
        assert {path: copy.read_bytes() for path, copy in there.items()} == before
        world.run("restore", session_id)
        assert {path: path.read_bytes() for path in files} == before
        archived.at(session_id, place)


def test_a_copy_that_was_damaged_is_made_again_while_there_is_the_file(world: World) -> None:
    archived, session, rows = Archived(world), world.session(turns=3), opencode_rows(world)
    rows.session("ses_one")
    chat(rows, "ses_one", "Look into the quaggas.")
    thread = CodexThread(world.root / "home")
    thread.turn("About zebras.")
    packed = zstandard.compress(thread.path.read_bytes())
    thread.path.with_name(f"{thread.path.name}.zst").write_bytes(packed)
    thread.path.unlink()
    with world.daemon():
        archived.copied(session.path)
        until(lambda: len(archived.copies("live")) == 3, "the copies")
    good = {copy: content(copy) for copy in archived.copies("live")}
    for copy in good:
        data = bytearray(copy.read_bytes())
        data[len(data) // 2] ^= 0xFF
        copy.write_bytes(data)
    with world.daemon():

        def mended() -> bool:
            with suppress(zstandard.ZstdError):
                return {copy: content(copy) for copy in archived.copies("live")} == good
            return False

        until(mended, "whole copies")


def test_purging_removes_every_copy(world: World) -> None:
    """Of sessions with and without their own file, also after `archive off`."""
    archived = Archived(world)
    *purged, other = (ClaudeSession(world.root / "home") for _ in range(5))
    for session in (*purged, other):
        session.turn()
        with_company(session)
    with world.daemon():
        archived.copied(*(session.path for session in (*purged, other)))
        until(lambda: len(archived.copies("live", "toolu_1.txt")) == 5, "the outputs' copies")
        for session in purged[::2]:
            clean_up(session)
            archived.taken_over(session.id)
        for number, session in enumerate(purged):
            if number == 2:
                world.run("restore", session.id)
                wait(world, session.id, sessionFile=str(session.path))
                world.run("archive", "off")
            preview = world.call("purge", ref=session.id, dryRun=True)["files"]
            assert str(archived.copies("*", session.id)[0]) in preview
            removed = world.run("purge", session.id, "--yes", "--json")["removed"]
            assert sorted({*removed}) == sorted(removed)
            assert not archived.copies("*", session.id)
            assert len(archived.copies("*", "toolu_1.txt")) == 4 - number
            assert not world.row(session.id)
        assert archived.copies("*", other.id)


@pytest.mark.parametrize("running", [True, False])
def test_excluded_sessions_have_no_copies(world: World, running: bool) -> None:
    """A glob over the directory or the agent's file removes copies, also of deleted sessions."""
    archived = Archived(world)
    secret, deleted, other = (world.session(2, cwd=cwd) for cwd in ("/secret", "/secret", "/w"))
    by_path = ClaudeSession(world.root / "home", folder=world.root / "home/.claude/projects/-x")
    by_path.turn()
    text = '[archive]\nenabled = true\n[privacy]\nexclude = ["/secret", "~/.claude/*/-x/*"]\n'
    with world.daemon() as daemon:
        archived.copied(secret.path, deleted.path, other.path, by_path.path)
        deleted.path.unlink()
        by_path.path.unlink()
        archived.taken_over(deleted.id)
        archived.taken_over(by_path.id)
        world.configure(text)
        if running:
            os.kill(daemon.pid, signal.SIGHUP)
            until(lambda: len(archived.copies()) == 1, "the copies' removal")
    with world.daemon():
        until(lambda: len(archived.copies()) == 1, "the copies' removal")
        secret.turn()
        other.turn()
        archived.copied(other.path)
        assert len(archived.copies()) == 1
        (row,) = world.call("list", archived=True)["sessions"]
        assert row["sessionId"] == other.id

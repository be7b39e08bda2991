"""Sessions of opencode: their rows are copied, outlive their deletion, and are imported again."""

import json
import os
import sqlite3
import sys
from pathlib import Path

import zstandard

from tests.archive.keeping import Archived, content
from tests.e2e.world import World, chat, forget, hit_by, opencode_rows, until, wait

IMPORTER = """
import json, os, sqlite3, sys
assert sys.argv[1] == "import"
info = json.load(open(sys.argv[2]))["info"]
values = info["id"], info["projectID"], info.get("parentID"), os.getcwd(), "", "", 1, 1
with sqlite3.connect(os.environ["OPENCODE_DB"]) as db:
    names = "id, project_id, parent_id, directory, title, version, time_created, time_updated"
    db.execute(f"INSERT INTO session ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
"""


def test_a_session_deleted_from_the_database_is_read_from_its_copy(
    world: World, tmp_path: Path
) -> None:
    archived, rows = Archived(world), opencode_rows(world)
    project = tmp_path / "project"
    project.mkdir()
    gone, _ = (rows.session(f"ses_{name}", directory=str(project)) for name in ("one", "two"))
    with world.daemon():
        chat(rows, "ses_one", "Look into the quaggas.")
        chat(rows, "ses_two", "Look into the okapis.")
        until(lambda: len(archived.copies("live", "ses_")) == 2, "copies of both")
        chat(rows, "ses_one", "And into the zebras.")
        until(lambda: b"zebras" in content(archived.copies("live", "ses_one")[0]), "the new copy")
        assert b"quaggas" not in content(archived.copies("live", "ses_two")[0])
        rows.session("ses_help", directory=str(project), parent_id="ses_one")
        chat(rows, "ses_help", "Help with the zebras.")
        until(lambda: archived.copies("live", "ses_help"), "the sub-agent's copy")
        before = world.run("export", "ses_one", "--format", "json", "--json")
        for session_id in ("ses_one", "ses_help"):
            forget(rows, session_id)
            archived.taken_over(session_id)
    with world.daemon():  # a start finds the same
        wait(world, "ses_one", archived=True, gone=False, userMessageCount=2)
        wait(world, "ses_two", archived=False, userMessageCount=1)
        assert "ses_one" in hit_by(world, "zebras")
        after = world.run("export", "ses_one", "--format", "json", "--json")
        assert json.dumps(before).count("zebras") == json.dumps(after).count("zebras") > 0

        world.run("restore", "ses_one", "--to", str(tmp_path / "here"))
        exported = json.loads((tmp_path / "here/ses_one.json").read_text())
        world.run("restore", "ses_one", code=None)
        assert "opencode is not installed" in world.stderr
        assert "`--to DIR` writes a file" in world.stderr
        program = tmp_path / "bin/opencode"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}{IMPORTER}")
        program.chmod(0o755)
        world.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
        assert world.run("restore", "ses_one").split() == [gone, f"{rows.path}/ses_help"]
        wait(world, "ses_one", archived=False, cwd=str(project))
        world.run("restore", "ses_one", code=3)
        assert "there already" in world.stderr
        world.run("purge", "ses_one", "--yes")
        assert not archived.copies("*", "ses_one")
        assert archived.copies("live", "ses_two")
    assert exported["info"]["id"] == "ses_one"
    assert exported["info"]["time"]["created"] > 0
    texts = [part["text"] for message in exported["messages"] for part in message["parts"]]
    assert texts[::2] == ["Look into the quaggas.", "And into the zebras."]


def test_a_damaged_copy_is_said_and_kept(world: World) -> None:
    archived, rows = Archived(world), opencode_rows(world)
    damaged = {"ses_zstd": b"x", "ses_sqlite": zstandard.compress(b"x" * 5000)}
    for session_id in damaged:
        rows.session(session_id)
    with world.daemon():
        for session_id, data in damaged.items():
            chat(rows, session_id, "Look into the quaggas.")
            until(lambda key=session_id: archived.copies("live", key), "a copy")
            forget(rows, session_id)
            archived.taken_over(session_id)
            [copy] = archived.copies("gone", session_id)
            copy.write_bytes(data)
            world.run("restore", session_id, code=None)
            assert world.code != 0
            assert "Traceback" not in world.stderr
            world.run("tree", session_id, code=None)
            assert "Traceback" not in world.stderr
            assert copy.exists()


def test_a_database_that_cannot_be_read_loses_nothing(world: World) -> None:
    """S3.1, S3.9: meanwhile copies are not taken for the rows, and other agents are read."""
    archived, rows = Archived(world), opencode_rows(world)
    rows.session("ses_one")
    with world.daemon():
        chat(rows, "ses_one", "Look into the quaggas.")
        until(lambda: archived.copies("live", "ses_one"), "a copy")
    with sqlite3.connect(rows.path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = rows.path.read_bytes()
    rows.path.write_bytes(b"not a database" * 1000)
    with world.daemon():
        (problem,) = until(lambda: world.call("status")["problems"], "the problem")
        assert problem["code"] == "unreadable"
        assert "opencode.db" in problem["cause"]
        world.seen(world.session(turns=1))
        assert archived.copies("live", "ses_one")
    rows.path.write_bytes(whole)
    with world.daemon():
        wait(world, "ses_one", archived=False, gone=False)
        assert not archived.copies("gone")

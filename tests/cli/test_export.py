"""`indexerd export` writes three formats to stdout or to a new private file."""

import json
import stat
from pathlib import Path

from tests.e2e.world import World


def test_each_form_goes_to_stdout_or_a_new_private_file(world: World, tmp_path: Path) -> None:
    """Whole or of one branch; a file has its suffix's format; no session changes (S1.10)."""
    session = world.session()
    session.say("user", "Where do alerts go?")
    fork = session.answer("Redis or a file.")
    left = session.turn("Take Redis.", "Redis is too big.")
    session.last = fork
    session.turn("Take a file.", "It is written.")
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
    world.run("run", "--once")
    before = world.fingerprint()
    export = ("export", session.id)

    page = world.run(*export)
    assert page.startswith("<!doctype html>")
    assert "Redis is too big." in page
    markdown = world.run(*export, "--format", "md")
    assert "It is written." in markdown
    assert "Redis is too big." not in markdown
    assert "Redis is too big." in world.run(*export, "--format", "md", "--leaf", left)
    found = json.loads(world.run(*export, "--format", "json"))
    assert found["session"]["sessionId"] == session.id
    assert found["meta"]["summary"]
    assert len(found["nodes"]) == 6

    place = tmp_path / "files"
    place.mkdir()
    file = place / "out.json"
    assert world.run(*export, "-o", "out.json", cwd=place) == f"{file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["format"] == "indexerd-export"
    file.write_text("mine")
    world.run(*export, "-o", "out.json", "--format", "md", code=2, cwd=place)
    assert file.read_text() == "mine"
    told = world.run(*export, "-o", "two.md", "--json", cwd=place)
    size = (place / "two.md").stat().st_size
    assert told == {"format": "md", "file": str(place / "two.md"), "bytes": size}
    world.run(*export, "-o", "nowhere/x.md", code=2, cwd=place)
    assert world.fingerprint() == before

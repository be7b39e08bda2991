"""`indexerd export` writes three formats to stdout or to a new private file."""

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.world import Session, World


@dataclass(frozen=True)
class Exported:
    world: World
    session: Session
    left: str  # the leaf of an abandoned branch

    def run(self, *argv: str, code: int = 0, cwd: Path | None = None) -> str:
        return str(self.world.run("export", self.session.id, *argv, code=code, cwd=cwd))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """A session of two branches; in the end every session file is unchanged (S1.10)."""
    world = World(tmp_path_factory.mktemp("export"))
    world.install_pi()
    session = Session(world.sessions)
    session.say("user", "Where do alerts go?")
    fork = session.say("assistant", "Redis or a file.", stopReason="stop")
    session.turn("Take Redis.", "Redis is too big.")
    left, session.last = str(session.last), fork
    session.turn("Take a file.", "It is written.")
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
    world.run("run", "--once")
    before = world.fingerprint()
    yield Exported(world, session, left)
    assert world.fingerprint() == before


def test_each_form_goes_to_stdout(home: Exported) -> None:
    page = home.run()
    assert page.startswith("<!doctype html>")
    assert "Redis is too big." in page
    markdown = home.run("--format", "md")
    assert "It is written." in markdown
    assert "Redis is too big." not in markdown
    assert "Redis is too big." in home.run("--format", "md", "--leaf", home.left)
    found = json.loads(home.run("--format", "json"))
    assert found["session"]["sessionId"] == home.session.id
    assert found["meta"]["summary"]
    assert len(found["nodes"]) == 6


def test_a_file_is_new_private_and_of_its_suffix(home: Exported, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert home.run("-o", "out.json", cwd=tmp_path) == f"{file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["format"] == "indexerd-export"
    file.write_text("mine")
    home.run("-o", "out.json", "--format", "md", code=2, cwd=tmp_path)
    assert file.read_text() == "mine"
    argv = ("export", home.session.id, "-o", "two.md", "--json")
    told = home.world.run(*argv, cwd=tmp_path)
    size = (tmp_path / "two.md").stat().st_size
    assert told == {"format": "md", "file": str(tmp_path / "two.md"), "bytes": size}
    home.run("-o", "nowhere/x.md", code=2, cwd=tmp_path)

"""`indexerd export` writes three formats to stdout or to a new private file."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from indexerd.cli.backend import App
from indexerd.cli.tree import export
from indexerd.errors import UsageError, WriteError
from tests.e2e.world import Session, World

KEY = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"


class Exported:
    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.install_pi()
        self.session = Session(self.world.sessions)
        self.session.say("user", f"Where do alerts go? The key is {KEY}")
        self.fork = self.session.say("assistant", "Redis or a file.", stopReason="stop")
        self.session.say("user", "Take Redis.")
        self.left = self.session.say("assistant", "Redis is too big.", stopReason="stop")
        self.session.last = self.fork
        self.session.say("user", "Take a file.")
        self.session.say("assistant", "It is written.", stopReason="stop")
        self.world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
        self.world.run("run", "--once")

    def run(self, *argv: str, as_json: bool = False) -> Result:
        app = App(None, as_json, "never")
        return CliRunner().invoke(export, [self.session.id, *argv], obj=app)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("export"))


@pytest.fixture(autouse=True)
def at_home(home: Exported, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Run in the home's environment; afterwards every session file is unchanged (S1.10)."""
    for name, value in home.world.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    before = home.world.fingerprint()
    yield
    assert home.world.fingerprint() == before


def test_each_form_goes_to_stdout(home: Exported) -> None:
    page = home.run().stdout
    assert page.startswith("<!doctype html>")
    assert "Redis is too big." in page
    markdown = home.run("--format", "md").stdout
    assert "It is written." in markdown
    assert "Redis is too big." not in markdown
    left = home.run("--format", "md", "--leaf", home.left).stdout
    assert "Redis is too big." in left
    found = json.loads(home.run("--format", "json").stdout)
    assert found["session"]["sessionId"] == home.session.id
    assert found["meta"]["summary"]
    assert len(found["nodes"]) == 6


def test_a_file_is_new_private_and_of_its_suffix(home: Exported, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    done = home.run("-o", "out.json")
    assert done.stdout == f"{file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["format"] == "indexerd-export"
    file.write_text("mine")
    refused = home.run("-o", "out.json", "--format", "md")
    assert isinstance(refused.exception, UsageError)
    assert file.read_text() == "mine"
    told = json.loads(home.run("-o", "two.md", as_json=True).stdout)
    size = (tmp_path / "two.md").stat().st_size
    assert told == {"format": "md", "file": str(tmp_path / "two.md"), "bytes": size}
    assert isinstance(home.run("-o", "nowhere/x.md").exception, UsageError)


def test_a_full_disk_leaves_no_file(
    home: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failed = home.run("-o", "new.md").exception
    assert isinstance(failed, WriteError)
    assert failed.exit_code == 75
    assert not (tmp_path / "new.md").exists()

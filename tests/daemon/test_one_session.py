"""One session read alone: found whatever its name, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexerd.daemon.one_session import PREFIX, open_session, real_files, sweep
from indexerd.indexing.indexer import as_sent, prepare
from indexerd.models.registry import Models
from indexerd.protocol.limits import PATH_MAX
from indexerd.settings import Settings
from tests.sessions.tree_sessions import said, session

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")

NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & set(b"\0/"))


def as_row(path: str) -> str:
    """A path as rows say it."""
    return path[:PATH_MAX].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(names=st.lists(NAMES.filter(lambda name: name not in (b".", b"..")), min_size=1, max_size=4))
def test_what_a_row_names_is_found(tmp_path: Path, names: list[bytes]) -> None:
    """Whatever bytes are in the names of the file and of the directories above it."""
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), *names))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.makedirs(path, exist_ok=True)
    assert path in real_files(as_row(path))
    if as_row(path) == path:
        assert real_files(path)[0] == path


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    """Neither a plain name nor an odd one; what is no path of ours is none."""
    (tmp_path / "a").mkdir()
    for name in ("b", "b\\xff", "a/b\\xff", "b\\xff/c"):
        assert real_files(f"{tmp_path}/{name}") == []
    assert real_files("a\\xff") == []
    assert real_files("") == []


def test_a_name_that_is_shown_alike_comes_first_by_its_own(tmp_path: Path) -> None:
    """A file may really be called with a backslash; both are what may be meant."""
    odd, plain = os.fsdecode(os.fsencode(tmp_path) + b"/s\xff"), f"{tmp_path}/s\\xff"
    for one in (odd, plain):
        Path(one).touch()
    assert real_files(plain) == [plain, odd]


@pytest.mark.parametrize("decoy", [False, True])
def test_a_session_is_read_by_its_row(tmp_path: Path, decoy: bool) -> None:
    """W14: `export`, `tree`, `show --as-sent`: also where another file is shown by that name."""
    folder = tmp_path / ".pi/agent/sessions/--w--"
    folder.mkdir(parents=True)
    text = session(said("u1", None, "user", "Hello there"), said("a1", "u1", "assistant", "Hi"))
    path = os.fsdecode(os.fsencode(folder) + b"/s\xff1.jsonl")
    Path(path).write_bytes(text)
    if decoy:
        Path(as_row(path)).write_bytes(text.replace(b'"id":"s1"', b'"id":"s2"'))
    row = {"agent": "pi", "sessionFile": as_row(path), "sessionId": "s1"}
    with open_session(row, Settings(), {}, tmp_path) as library:
        card = library.files.card("s1")
        assert card is not None
        assert card.path == path
        run = prepare(library, "s1", Settings())
        assert "Hello there" in as_sent(run, Models(Settings(), {}).available())["user"]


def test_what_killed_processes_left_is_swept_and_nobody_elses(tmp_path: Path) -> None:
    """Caches of a session are private: those of a dead process go, a living one's stay."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = (f"{PREFIX}{dead.pid}-x", f"{PREFIX}{os.getpid()}-y", f"{PREFIX}odd-z", "other")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "store.sqlite").write_text("said")
    (tmp_path / f"{PREFIX}{dead.pid}-link").symlink_to(tmp_path / "other")
    sweep(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_dir()) == sorted(
        [*names[1:], f"{PREFIX}{dead.pid}-link"]
    )
    assert (tmp_path / "other/store.sqlite").exists()

"""One session read alone, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from indexerd.daemon.open_session import PREFIX, read_alone, sweep
from indexerd.settings import Settings
from tests.sessions.tree_sessions import said, session


def test_a_session_is_read_by_its_row(tmp_path: Path) -> None:
    """For `export`, `tree`, `show --as-sent`: the session of a row, and no other."""
    folder = tmp_path / ".pi/agent/sessions/--w--"
    folder.mkdir(parents=True)
    path = folder / "s1.jsonl"
    path.write_bytes(
        session(said("u1", None, "user", "Hello there"), said("a1", "u1", "assistant", "Hi"))
    )
    row = {"agent": "pi", "sessionFile": str(path), "sessionId": "s1"}
    with read_alone(row, Settings(), {}, tmp_path) as library:
        state = library.files.state("s1")
        assert state is not None
        assert state.leaf_id == "a1"


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

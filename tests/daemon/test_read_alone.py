"""Of sessions that were read alone nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from indexerd.daemon.open_session import PREFIX, sweep


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

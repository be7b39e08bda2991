"""The configuration file as it is found: too large, no file at all, or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from indexerd.paths import places
from indexerd.settings import Loaded, Settings, read_config, remember
from indexerd.settings.loading import LAST_GOOD, SIZE_MAX


def read(path: Path, home: Path) -> Loaded:
    """Read the configuration at a path, with a state directory where nothing was kept."""
    env = {"HOME": str(home), "INDEXERD_CONFIG": str(path)}
    return read_config(places(env, home=home), env)


def linked(path: Path) -> None:
    """A link to a device that never ends."""
    path.symlink_to("/dev/zero")


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "not a regular file"),
    "directory": (Path.mkdir, "not a regular file"),
    "endless": (linked, "the file is larger than 256 KiB"),
    "large": (lambda path: path.write_bytes(b"#" * (SIZE_MAX + 1)), "the file is larger than"),
    "nothing": (str, "no such file"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_configuration_is_a_problem(tmp_path: Path, kind: str) -> None:
    """C2, X3: one problem that names the file; nothing is waited for, or read without end."""
    make, why = ODD[kind]
    path = tmp_path / "indexerd.toml"
    make(path)

    found = read(path, tmp_path)

    assert found.settings == Settings()
    (problem,) = found.problems
    assert problem["file"] == str(path)
    assert problem["message"].startswith(why)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """C2: nobody writes into it; a process of its own, so that one that waits can be ended."""
    path = tmp_path / "indexerd.toml"
    os.mkfifo(path)
    script = """
import os, pathlib
from indexerd.paths import places
from indexerd.settings import read_config
print(read_config(places(os.environ, home=pathlib.Path(os.environ["HOME"])), os.environ).problems)
"""
    env = {**os.environ, "HOME": str(tmp_path), "INDEXERD_CONFIG": str(path)}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=env, capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip

    assert "not a regular file" in ran.stdout


def test_an_empty_device_and_a_link_are_as_good_as_a_file(tmp_path: Path) -> None:
    """C1: `--config /dev/null` says nothing, and a link leads to where it is kept."""
    (tmp_path / "real.toml").write_bytes(b"#" * (SIZE_MAX - 30) + b"\nmin_new_user_messages = 9\n")
    path = tmp_path / "indexerd.toml"
    path.symlink_to(tmp_path / "real.toml")

    assert read(Path("/dev/null"), tmp_path) == Loaded(Settings(), {}, ())
    found = read(path, tmp_path)

    assert found.problems == ()
    assert found.settings.min_new_user_messages == 9


@pytest.mark.parametrize("broken", ["[privacy\n", "bogus = 1\n", "[log]\nlevel = 3\n"])
def test_a_broken_file_leaves_the_last_good_settings(tmp_path: Path, broken: str) -> None:
    """S0.26: all of them, with the problems of the new file; what was kept is private."""
    path, state = tmp_path / "indexerd.toml", tmp_path / ".local/state/indexerd"
    state.mkdir(parents=True)
    path.write_text('[privacy]\nexclude = ["/a"]\n[redact]\nextra_patterns = ["ACME-[0-9]{8}"]\n')
    good = read(path, tmp_path)
    remember(good, state)
    path.write_text(broken)

    found = read(path, tmp_path)

    assert found.problems
    assert found.settings == good.settings
    assert (state / LAST_GOOD).stat().st_mode & 0o777 == 0o600
    remember(found, state)  # not sound: nothing is kept of it
    (state / LAST_GOOD).write_text("{")
    assert read(path, tmp_path).settings == Settings()

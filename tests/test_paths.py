"""Where things are: flags, variables, XDG places, and which ids may become file names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd import paths
from indexerd.errors import UsageError

HOME = Path("/home/ada")
ENV = {"HOME": str(HOME)}
linux = pytest.mark.skipif(sys.platform == "darwin", reason="platformdirs decides on macOS")


@linux
def test_defaults() -> None:
    """Without variables the XDG defaults hold, and the socket is beside the state."""
    found = paths.places(ENV)
    assert found.config_file == HOME / ".config/indexerd/indexerd.toml"
    assert not found.config_explicit
    assert found.state_dir == HOME / ".local/state/indexerd"
    assert found.data_dir == HOME / ".local/share/indexerd"
    assert found.socket == HOME / ".local/state/indexerd/indexerd.sock"


XDG = {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_DATA_HOME": "/d"}
XDG["XDG_RUNTIME_DIR"] = "/run/user/7"


def test_xdg_variables() -> None:
    """Each XDG variable moves its own directory; with a runtime directory the socket is there."""
    found = paths.places(ENV | XDG)
    assert found.config_file == Path("/c/indexerd/indexerd.toml")
    assert (found.state_dir, found.data_dir) == (Path("/s/indexerd"), Path("/d/indexerd"))
    assert found.socket == Path("/run/user/7/indexerd/indexerd.sock")


@linux
def test_relative_xdg_values_are_ignored() -> None:
    """The XDG rule; a relative runtime directory must not put a socket into the current one."""
    assert paths.places(ENV | dict.fromkeys(XDG, "here")) == paths.places(ENV)


def test_own_variables_win() -> None:
    """Ours win over XDG's, understand `~`, and relative ones start at the current directory."""
    ours = {
        "INDEXERD_STATE_DIR": "~/state",
        "INDEXERD_DATA_DIR": "data",
        "INDEXERD_SOCKET": "~/sock",
        "INDEXERD_CONFIG": "~/my.json",
    }
    found = paths.places(ENV | XDG | ours)
    assert found.state_dir == HOME / "state"
    assert found.data_dir == Path.cwd() / "data"
    assert found.socket == HOME / "sock"
    assert (found.config_file, found.config_explicit) == (HOME / "my.json", True)


def test_a_flag_wins_over_the_variable() -> None:
    """`--config` is the last word, and an explicit file."""
    found = paths.places({**ENV, "INDEXERD_CONFIG": "/other"}, config="/mine.toml")
    assert (found.config_file, found.config_explicit) == (Path("/mine.toml"), True)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_home_at_all_is_said() -> None:
    """A user of no one, without HOME, gets a sentence and not a traceback."""
    code = (
        "import os, sys; from indexerd import errors, paths\n"
        "os.setuid(1234567890); os.environ.pop('HOME', None)\n"
        "try: paths.places({})\n"
        "except errors.UsageError as bad: sys.exit(bad.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(paths.__file__).parents[1],
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "set HOME\n")


BAD = ["", ".", "..", "../x", "/abs", "a/b", "a\0b", "a\n", "a b", ".hidden", "-flag", "_x"]


@pytest.mark.parametrize("bad", [*BAD, "a" * 129, "\uff0fx", "\u0430bc", "\u0661"])
def test_ids_that_are_refused(bad: str) -> None:
    """X1: no id may leave its directory, hide, pose as a flag or look like another."""
    assert not paths.is_session_id(bad)
    with pytest.raises(UsageError):
        paths.meta_name(bad)
    with pytest.raises(UsageError):
        paths.user_name(bad)


@given(st.text(max_size=140))
def test_a_meta_name_is_one_file_name(text: str) -> None:
    """X1: what is accepted is a plain name below 255 bytes, and leads back to the id."""
    if not paths.is_session_id(text):
        return
    name = paths.meta_name(text)
    assert os.path.basename(name) == name
    assert len(os.fsencode(name)) < 255
    assert paths.user_name(text) == f"{text}.user.json"


def test_within() -> None:
    """A directory holds itself and what is below it, and not its namesakes."""
    for path, directory in (
        ("/a/b", "/a"),
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/a", "/a/"),
        ("/x", "/"),
    ):
        assert paths.within(path, directory)
    assert not paths.within("/ab", "/a")
    assert not paths.within("/a", "/a/b")

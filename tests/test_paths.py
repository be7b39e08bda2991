"""Where files are: flags, variables, XDG directories; and which ids may become file names."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd import client, paths
from indexerd.errors import UsageError

HOME = Path("/home/ada")
ENV = {"HOME": str(HOME)}
XDG = {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_DATA_HOME": "/d"}
XDG["XDG_RUNTIME_DIR"] = "/run/user/7"
OURS = {
    "INDEXERD_STATE_DIR": "~/state",
    "INDEXERD_DATA_DIR": "data",
    "INDEXERD_SOCKET": "~/sock",
    "INDEXERD_CONFIG": "~/my.json",
}
DEFAULTS = (
    *(HOME / ".config/indexerd/indexerd.toml", HOME / ".local/state/indexerd"),
    *(HOME / ".local/share/indexerd", HOME / ".local/state/indexerd/indexerd.sock"),
)


@pytest.mark.skipif(sys.platform == "darwin", reason="platformdirs decides on macOS")
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, DEFAULTS),
        (dict.fromkeys(XDG, "here"), DEFAULTS),  # the XDG rule: relative values are ignored
        (
            XDG,
            (
                *(Path("/c/indexerd/indexerd.toml"), Path("/s/indexerd"), Path("/d/indexerd")),
                Path("/run/user/7/indexerd/indexerd.sock"),
            ),
        ),
        (XDG | OURS, (HOME / "my.json", HOME / "state", Path.cwd() / "data", HOME / "sock")),
    ],
)
def test_places(env: dict[str, str], expected: tuple[Path, ...]) -> None:
    """Own variables win over XDG's, expand `~`, and may be relative to the directory."""
    found = paths.Places(ENV | env)
    assert (found.config_file, found.state_dir, found.data_dir, found.socket) == expected
    assert found.config_explicit is ("INDEXERD_CONFIG" in env)
    named = paths.Places(ENV | env, config="/mine.toml")
    assert (named.config_file, named.config_explicit) == (Path("/mine.toml"), True)


def test_a_missing_home_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.os.path, "expanduser", str)
    with pytest.raises(UsageError) as told:
        paths.Places({})
    assert told.value.hint == "set HOME"


BAD = ["", ".", "..", "../x", "/abs", "a/b", "a\0b", "a\n", "a b", ".hidden", "-flag", "_x"]


@pytest.mark.parametrize("bad", [*BAD, "a" * 129, "\uff0fx", "\u0430bc", "\u0661"])
def test_ids_that_are_refused(bad: str) -> None:
    """No id may leave its directory, be hidden, look like a flag or like another id."""
    assert not paths.is_session_id(bad)
    for name in (paths.meta_name, paths.user_name):
        with pytest.raises(UsageError):
            name(bad)


@given(st.text(max_size=140))
def test_a_meta_name_is_one_file_name(text: str) -> None:
    """An accepted name is plain, below 255 bytes, and leads back to its id."""
    if not paths.is_session_id(text):
        return
    name = paths.meta_name(text)
    assert os.path.basename(name) == name
    assert len(os.fsencode(name)) < 255
    assert paths.user_name(text) == f"{text}.user.json"

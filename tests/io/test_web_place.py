"""The web view's key and place: private, whole, and believed only where they are ours alone."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexerd.errors import AccessError, WriteError
from indexerd.io.web_place import Running, announce, announced, lasting_key, withdraw

HERE = Running("http://127.0.0.1:7117", 4711, bytes(range(32)))


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_the_key_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    """32 bytes, 0600, in a directory made for it; the same one at every later start."""
    state = tmp_path / "new" / "state"
    key = lasting_key(state)
    assert len(key) == 32
    assert key != bytes(32)
    assert mode(state / "web.key") == 0o600
    assert mode(state) == 0o700
    assert lasting_key(state) == key
    assert [one.name for one in state.iterdir()] == ["web.key"]


def test_two_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    """Whoever comes second takes the first one's."""
    found: list[bytes] = []
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait(10)
        found.append(lasting_key(tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["web.key"]


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o666])
def test_a_key_that_others_could_read_is_refused(tmp_path: Path, bits: int) -> None:
    """It may have been read already: it is not made private after the fact, but refused."""
    lasting_key(tmp_path)
    (tmp_path / "web.key").chmod(bits)
    with pytest.raises(AccessError, match="not ours alone"):
        lasting_key(tmp_path)


def test_a_key_behind_a_link_or_of_another_size_is_refused(tmp_path: Path) -> None:
    """So is a directory, and a pipe does not hang it."""
    real = tmp_path / "real"
    lasting_key(real)
    for name in ("link", "short", "folder", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "link" / "web.key").symlink_to(real / "web.key")
    (tmp_path / "short" / "web.key").write_bytes(b"short")
    (tmp_path / "short" / "web.key").chmod(0o600)
    (tmp_path / "folder" / "web.key").mkdir()
    os.mkfifo(tmp_path / "pipe" / "web.key", 0o600)
    for name in ("link", "short", "folder", "pipe"):
        with pytest.raises(AccessError):
            lasting_key(tmp_path / name)


def test_where_nothing_can_be_written_the_path_is_named(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "state").write_text("in the way")
    with pytest.raises((AccessError, WriteError), match=r"web\.key"):
        lasting_key(tmp_path / "state")


def test_a_server_says_where_it_is_and_takes_it_back(tmp_path: Path) -> None:
    """What is read is what was said; at the end nothing of it is left."""
    assert announced(tmp_path) is None
    announce(tmp_path, HERE)
    assert announced(tmp_path) == HERE
    assert mode(tmp_path / "web.json") == 0o600
    assert json.loads((tmp_path / "web.json").read_bytes()).keys() == {"url", "pid", "boot"}
    withdraw(tmp_path, HERE)
    assert list(tmp_path.iterdir()) == []
    withdraw(tmp_path, HERE)


def test_the_later_server_counts(tmp_path: Path) -> None:
    """It writes over what the earlier one said, and that one does not take it back."""
    later = Running("http://[::1]:7118", 4712, bytes(32))
    announce(tmp_path, HERE)
    announce(tmp_path, later)
    withdraw(tmp_path, HERE)
    assert announced(tmp_path) == later


def test_a_place_that_others_could_write_is_not_believed(tmp_path: Path) -> None:
    """Else a token would be made with somebody else's key, for somebody else's address."""
    announce(tmp_path, HERE)
    (tmp_path / "web.json").chmod(0o622)
    with pytest.raises(AccessError):
        announced(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com:80",
        "http://127.0.0.1.example.com:80",
        "https://127.0.0.1:80",
        "http://127.0.0.1:80/path",
        "http://user@127.0.0.1:80",
        "http://127.0.0.1:80\n",
        "",
        None,
    ],
)
def test_only_an_address_on_this_machine_is_a_place(tmp_path: Path, url: str | None) -> None:
    """Whatever the file says: no proof is asked of anybody else."""
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"url": url, "pid": 1, "boot": "00" * 32}))
    path.chmod(0o600)
    assert announced(tmp_path) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=st.binary(max_size=300) | st.just(b"[" * 3000))
def test_a_file_that_says_nothing_is_none(tmp_path: Path, held: bytes) -> None:
    """Torn, empty or foreign: there is no server, and no error."""
    path = tmp_path / "web.json"
    path.touch(0o600)
    path.write_bytes(held)
    assert announced(tmp_path) is None


def test_neither_key_shows_itself(tmp_path: Path) -> None:
    """Not where a value is printed by mistake."""
    announce(tmp_path, HERE)
    assert HERE.boot.hex() not in repr(announced(tmp_path))
    assert repr(HERE.boot) not in repr(HERE)

"""The web view's place and page: private, whole, and believed only where they are ours alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexerd.errors import AccessError, WriteError
from indexerd.web.web_place import Running, announce, announced, drop_page, put_page, withdraw

HERE = Running("http://127.0.0.1:7117", os.getpid(), bytes(range(32)))


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


def place(state: Path, pid: int = HERE.pid) -> Path:
    """Where the server of a process says where it is."""
    return state / f"web-{pid}.json"


def ended() -> int:
    """A process that was, and is no more."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(30)
    return child.pid


@pytest.fixture
def another() -> Iterator[int]:
    """A process that runs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child.pid
        child.kill()


def test_where_nothing_can_be_written_the_path_is_named(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "state").write_text("in the way")
    with pytest.raises((AccessError, WriteError), match=r"web-\d+\.json"):
        announce(tmp_path / "state", HERE)
    with pytest.raises((AccessError, WriteError), match=r"web-open\.html"):
        put_page(tmp_path / "state", "http://127.0.0.1:1/")
    assert announced(tmp_path / "state") == []


def test_a_server_says_where_it_is_and_takes_it_back(tmp_path: Path) -> None:
    """What is read is what was said, in a directory made for it; at the end nothing is left."""
    state = tmp_path / "new" / "state"
    assert announced(state) == []
    announce(state, HERE)
    assert announced(state) == [HERE]
    assert mode(state) == 0o700
    assert mode(place(state)) == 0o600
    assert json.loads(place(state).read_bytes()).keys() == {"url", "pid", "boot"}
    withdraw(state, HERE)
    assert list(state.iterdir()) == []
    withdraw(state, HERE)


def test_of_two_servers_the_one_that_runs_is_found(tmp_path: Path, another: int) -> None:
    """The later comes first; when it ends, the earlier is there as before."""
    later = Running("http://[::1]:7118", another, bytes(32))
    announce(tmp_path, HERE)
    announce(tmp_path, later)
    os.utime(place(tmp_path), ns=(1, 1))
    assert announced(tmp_path) == [later, HERE]
    withdraw(tmp_path, later)
    assert announced(tmp_path) == [HERE]


def test_what_was_killed_is_forgotten(tmp_path: Path) -> None:
    """Its file counts for nothing, and the next server removes it."""
    gone = Running("http://127.0.0.1:7118", ended(), bytes(32))
    announce(tmp_path, gone)
    assert announced(tmp_path) == []
    assert place(tmp_path, gone.pid).exists()
    announce(tmp_path, HERE)
    assert [one.name for one in tmp_path.iterdir()] == [place(tmp_path).name]


def test_a_file_speaks_for_its_own_process(tmp_path: Path) -> None:
    """One that names another, or is not called as ours are, is none."""
    announce(tmp_path, HERE)
    held = place(tmp_path).read_bytes()
    place(tmp_path).unlink()
    for name in ("web-1.json", f"web-0{HERE.pid}.json", "web-x.json", "web.json"):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_bytes(held)
    assert announced(tmp_path) == []


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o622, 0o666])
def test_a_place_that_others_could_read_or_write_is_not_believed(tmp_path: Path, bits: int) -> None:
    """Else a token would be made with somebody else's key, for somebody else's address."""
    announce(tmp_path, HERE)
    place(tmp_path).chmod(bits)
    assert announced(tmp_path) == []


def test_what_is_no_file_of_ours_is_not_believed(tmp_path: Path) -> None:
    """A link, a directory; and a pipe does not hang it."""
    for name in ("real", "link", "folder", "pipe"):
        (tmp_path / name).mkdir()
    announce(tmp_path / "real", HERE)
    place(tmp_path / "link").symlink_to(place(tmp_path / "real"))
    place(tmp_path / "folder").mkdir()
    os.mkfifo(place(tmp_path / "pipe"), 0o600)
    for name in ("link", "folder", "pipe"):
        assert announced(tmp_path / name) == []


# -- the page that leads there -------------------------------------------------------------------


class Page(HTMLParser):
    """Where a page leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ways: list[str | None] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the way."""
        held = dict(attrs)
        if tag == "a":
            self.ways.append(held["href"])
        if held.get("http-equiv") == "refresh":
            self.ways.append((held["content"] or "").removeprefix("0; url="))


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:1/s/a%20b?find=x&token=a.b", "http://127.0.0.1:1/\"><script>'&lt;"],
)
def test_a_page_leads_to_an_address_and_is_ours_alone(tmp_path: Path, address: str) -> None:
    """By itself and by a link; whatever is in the address is no markup."""
    path = put_page(tmp_path, "http://127.0.0.1:1/old")
    path = put_page(tmp_path, address)
    assert mode(path) == 0o600
    assert Page(path.read_text()).ways == [address, address]
    assert "<script" not in path.read_text()
    assert [one.name for one in tmp_path.iterdir()] == ["web-open.html"]


def test_the_page_is_removed_by_whom_it_leads_to(tmp_path: Path) -> None:
    """Not by another server that ends, nor for another's token."""
    path = put_page(tmp_path, "http://127.0.0.1:1/?a&token=abc")
    for words in ("http://127.0.0.1:2/", "token=abd"):
        drop_page(tmp_path, words)
        assert path.exists()
    drop_page(tmp_path, "?a&token=abc")
    assert not path.exists()
    drop_page(tmp_path, "abc")


# -- what files say ------------------------------------------------------------------------------


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
    path = place(tmp_path)
    path.write_text(json.dumps({"url": url, "pid": HERE.pid, "boot": "00" * 32}))
    path.chmod(0o600)
    assert announced(tmp_path) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=st.binary(max_size=300) | st.just(b"[" * 3000))
def test_a_file_that_says_nothing_is_none(tmp_path: Path, held: bytes) -> None:
    """Torn, empty or foreign: there is no server, and no error."""
    path = place(tmp_path)
    path.touch(0o600)
    path.write_bytes(held)
    assert announced(tmp_path) == []


def test_the_key_does_not_show_itself(tmp_path: Path) -> None:
    """Not where a value is printed by mistake."""
    announce(tmp_path, HERE)
    assert HERE.boot.hex() not in repr(announced(tmp_path))
    assert repr(HERE.boot) not in repr(HERE)

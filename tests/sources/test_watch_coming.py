"""The watcher, where a root is missing: what it awaits, and that it awaits nothing else."""

import shutil
import sys

import pytest

from indexerd.sources import watch as module
from tests.sources.watch_ear import append, ears

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="written for inotify")


@pytest.fixture(params=["inotify", "stock"])
def ear(request, monkeypatch):
    """Make ears of both ways of using watchdog."""
    monkeypatch.setattr(module, "FAST", request.param == "inotify")
    yield from ears()


@pytest.fixture
def fast_ear(monkeypatch):
    """Make ears, for what only our own callback can do."""
    monkeypatch.setattr(module, "FAST", True)
    yield from ears()


def test_a_missing_root_is_awaited(ear, tmp_path):
    """Whatever of it comes asks for a scan, by mkdir, rename or link; nothing beside it (W5)."""
    root, other = tmp_path / "home" / "a" / "b" / "root", tmp_path / "other"
    (tmp_path / "home").mkdir()
    other.mkdir()
    heard = ear(root, other)
    for name in ("x", "a.d", "root"):
        (tmp_path / "home" / name).mkdir()
        append(tmp_path / "home" / name / "s.jsonl")
        append(tmp_path / "home" / f"{name}.jsonl")
    heard.settle(other)
    assert (heard.paths, heard.rescan) == (set(), False)
    (tmp_path / "home" / "a").mkdir()
    heard.asks_for_scan()
    heard.arm(root, other)
    (tmp_path / "deep" / "root").mkdir(parents=True)
    (tmp_path / "deep").rename(tmp_path / "home" / "a" / "b")
    heard.asks_for_scan()
    heard.arm(root, other)
    append(root / "s.jsonl")
    heard.hears(root / "s.jsonl")
    shutil.rmtree(tmp_path / "home")
    heard.asks_for_scan()
    heard.arm(root, other)
    root.parent.mkdir(parents=True)
    heard.asks_for_scan()
    heard.arm(root, other)
    root.symlink_to(other)
    heard.asks_for_scan()


def test_a_directory_in_which_one_is_awaited_is_moved_away(fast_ear, tmp_path):
    """Then it is awaited one floor higher (W5)."""
    home = tmp_path / "home"
    home.mkdir()
    heard = fast_ear(home / "root")
    home.rename(tmp_path / "away")
    heard.asks_for_scan()
    heard.arm(home / "root")
    (home / "root").mkdir(parents=True)
    heard.asks_for_scan()

"""The watcher, on real files: what it hints at, what it survives, what it says of itself."""

import os
import shutil
import sys
import threading

import pytest
from watchdog.observers.polling import PollingObserver

from indexerd.sources import hints as heard_of
from indexerd.sources import watch as module
from indexerd.sources import watch_stock
from indexerd.sources.scan import scan
from tests.sources.watch_ear import append, ears

BOTH = ("inotify", "stock")  # our own callback on watchdog's reader, and watchdog's Observer
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="written for inotify")


@pytest.fixture(params=BOTH)
def driver(request, monkeypatch):
    """Both ways of using watchdog must behave the same."""
    monkeypatch.setattr(module, "FAST", request.param == "inotify")
    return request.param


@pytest.fixture
def ear(driver):
    """Make ears of both ways."""
    yield from ears()


@pytest.fixture
def fast_ear(monkeypatch):
    """Make ears, for what only our own callback can do."""
    monkeypatch.setattr(module, "FAST", True)
    yield from ears()


# What is hinted at


def test_each_change(ear, tmp_path):
    """Append, chmod (F19), create, rename (F14: by both names), delete: all are hinted at."""
    (tmp_path / "p").mkdir()
    old = tmp_path / "p" / "old.jsonl"
    append(old)
    heard = ear(tmp_path)
    for change in (append, lambda path: path.chmod(0o400)):
        change(old)
        heard.hears(old)
        heard.forget(tmp_path)
    new = tmp_path / "p" / "new.jsonl"
    append(new)
    heard.hears(new)
    heard.forget(tmp_path)
    new.rename(tmp_path / "moved.jsonl")
    heard.hears(new, tmp_path / "moved.jsonl")
    heard.forget(tmp_path)
    old.unlink()
    heard.hears(old)


def test_only_our_names(ear, tmp_path):
    """Session, meta and user files only; temporary and hidden ones are passed over (W11, A9)."""
    (tmp_path / ".hidden" / "deep").mkdir(parents=True)
    heard = ear(tmp_path)
    for name in ("a.txt", ".x.meta.json", "x.meta.json.tmp", "b.toml", ".jsonl", ".s.jsonl"):
        append(tmp_path / name)
    (tmp_path / ".later").mkdir()
    for name in (".hidden/s.jsonl", ".hidden/deep/s.jsonl", ".later/s.jsonl"):
        append(tmp_path / name)
    wanted = [tmp_path / name for name in ("s.jsonl", "s.meta.json", "s.user.json")]
    list(map(append, wanted))
    heard.settle(tmp_path)
    assert heard.paths == {str(path) for path in wanted}


def test_suffixes_are_an_argument(ear, tmp_path):
    """Who keeps sessions in other files says so."""
    heard = ear(tmp_path, suffixes=(".db-wal", ".jsonl"))
    append(tmp_path / "opencode.db-wal")
    append(tmp_path / "s.meta.json")
    heard.settle(tmp_path)
    assert heard.paths == {str(tmp_path / "opencode.db-wal")}


def test_our_own_reads_are_silent(ear, tmp_path):
    """W11: opening, reading, listing and statting wake nobody (ecosystem trap 1)."""
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "s.jsonl"
    append(path)
    heard = ear(tmp_path)
    for _ in range(20):
        path.read_bytes()
        path.stat()
        scan([str(tmp_path)])
    heard.settle(tmp_path)
    assert heard.paths == set()
    assert not heard.rescan


def test_names_of_any_bytes(ear, tmp_path):
    """Newline, ESC, bytes that are no UTF-8 and 255 bytes arrive as the scan names them (W14)."""
    heard = ear(tmp_path)
    names = [b"a\nb", b"\x1b[31m", b"\xff\xfe", "ü€".encode(), b"n" * 249]
    for name in names:
        append(os.path.join(os.fsencode(tmp_path), name + b".jsonl"))
    directory = os.path.join(os.fsencode(tmp_path), b"d\n\xff\x1b")
    os.mkdir(directory)
    append(directory + b"/s.jsonl")
    expected = {one.path for one in scan([str(tmp_path)]).files}
    assert len(expected) == 6
    heard.hears(*expected)
    append(directory + b"/t.jsonl")
    heard.hears(os.fsdecode(directory) + "/t.jsonl")


def test_new_trees_are_not_missed(ear, tmp_path):
    """`mkdir -p a/b/c` and a write at once, 100 times: each file is hinted at (W7)."""
    heard = ear(tmp_path)
    wanted = []
    for n in range(100):
        deep = tmp_path / f"a{n}" / "b" / "c"
        deep.mkdir(parents=True)
        append(deep / "s.jsonl")
        wanted.append(deep / "s.jsonl")
    heard.hears(*wanted)
    heard.forget(tmp_path)
    for path in wanted:
        append(path)
    heard.hears(*wanted)


def test_tree_moved_in_and_on(ear, tmp_path):
    """What a directory brings along is hinted at, and watched under each later name (W8)."""
    outside = tmp_path / "outside" / "p" / "q"
    outside.mkdir(parents=True)
    append(outside / "s.jsonl")
    root = tmp_path / "root"
    root.mkdir()
    heard = ear(root)
    (tmp_path / "outside" / "p").rename(root / "p")
    heard.hears(root / "p" / "q" / "s.jsonl")
    heard.forget(root)
    append(root / "p" / "q" / "s.jsonl")
    heard.hears(root / "p" / "q" / "s.jsonl")
    (root / "p").rename(root / "r")
    heard.asks_for_scan()
    heard.arm(root)
    append(root / "r" / "q" / "s.jsonl")
    heard.hears(root / "r" / "q" / "s.jsonl")


def test_tree_moved_out(ear, driver, tmp_path):
    """A directory that leaves takes files along: a scan is asked for (W8)."""
    root = tmp_path / "root"
    (root / "p" / "q").mkdir(parents=True)
    append(root / "p" / "s.jsonl")
    heard = ear(root)
    (root / "p").rename(tmp_path / "gone")
    heard.asks_for_scan()
    heard.arm(root)
    append(tmp_path / "gone" / "s.jsonl")
    heard.settle(root)
    if driver == "inotify":  # the Observer goes on watching it, under its old name
        assert (heard.paths, heard.watch.health().watched) == (set(), 1)


# Roots


def test_symlinked_root(ear, tmp_path):
    """A root may be a link; hints name the real path, and a new target is found (W6)."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")
    heard = ear(link)
    append(link / "s.jsonl")
    heard.hears(tmp_path / "one" / "s.jsonl")
    link.unlink()
    link.symlink_to("two")
    heard.watch.arm([str(link)])
    heard.asks_for_scan()
    append(link / "s.jsonl")
    heard.hears(tmp_path / "two" / "s.jsonl")
    heard.forget(tmp_path / "two")
    append(tmp_path / "one" / "s.jsonl")
    heard.settle(tmp_path / "two")
    assert heard.paths == set()


def test_links_below_a_root_are_not_followed(ear, tmp_path):
    """A link to a directory is no part of the tree (X2)."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (root / "before").symlink_to(outside)
    heard = ear(root)
    (root / "after").symlink_to(outside)
    append(outside / "s.jsonl")
    heard.settle(root)
    assert heard.paths == set()


def test_root_comes_later(ear, tmp_path):
    """A root that is not there is named as missing, and found by the next arm (W5)."""
    root = tmp_path / "late" / "root"
    heard = ear(root)
    assert heard.watch.health().missing == (str(root),)
    root.mkdir(parents=True)
    heard.watch.arm([str(root)])
    heard.asks_for_scan()
    assert heard.watch.health().missing == ()
    append(root / "s.jsonl")
    heard.hears(root / "s.jsonl")


def test_root_deleted_and_recreated(ear, tmp_path):
    """Again and again, with the inode number that ext4 hands out again: heard each time (W5)."""
    root = tmp_path / "root"
    (root / "p").mkdir(parents=True)
    heard = ear(root)
    for _ in range(5):
        shutil.rmtree(root)
        heard.asks_for_scan()
        root.mkdir()
        heard.until(lambda: heard.hears_after_arm(root))


def test_root_replaced_by_rename(ear, tmp_path):
    """Another directory under the root's name is the root after the next arm (W5)."""
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    heard = ear(root)
    root.rename(tmp_path / "old")
    other.rename(root)
    heard.watch.arm([str(root)])
    heard.asks_for_scan()
    append(root / "s.jsonl")
    heard.hears(root / "s.jsonl")


def test_roots_that_leave(ear, tmp_path):
    """A root that is not asked for any more is not watched any more."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    heard = ear(one, two)
    assert heard.watch.health().watched == 2
    heard.arm(two)
    append(one / "s.jsonl")
    heard.settle(two)
    assert heard.paths == set()
    assert heard.watch.health().watched == 1


def test_overlapping_roots_are_watched_once(fast_ear, tmp_path):
    """Nested, doubled and linked roots are one tree (C6)."""
    (tmp_path / "root" / "in" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("root/in")
    root = tmp_path / "root"
    heard = fast_ear(root, root / "in", root, tmp_path / "link")
    assert heard.watch.health().watched == 3


def test_arming_again_is_quiet(ear, tmp_path):
    """Nothing new: no scan is asked for, and nobody is woken."""
    (tmp_path / "p").mkdir()
    heard = ear(tmp_path)
    heard.bell.clear()
    for _ in range(3):
        heard.watch.arm([str(tmp_path)])
    assert heard.watch.take() == (frozenset(), False)
    assert not heard.bell.is_set()


# Being woken


def test_woken_once_until_taken():
    """`on_dirty` comes at each empty -> non-empty edge, and only there."""
    calls = []
    inbox = heard_of.Inbox(lambda: calls.append(1), heard_of.SUFFIXES)
    for wakes in (1, 2):
        for n in range(50):
            inbox.put(f"/{n}.jsonl")
            inbox.put(None)
        assert len(calls) == wakes
        assert len(inbox.take().paths) == 50
    assert inbox.take() == (frozenset(), False)


def test_hints_are_bounded(monkeypatch):
    """More paths than are kept become one wish for a scan."""
    monkeypatch.setattr(heard_of, "MAX_HINTS", 10)
    inbox = heard_of.Inbox(lambda: None, heard_of.SUFFIXES)
    for n in range(30):
        inbox.put(f"/{n}.jsonl")
    hints = inbox.take()
    assert (len(hints.paths), hints.rescan) == (10, True)


def test_waking_that_raises(ear, tmp_path):
    """It kills nothing, loses nothing, is shown, and is tried again at the next event (W3)."""
    heard = ear(tmp_path, clock=lambda: 7.0)
    calls = threading.Semaphore(0)

    def on_dirty():
        calls.release()
        raise RuntimeError("theirs")

    heard.watch._inbox._on_dirty = on_dirty
    paths = [tmp_path / f"{n}.jsonl" for n in range(4)]
    for path in paths[:3]:
        append(path)
        assert calls.acquire(timeout=15)
    heard.watch._inbox._on_dirty = heard.bell.set
    problem = module.Problem("watch_wake_failed", "waking the daemon raised RuntimeError", 7.0, "")
    assert heard.watch.health().problems[0][:3] == problem[:3]
    append(paths[3])
    heard.hears(*paths)
    assert (heard.codes(), heard.watch.health().rebuilds) == ([], 0)


# Faults


def test_no_native_observer(monkeypatch, fast_ear, tmp_path):
    """Without inotify and FSEvents nothing is watched, and it says so."""
    monkeypatch.setattr(module, "FAST", False)
    monkeypatch.setattr(watch_stock, "Observer", PollingObserver)
    heard = fast_ear(tmp_path)
    assert (heard.watch.health().mode, heard.codes()) == ("poll", ["watch_unavailable"])


def test_poll_watches_nothing(fast_ear, tmp_path):
    """In this mode there is no thread and no hint; missing roots are still named (W13)."""
    threads = threading.active_count()
    heard = fast_ear(tmp_path, tmp_path / "not", mode="poll")
    append(tmp_path / "s.jsonl")
    heard.watch.tend()
    assert threading.active_count() == threads
    assert heard.watch.take() == (frozenset(), False)
    assert heard.watch.health() == ("poll", 0, (str(tmp_path / "not"),), (), 0, 0)


def test_closed_is_closed(ear, tmp_path):
    """After close, arming does nothing and nothing is hinted at."""
    heard = ear(tmp_path)
    heard.watch.close()
    heard.arm(tmp_path)
    append(tmp_path / "s.jsonl")
    assert heard.watch.take() == (frozenset(), False)
    assert heard.watch.health().mode == "poll"

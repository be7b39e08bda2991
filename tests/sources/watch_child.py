"""The watcher's faults, each in a process of its own: kernel limits, dead threads, leaks.

Run as `python watch_child.py SCENARIO DIRECTORY inotify|stock`; what goes wrong is an assertion
on stderr, and otherwise nothing may be there. Limits are those of a user namespace
(`unshare -Ur`), so that nobody else on the machine feels them.
"""

import ctypes
import logging
import os
import random
import resource
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from indexerd.sources import watch as module
from indexerd.sources.scan import scan
from tests.sources.watch_ear import Ear, append


def limit(name, value):
    """Set an inotify limit of this user namespace."""
    Path(f"/proc/sys/user/max_inotify_{name}").write_text(str(value))


def descriptors():
    """Name the open ones, that of the listing itself included."""
    return os.listdir("/proc/self/fd")


def watches_at_start(root):
    """W2: ENOSPC names the sysctl, is no reason for haste, and heals once the limit is raised."""
    for n in range(20):
        (root / f"d{n}").mkdir()
    limit("watches", 5)
    with Ear(root) as ear:
        health = ear.watch.health()
        (problem,) = health.problems
        assert (health.mode, health.watched, problem.code) == ("inotify", 5, "watch_limit")
        assert "fs.inotify.max_user_watches" in problem.cause
        assert "sysctl fs.inotify.max_user_watches=" in problem.cure
        ear.watch.arm([str(root)])
        assert not ear.watch.take().rescan
        assert ear.watch.health().problems == (problem,)
        limit("watches", 1000)
        ear.watch.arm([str(root)])
        assert ear.watch.take().rescan
        assert (ear.watch.health().watched, ear.codes()) == (21, [])
        files = [root / f"d{n}" / "s.jsonl" for n in range(20)]
        for path in files:
            append(path)
        ear.hears(*files)


def watches_later(root):
    """W2: ENOSPC for a directory that comes later is noticed when it comes."""
    limit("watches", 5)
    with Ear(root) as ear:
        assert ear.codes() == []
        for n in range(10):
            (root / f"d{n}").mkdir()
        ear.until(lambda: ear.codes() == ["watch_limit"])
        ear.asks_for_scan()
        limit("watches", 1000)
        ear.arm(root)
        assert (ear.watch.health().watched, ear.codes()) == (11, [])
        append(root / "d9" / "s.jsonl")
        ear.hears(root / "d9" / "s.jsonl")


def instances(root):
    """W2: EMFILE means polling, with the sysctl's name, until an instance is to be had."""
    limit("instances", 0)
    with Ear(root) as ear:
        health = ear.watch.health()
        (problem,) = health.problems
        assert (health.mode, problem.code) == ("poll", "watch_instances")
        assert "fs.inotify.max_user_instances" in problem.cause
        limit("instances", 10)
        ear.until(lambda: ear.hears_after_arm(root))
        assert (ear.watch.health().mode, ear.codes()) == ("inotify", [])
        limit("instances", 0)
        kill(ear, ear.reader(), root)
        ear.watch.take()
        ear.watch.tend()
        assert ear.watch.take().rescan
        assert (ear.watch.health().mode, ear.codes()) == ("poll", ["watch_instances"])


def no_descriptors(root):
    """W2: where no descriptor is left, trying does not take the last ones for good."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(map(int, descriptors()))
    held = [os.dup(0)]
    while held[-1] < top:
        held.append(os.dup(0))  # no gaps: the limit is about numbers
    before = len(descriptors())
    with Ear(mode="poll") as ear:
        ear.watch._mode = "auto"  # from now on, that is
        for spare in (0, 1, 2, 0):  # a watcher needs three
            resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + spare, hard))
            ear.arm(root)
            assert (ear.watch.health().mode, ear.codes()) == ("poll", ["watch_unavailable"])
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(descriptors()) == before
        ear.until(lambda: ear.hears_after_arm(root))


def become_nobody(root):
    """Root may read everything: be somebody else."""
    root.chmod(0o777)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


def denied_watch(root):
    """F19: a directory that may not be read is no problem of the watcher's, and heals."""
    become_nobody(root)
    (root / "closed").mkdir()
    (root / "closed").chmod(0)
    with Ear(root) as ear:
        assert (ear.watch.health().watched, ear.codes()) == (1, [])
        (root / "closed").chmod(0o700)
        ear.until(lambda: ear.hears_after_arm(root, root / "closed"))
        assert (ear.watch.health().watched, ear.codes()) == (2, [])


def denied_scan(root):
    """F19: directories that may not be listed, not searched, not reached are named."""
    become_nobody(root)
    for name, mode in (("closed", 0), ("listed", 0o400), ("open", 0o700)):
        (root / name).mkdir()
        append(root / name / "s.jsonl")
        (root / name).chmod(mode)
    (root / "above" / "inner").mkdir(parents=True)
    (root / "above").chmod(0)
    result = scan([str(root), str(root / "above" / "inner")])
    for name in ("closed", "listed", "above"):
        (root / name).chmod(0o700)
    assert [one.path for one in result.files] == [str(root / "open" / "s.jsonl")]
    unreadable = {str(root / name) for name in ("closed", "listed", "above", "above/inner")}
    assert set(result.unreadable) == unreadable
    assert (result.missing, result.partial) == ((), False)


def odd_watchdog(root):
    """Where watchdog's half-public layer has other names, its Observer does the work."""
    from watchdog.observers.inotify_c import InotifyConstants

    del InotifyConstants.IN_EXCL_UNLINK
    del sys.modules["indexerd.sources.watch"]
    from indexerd.sources.watch import FAST, Watch

    assert not FAST
    with Ear() as ear:
        ear.watch.close()
        ear.watch = Watch("auto", ear.bell.set, time.monotonic)
        ear.until(lambda: ear.hears_after_arm(root))
        assert ear.watch.health().mode == "inotify"


def overflow(root):
    """W1: a full queue is counted, asks for a scan, and leaves no new directory deaf."""
    size = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    (root / "p").mkdir()
    paths = [root / "p" / f"{n}.jsonl" for n in range(50)]
    for path in paths:
        append(path)
    with Ear(root) as ear:
        with ear.reader()._lock:  # it stands still, as under SIGSTOP
            for _ in range((size + 6000) // 50):
                for path in paths:
                    os.utime(path)
            (root / "new").mkdir()
        ear.asks_for_scan()
        ear.until(lambda: ear.watch.health().overflows >= 1)
        ear.until(lambda: ear.hears_after_arm(root, root / "new"))
        assert (ear.watch.health().rebuilds, ear.codes()) == (0, [])


def kill(ear, thread, root):
    """End a thread from outside, as a bug in it would."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )

    def gone():
        append(root / "nudge.jsonl")
        return not thread.is_alive()

    ear.until(gone)


def dead_threads(root):
    """W4: whichever thread dies, tending rebuilds all, and asks for a scan; nothing leaks."""
    module.JOIN_SECONDS = 0.3
    with Ear(root) as ear:
        kinds = ["reader"] if module.FAST else ["reader", "observer", "emitter"]
        before, threads = len(descriptors()), threading.active_count()
        for n, kind in enumerate(kinds, start=1):
            observer = getattr(ear.watch._driver, "_observer", None)
            victims = {"reader": ear.reader(), "observer": observer}
            victim = victims.get(kind) or next(iter(observer.emitters))
            kill(ear, victim, root)
            ear.watch.take()
            ear.watch.tend()
            assert ear.watch.take().rescan
            append(root / f"{kind}.jsonl")
            ear.hears(root / f"{kind}.jsonl")
            ear.watch.tend()
            assert ear.watch.health().rebuilds == n
        if module.FAST:  # the Observer keeps what its dead threads held
            assert (len(descriptors()), threading.active_count()) == (before, threads)


def failing(root):
    """W4: five rebuilds within five minutes, and the process had better be started anew."""
    now = [1000.0]
    with Ear(root, clock=lambda: now[0]) as ear:
        for _ in range(5):
            assert not ear.watch.failing()
            kill(ear, ear.reader(), root)
            ear.watch.tend()
            now[0] += 10
        assert ear.watch.failing()
        now[0] += module.FAILING_SECONDS
        assert not ear.watch.failing()
        assert ear.watch.health().rebuilds == 5


def fifty_watchers(root):
    """They come and go, and no descriptor and no thread is left."""
    (root / "p").mkdir()
    Ear(root).watch.close()
    before, threads = sorted(descriptors()), threading.active_count()
    for _ in range(50):
        with Ear(root) as ear:
            ear.watch.close()
    assert (sorted(descriptors()), threading.active_count()) == (before, threads)
    assert logging.getLogger("watchdog.observers.inotify_c").filters == []


def churn(root):
    """W9: directories that come and go raise no warning, and no watch and no text stays."""
    from watchdog.observers import inotify, inotify_c

    with Ear(root) as ear:
        for _ in range(40):
            for n in range(20):
                (root / f"d{n}").mkdir()
            for n in range(20):
                (root / f"d{n}").rename(root / f"e{n}")
            for n in range(20):
                (root / f"e{n}").rmdir()
        ear.settle(root)
        ear.arm(root)
        assert (ear.watch.health().rebuilds, ear.watch.health().watched) == (0, 1)
    for one in (inotify, inotify_c, module):
        assert getattr(one, "__warningregistry__", {}).keys() <= {"version"}


def stir(inside, outside, dice, step):
    """Make, append, move within, move out or move in: one change of a tree."""
    places = [inside, *(path for path in inside.rglob("*") if path.is_dir())]
    here, there = dice.choice(places), dice.choice(places)
    match dice.randrange(8):
        case 0 | 1:
            (here / f"d{step}" / "deep").mkdir(parents=True)
        case 2 | 3 | 4:
            append(here / f"{dice.randrange(3)}.jsonl")
        case 5 if here not in (inside, there) and here not in there.parents:
            here.rename(there / f"m{step}")
        case 6 if here != inside:
            here.rename(outside / f"o{step}")
        case 7 if list(outside.iterdir()):
            next(outside.iterdir()).rename(here / f"i{step}")


def sizes(root):
    """What a scan would tell."""
    return {one.path: one.size for one in scan([str(root)]).files}


def storm(root):
    """W8: after any mix of changes, hints and the scans asked for have told all of it."""
    dice = random.Random(7)
    inside, outside = root / "in", root / "out"
    inside.mkdir()
    outside.mkdir()
    known = {}

    def told():
        ear.listen()
        for path in ear.paths:
            known.pop(path, None)
            if os.path.exists(path):
                known[path] = os.path.getsize(path)
        ear.paths.clear()
        if ear.rescan:
            ear.rescan = False
            known.clear()
            known.update(sizes(inside))
            ear.watch.arm([str(inside)])
        return known == sizes(inside)

    with Ear(inside) as ear:
        for step in range(400):
            stir(inside, outside, dice, step)
            if not dice.randrange(10):
                told()
        ear.until(told)
        assert ear.watch.health().rebuilds == 0
        ear.watch.arm([str(inside)])
        books, last = ear.reader()._watch_for_wd, ear.watch._driver._last_id
        assert {len(one.callbacks) for one in books.values()} == {1}
        assert len(books) == ear.watch.health().watched
        ear.watch.arm([str(inside)])
        assert ear.watch._driver._last_id == last  # without news it does not even look


def close_while_arming(root):
    """Closing from another thread ends a walk in progress, and what it opened."""
    for n in range(300):
        (root / f"{n}").mkdir()
    threads = threading.active_count()
    for _ in range(5):
        watch = module.Watch("auto", lambda: None, time.monotonic)
        arming = threading.Thread(target=watch.arm, args=([str(root)],))
        arming.start()
        watch.close()
        arming.join(15)
        assert watch.health().mode == "poll"
        assert threading.active_count() == threads


if __name__ == "__main__":
    module.FAST = sys.argv[3] == "inotify"
    globals()[sys.argv[1]](Path(sys.argv[2]).resolve())

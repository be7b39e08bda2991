"""The watcher in a process of its own: limits of the system, faults, denied directories."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from indexerd.sources import watch as module

CHILD = Path(__file__).with_name("watch_child.py")
BOTH = ("inotify", "stock")  # our own callback on watchdog's reader, and watchdog's Observer
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="written for inotify")


@pytest.fixture(params=BOTH)
def driver(request, monkeypatch):
    """Both ways of using watchdog must behave the same."""
    monkeypatch.setattr(module, "FAST", request.param == "inotify")
    return request.param


def child(scenario, driver, directory, *before):
    """Run a scenario; it says nothing when all is well."""
    words = [*before, sys.executable, str(CHILD), scenario, str(directory), driver]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")


LIMITS = ["watches_at_start inotify", "watches_later inotify"]
LIMITS += [f"instances {one}" for one in BOTH]
FAULTS = [f"{_one} inotify" for _one in ("no_descriptors", "failing", "storm", "odd_watchdog")]
for _one in ("overflow", "dead_threads", "fifty_watchers", "churn", "close_while_arming"):
    FAULTS += [f"{_one} {driver}" for driver in BOTH]


@pytest.mark.parametrize("words", LIMITS)
def test_limits(words, tmp_path):
    """Limits of the kernel degrade, name the sysctl, and heal (W2)."""
    try:
        subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=True, timeout=20)
    except (FileNotFoundError, subprocess.CalledProcessError) as why:
        pytest.skip(f"no user namespace to be had here: {why}")
    child(*words.split(), tmp_path, "unshare", "-Ur")


@pytest.mark.parametrize("words", FAULTS)
def test_faults(words, tmp_path):
    """Lost events, dead threads, scarce descriptors are survived, and said (W1, W2, W4, W8, W9)."""
    child(*words.split(), tmp_path)


def test_directory_that_may_not_be_read():
    """It heals by itself once it may be read (F19)."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        child("denied_watch", "inotify", directory)

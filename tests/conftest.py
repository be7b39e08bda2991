"""Settings and fixtures shared by all tests."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.e2e.world import World

# bench/ measures timings. Tests never assert them, so a busy machine fails no test.
settings.register_profile("indexerd", deadline=None, max_examples=50)
settings.register_profile("thorough", parent=settings.get_profile("indexerd"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "indexerd"))

# A shell starts background jobs with SIGINT ignored, and child processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A home that pi has used, without a daemon."""
    world = World(tmp_path)
    world.install_pi()
    return world


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory whose name is short enough for a socket in it."""
    path = Path(tempfile.mkdtemp(prefix="ix", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)

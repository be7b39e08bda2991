"""What every test stands on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.short_directory import short_directory

# Timings are measured in bench/, never asserted here: a busy machine is no failure.
settings.register_profile("indexerd", deadline=None, max_examples=50)
settings.register_profile("thorough", parent=settings.get_profile("indexerd"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "indexerd"))

# Started in the background, a shell has us ignore SIGINT, and our children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as made:
        yield made

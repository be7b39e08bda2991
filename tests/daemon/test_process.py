"""The daemon's own process gives memory back."""

import subprocess
import sys

import pytest

WORK = """
from indexerd.daemon.process import Footprint, resident
footprint = Footprint()
footprint.tend()
before = resident()
some = [b"x" * (100_000 + number) for number in range(600)]
other = b"y" * 100_000  # else the C library itself returns what is below
footprint.tend()
del some
footprint.tend()
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's malloc_trim")
def test_memory_comes_back_that_was_used_at_the_last_look() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000_000, done.stdout

"""What a process gives back to the system once it has settled."""

from __future__ import annotations

import subprocess
import sys

import pytest

_GROWN = """
from indexerd.daemon.process import GROWTH, Footprint, resident

class Held:
    def __init__(self):
        self.itself, self.bytes = self, bytes(3000)

kept = []
footprint = Footprint()
footprint.tend()
before = resident()
kept += [Held() for _ in range(9_000)]
kept[:-1] = []
assert resident() - before > GROWTH
footprint.tend()
print(resident() - before)
"""


def test_what_holds_itself_is_given_back_later() -> None:
    """What was read once, and is in a circle that nobody looks for, goes as well."""
    if sys.platform != "linux":
        pytest.skip("the system does not say how much a process takes")
    said = subprocess.check_output([sys.executable, "-c", _GROWN], text=True, timeout=30)
    assert int(said) < 4_000_000

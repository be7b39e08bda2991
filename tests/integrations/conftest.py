"""Fixtures for tests of the integrations."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.acted_pi import Pi


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """The path at which the daemon listens, if there is one."""
    return tmp_path / "s.sock"


@pytest.fixture
def pi(tmp_path: Path, socket: Path) -> Iterator[Pi]:
    """A pi, played by node, that has loaded the extension; it ends without complaints."""
    made = Pi(tmp_path, socket)
    try:
        yield made
        made.ends()
    finally:
        made.leave()

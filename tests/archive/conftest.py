"""Fixtures for tests of the archive."""

from pathlib import Path

import pytest

from tests.e2e.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.install_pi()
    return world

"""Fixtures for tests that run the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A fresh home in which pi was used before."""
    world = World(tmp_path)
    world.install_pi()
    return world


@pytest.fixture
def bare_world(tmp_path: Path) -> World:
    """A home without any agent."""
    return World(tmp_path)

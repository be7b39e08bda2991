"""Fixtures for tests that run the real program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import World, until


@pytest.fixture
def bare_world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Run one daemon for a module, which may have `ENV`, `furnish` and `ready`."""
    world = World(tmp_path_factory.mktemp("running"))
    world.install_pi()
    world.env |= getattr(request.module, "ENV", {})
    getattr(request.module, "furnish", lambda _: None)(world)
    with world.daemon():
        until(lambda: getattr(request.module, "ready", bool)(world), "all to be ready")
        yield world


@pytest.fixture
def home(world: World) -> Path:
    return world.root / "home"

"""One PostgreSQL server for all tests of a worker; each test makes fleets of its own there."""

from collections.abc import Callable, Iterator

import pytest

from tests.fleet.machines import Fleet
from tests.fleet.postgres import Postgres, running


@pytest.fixture(scope="session")
def pg() -> Iterator[Postgres]:
    with running() as server:
        yield server


@pytest.fixture
def fleet(pg: Postgres) -> Iterator[Callable[..., Fleet]]:
    """Start machines `host-a`, `host-b` … of one fleet, on the common server or another."""
    fleets: list[Fleet] = []

    def start(names: str = "ab", url: str = pg.url, **more: str) -> Fleet:
        fleets.append(Fleet(url, names, **more))
        return fleets[-1]

    try:
        yield start
    finally:
        for made in fleets:
            made.close()

"""One home with one daemon for all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.cli.home import Home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with Home(tmp_path_factory.mktemp("cli")).running() as home:
        yield home

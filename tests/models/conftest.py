"""The fake providers for the tests in this directory."""

from collections.abc import Iterator

import pytest

from tests.fakes.gemini_server import GeminiServer


@pytest.fixture
def elsewhere() -> Iterator[GeminiServer]:
    """A second origin that must never receive a request."""
    with GeminiServer() as server:
        yield server


@pytest.fixture
def server(elsewhere: GeminiServer) -> Iterator[GeminiServer]:
    with GeminiServer(elsewhere.url) as server:
        yield server

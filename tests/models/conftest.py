"""The fake providers that the tests of this directory call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.gemini_server import GeminiServer


@pytest.fixture
def elsewhere() -> Iterator[GeminiServer]:
    """A second origin that must never hear of anything."""
    with GeminiServer() as server:
        yield server


@pytest.fixture
def server(elsewhere: GeminiServer) -> Iterator[GeminiServer]:
    with GeminiServer(elsewhere.url) as server:
        yield server

"""One Chromium per worker, and pages whose problems fail the test that opened them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.served import Served, served
from tests.browser.tabs import FLAGS, PATIENCE, Tabs, program

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, driven by playwright; skipped where either is missing."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = program()
    if found is None:
        pytest.skip("no Chromium is installed")
    sync.expect.set_options(timeout=1000 * PATIENCE)
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        loop = _loop(None)
        yield browser
        _loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One daemon and one view for all tests of a file; each test makes its own sessions."""
    with served(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    """Open pages; fail on an error, a policy violation or a request to another host."""
    loop = _loop(chromium._impl_obj._loop)
    try:
        tabs = Tabs(chromium)
        yield tabs
        troubles = tabs.troubles()
        tabs.close()
        assert troubles == []
    finally:
        _loop(loop)


def _loop(loop: Any) -> Any:
    """Let a loop be the running one; the one before.

    Between its calls playwright's loop stands still but counts as running, and no other test of
    this worker could start one.
    """
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    return before

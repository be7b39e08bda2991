"""A session's page in a browser: its parts and its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.served import Placed, Served
from tests.browser.tabs import Tabs

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


expect = pytest.importorskip("playwright.sync_api").expect


def opened(home: Served, tabs: Tabs, session: Placed, more: str = "", **how: object) -> Page:
    page = home.open(tabs, f"/s/{session.id}{more}", **how)
    expect(page.locator("#tree .row").first).to_be_attached()
    return page


def unfold(page: Page) -> Page:
    """Open the details above the conversation."""
    page.locator("#details > summary").click()
    return page


def shown(page: Page) -> Locator:
    return page.locator("#path")


def row(page: Page, words: str) -> Locator:
    return page.locator("#tree .row", has_text=words)


def top(one: Locator) -> float:
    """The vertical position of an element on the screen, in pixels."""
    held = one.bounding_box()
    assert held is not None
    return float(held["y"])

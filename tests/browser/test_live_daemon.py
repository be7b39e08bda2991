"""The web view while its daemon stops and starts, and the link that `indexerd web` prints."""

import re

import pytest

from tests.browser.served import Served
from tests.browser.site import site
from tests.browser.tabs import Tabs
from tests.e2e.world import World

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


def test_the_printed_link_lets_one_browser_in(world: World, tabs: Tabs) -> None:
    """The token leaves the address at once; another `indexerd web` prints a new link."""
    session = world.session(turns=1)
    session.entry("session_info", name="A winter plan")
    with world.daemon(), site(world) as running:
        page = tabs.open(running.link)
        expect(page).to_have_url(f"{running.origin}/")
        expect(page.locator("#results a.title")).to_have_text("A winter plan")
        tabs.forgive("403")
        other = tabs.open(running.link)
        expect(other.locator("body")).to_contain_text("This link has been used or has expired")
        expect(other.get_by_text("run indexerd web for a new link")).to_be_visible()
        expect(other.get_by_role("link")).to_have_count(0)
        expect(other.locator("#results")).to_have_count(0)
        cookie = page.context.cookies()[0]
        other.context.add_cookies([{**cookie, "value": "of an earlier start"}])
        other.goto(f"{running.origin}/")
        expect(other.locator("body")).to_contain_text("Session expired")
        again = re.search(r"http://\S+", world.run("web", "--no-open"))
        assert again
        assert again[0].startswith(f"{running.origin}/")
        other.goto(again[0])
        expect(other.locator("#results a.title")).to_have_text("A winter plan")


def test_the_daemon_stops_and_returns(world: World, tabs: Tabs) -> None:
    """Both pages say so, still show stored data, and update without a reload."""
    tabs.forgive("503")
    session = world.session(turns=1)
    session.entry("session_info", name="A winter plan")
    with site(world) as running:
        with world.daemon() as daemon:
            home = Served(world, running, running.cookies())
            page = home.open(tabs, "/")
            told = home.open(tabs, f"/s/{session.id}")
            expect(page.locator("#live")).to_have_text("Daemon running")
            expect(told.locator("#down")).not_to_contain_text("does not answer")
            daemon.kill()
            daemon.wait()
            expect(page.locator("#live")).to_have_text("No daemon")
            expect(told.locator("#down")).to_contain_text("does not answer")
            expect(page.locator("#results a.title")).to_have_text("A winter plan")
            late = home.open(tabs, f"/s/{session.id}")
            expect(late.locator("#path")).to_contain_text("Question 1")
            expect(late.locator("#down code")).to_have_text("indexerd status")
            expect(late.locator("#rename")).to_be_hidden()
            session.turn("What happened meanwhile?", "A lot.")
        with world.daemon():
            expect(page.locator("#live")).to_have_text("Daemon running")
            expect(told.locator("#path")).to_contain_text("What happened meanwhile?")
            expect(told.locator("#down")).not_to_contain_text("does not answer")
            session.turn("And now?", "It goes on.")
            expect(told.locator("#path")).to_contain_text("It goes on.")
            session.entry("session_info", name="Spring")
            expect(page.locator("#results a.title")).to_have_text("Spring")

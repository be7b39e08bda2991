"""The home page of `indexerd web` in a browser, with a real daemon."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.browser.served import Served
from tests.browser.tabs import NARROW, WIDE, Tabs, findings
from tests.e2e.clients import ClaudeSession
from tests.e2e.world import until
from tests.sessions.tree_sessions import said

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


def place(title: str) -> str:
    """The directory of a session."""
    return title.partition(" ")[0].lower()


def titled(home: Served, title: str) -> str:
    """The id of a listed session of today with this title, given by pi."""
    session = home.world.session(cwd=f"/work/{place(title)}")
    session.turn(f"Please look into {title}.", f"I have seen to {title}.")
    session.entry("session_info", name=title)
    until(lambda: home.world.row(session.id).get("name") == title, "the session to be listed")
    return session.id


def name() -> str:
    """A title that no other session has."""
    return f"Job{uuid.uuid4().hex[:8]} of the winter"


def title_of(page: Page, words: str) -> Locator:
    return page.locator("#results a.title", has_text=words)


def test_sessions_by_day_and_project_and_new_ones_without_reload(home: Served, tabs: Tabs) -> None:
    first, second = name(), name()
    titled(home, first)
    page = home.open(tabs, "/")
    expect(title_of(page, first)).to_be_visible()
    today = page.locator("section.days", has=page.get_by_role("heading", name="Today", exact=True))
    project = today.locator("section.project", has_text=first)
    expect(project.locator("h3")).to_contain_text(place(first))
    expect(project.locator(".agent")).to_have_text("pi")
    page.evaluate("window.kept = 1")
    session_id = titled(home, second)
    expect(title_of(page, second)).to_be_visible()
    expect(title_of(page, second)).to_have_attribute("href", re.compile(f"/s/{session_id}"))
    assert page.evaluate("window.kept") == 1


@pytest.mark.parametrize("where", ["home", "session"])
def test_events_before_a_page_listens_are_not_lost(home: Served, tabs: Tabs, where: str) -> None:
    """An event between rendering and the page's stream is shown."""
    title = name()
    session = home.put()
    page = tabs.context(home.running.origin, cookies=home.cookies).new_page()
    streams: list[Route] = []
    page.route("**/events*", lambda route: streams.append(route))  # noqa: PLW0108 - playwright marks it
    with page.expect_request("**/events*"):
        page.goto(home.running.origin + ("/" if where == "home" else f"/s/{session.id}"))
    expect(page.locator("main")).to_contain_text("Where do alerts go?")
    if where == "home":
        titled(home, title)
    else:
        count = home.world.row(session.id)["messageCount"]
        session.say("i", "h", "user", title, at=9)
        until(lambda: home.world.row(session.id)["messageCount"] > count, "the message")
    (stream,) = streams
    stream.continue_()
    expect(page.locator("main")).to_contain_text(title)


def test_search_as_you_type(home: Served, tabs: Tabs) -> None:
    """Hits have their words marked; the address has the search, and Escape ends it."""
    title = name()
    titled(home, title)
    word = f"quokka{uuid.uuid4().hex[:6]}"
    home.put([said("a", None, "user", f"Where does the {word} sleep <b>at night</b>?")])
    page = home.open(tabs, "/")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type(word, delay=20)
    expect(page.locator("#results .hits li").first).to_be_visible()
    expect(page.locator("#results mark").first).to_contain_text(word)
    expect(page.locator("#results .snippet").first).to_contain_text("<b>")
    expect(page).to_have_url(re.compile(rf"\?q={word}$"))
    expect(page).to_have_title(re.compile(word))
    page.reload()
    expect(page.locator("#q")).to_have_value(word)
    expect(page.locator("#results .hits li").first).to_be_visible()
    page.locator("#q").press("Escape")
    expect(page.locator("#q")).to_have_value("")
    expect(title_of(page, title)).to_be_visible()
    expect(page).to_have_url(f"{home.running.origin}/")


def test_filters_are_in_the_address(home: Served, tabs: Tabs) -> None:
    """A tag, an agent and a project narrow the list; going back widens it again."""
    title, other = name(), name()
    home.world.call("update", ref=titled(home, title), tags=["Night Shift"])
    titled(home, other)
    page = home.open(tabs, "/")
    tag = page.get_by_role("group", name="Tag").get_by_role("link", name="night shift 1")
    for shown in (0, 1):
        tag.click()
        expect(title_of(page, other)).to_have_count(shown)
        expect(title_of(page, title)).to_be_visible()
    page.goto(f"{home.running.origin}/?agent=claude")
    expect(title_of(page, title)).to_have_count(0)
    page.locator("#filters").get_by_role("link", name=re.compile(r"^pi \d")).click()
    expect(page).to_have_url(re.compile(r"agent=pi"))
    expect(title_of(page, title)).to_be_visible()
    page.locator("h3 a", has_text=place(title)).click()
    expect(page).to_have_url(re.compile(r"project="))
    expect(title_of(page, title)).to_be_visible()
    expect(title_of(page, other)).to_have_count(0)
    page.go_back()
    expect(title_of(page, other)).to_be_visible()
    hidden = home.world.call("list")["sessions"][0]
    assert hidden["name"] == other
    home.world.call("update", ref=hidden["sessionId"], hidden=True)
    page.goto(f"{home.running.origin}/")
    expect(title_of(page, other)).to_have_count(0)
    page.locator("#filters").get_by_role("link", name="hidden").click()
    expect(title_of(page, other)).to_be_visible()


def test_who_waits_stands_on_top_and_rows_have_facts(home: Served, tabs: Tabs) -> None:
    """A session that asks comes first, until it is answered; rows say what a session was."""
    title = name()
    titled(home, title)
    asking = ClaudeSession(home.world.root / "home", cwd="/work/asks")
    asking.prompt("Which region?")
    options = [{"label": "Norway", "description": "near"}]
    asked = {"questions": [{"question": "In which country?", "options": options}]}
    call = {"type": "tool_use", "id": "t1", "name": "AskUserQuestion", "input": asked}
    asking.answer([call], stop="tool_use")
    until(lambda: home.world.row(asking.id).get("state") == "waiting", "the question")
    home.world.run("pin", asking.id)
    page = home.open(tabs, "/")
    first = page.locator("section.days").first
    expect(first.get_by_role("heading", level=2)).to_have_text("Waiting for you")
    expect(title_of(page, "Which region?")).to_have_count(1)
    facts = first.locator("li", has_text="Which region?").locator(".facts-line li")
    expect(first).to_contain_text("In which country?")
    expect(facts).to_contain_text(["now", "claude", "asks", "claude-x", "1 prompt"])
    there = home.open(tabs, f"/s/{asking.id}")
    question = there.locator("#path")
    expect(question).to_contain_text("In which country?")
    expect(question.get_by_role("listitem")).to_have_text("Norway: near")
    there.get_by_role("button", name="waiting for you").click()
    expect(question.locator(".aim")).to_contain_text("In which country?")
    title_of(page, "Which region?").click()
    expect(page.locator("#path .aim")).to_contain_text("In which country?")
    page.go_back()
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "User has answered: …"}
    asking.prompt([result], toolUseResult=asked | {"answers": {"In which country?": "Norway"}})
    expect(first.get_by_role("heading", level=2)).to_have_text("Pinned")
    expect(page.locator("li", has_text="Which region?").locator(".state")).to_have_text("running")
    expect(question.locator(".said.reply")).to_contain_text("In which country?: Norway")
    call = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "rm -r build"}}
    asking.answer([call], stop="tool_use")
    no = "The user doesn't want to proceed … the reason for the rejection:  Keep it."
    asking.prompt([result | {"tool_use_id": "t2", "content": no, "is_error": True}])
    expect(question.locator(".said.reply").last).to_contain_text("Keep it.")
    question.locator("summary", has_text="1 rejected").click()
    expect(question.locator(".call .bad")).to_have_text("rejected")
    asking.say()
    expect(page.locator("li", has_text="Which region?").locator(".state")).to_have_count(0)
    page.get_by_role("link", name="most prompts").click()
    expect(page.locator("#results h2")).to_have_text(["Pinned", "Most prompts first"])
    expect(title_of(page, "Which region?")).to_have_count(1)
    home.world.run("pin", asking.id, "--off")


def test_the_usage_page_and_the_way_back_from_an_error(home: Served, tabs: Tabs) -> None:
    """Pictures have names and tables; every page leads to the others."""
    tabs.forgive("404")
    titled(home, name())
    page = home.open(tabs, "/s/unknown")
    expect(page.get_by_role("heading", level=1)).to_contain_text("unknown")
    search = page.get_by_role("link", name="Search for unknown")
    expect(search).to_have_attribute("href", "/?q=unknown")
    page.get_by_role("link", name="Usage").click()
    expect(page).to_have_url(re.compile("/usage$"))
    expect(page.get_by_role("img", name=re.compile("Prompts by day"))).to_have_count(2)
    for width in (WIDE, NARROW):
        for dark in (False, True):
            page = home.open(tabs, "/usage?range=all", width=width, dark=dark)
            expect(page.get_by_role("table", name="Use by agent")).to_contain_text("pi")
            assert findings(page) == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="indexerd").click()
    expect(page.locator("#results")).to_be_visible()


def test_an_estimated_cost_is_marked_on_every_page(home: Served, tabs: Tabs) -> None:
    session = home.world.session()
    title = name()
    session.say("user", title)
    usage = {"input": 200_000, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    session.answer(provider="anthropic", model="claude-opus-4-5", usage=usage)
    until(lambda: home.world.row(session.id).get("costEstimatedUsd") == 1, "the estimate")
    cheap = home.world.session()
    cheap.say("user", "A cheap one")
    cheap.answer(provider="anthropic", model="claude-opus-4-5", usage=usage | {"input": 100})
    until(lambda: home.world.row(cheap.id).get("costEstimatedUsd"), "the other estimate")
    rows = home.open(tabs, "/").locator("#results .lines > li")
    expect(rows.filter(has_text=title)).to_contain_text("~$1.00")
    expect(rows.filter(has_text="A cheap one")).to_contain_text("<$0.01")
    expect(home.open(tabs, f"/s/{session.id}").locator("#brief")).to_contain_text("~$1.00")
    cheap.say("user", "And one of no price")
    cheap.answer(provider="anthropic", model="claude-of-nobody", usage=usage)
    until(lambda: home.world.call("usage")["totals"]["unpricedTokens"] > 0, "its use")
    page = home.open(tabs, "/usage")
    expect(page.get_by_role("table", name="Use by model")).to_contain_text("~$1.00")
    expect(page.get_by_role("table", name="Use by agent")).to_contain_text(re.compile(r"≥ \$\d"))
    expect(page.locator("dl.totals")).to_contain_text("without a known price200k")
    expect(page.locator("dl.totals")).to_contain_text("~$1.00")
    expect(page.locator("#cost-desc")).to_contain_text("≥ $")


def test_by_keyboard_alone_from_the_list_to_a_session_and_back(home: Served, tabs: Tabs) -> None:
    """Keys find, open and copy; a dialog lists them."""
    title = name()
    session_id = titled(home, title)
    page = home.open(tabs, "/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type(title.partition(" ")[0])
    expect(page.locator("#results .hits li").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(title_of(page, title).first).to_be_focused()
    page.keyboard.press("y")
    expect(page.get_by_role("status").filter(has_text="Resume command copied")).to_be_attached()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/s/{session_id}"))
    expect(page.locator("#title")).to_have_text(title)
    page.go_back()
    expect(page.locator("#results .hits li").first).to_be_visible()


def test_a_hit_in_a_title_leads_to_the_whole_session(home: Served, tabs: Tabs) -> None:
    """The title's words are in no entry, so as a filter they would hide all of them."""
    word = f"Wombat{uuid.uuid4().hex[:6]}"
    session = home.put([said("a", None, "user", "Where does it sleep?")], name=f"The {word}")
    until(lambda: home.world.call("search", query=word)["hits"], "its title to be found")
    page = home.open(tabs, f"/?q={word}")
    link = title_of(page, word).first
    expect(link.locator("mark")).to_have_text(word)
    expect(page.get_by_role("link", name="title", exact=True)).to_have_count(0)
    expect(link).to_have_attribute("href", f"/s/{session.id}")
    link.click()
    expect(page.locator("#title")).to_contain_text(word)
    expect(page.locator("#search")).to_have_value("")


def test_a_restarted_view_asks_for_a_new_link(home: Served, tabs: Tabs) -> None:
    """A cookie is valid for one start; with a new one the page goes on by itself."""
    tabs.forgive("403")
    title = name()
    page = home.open(tabs, "/")
    expect(page.locator("#live")).to_have_text("Daemon running")
    page.context.clear_cookies()
    page.evaluate("for (const type of ['pagehide', 'pageshow']) dispatchEvent(new Event(type))")
    expect(page.locator("#out")).to_be_visible()
    expect(page.locator("#out")).to_contain_text("indexerd web")
    expect(page.locator("#live")).to_have_text("Not connected")
    titled(home, title)
    page.context.add_cookies(home.cookies)
    expect(title_of(page, title)).to_be_visible()
    expect(page.locator("#out")).to_be_hidden()
    expect(page.locator("#live")).to_have_text("Daemon running")


def test_every_result_can_be_reached_and_narrowed(home: Served, tabs: Tabs) -> None:
    """Results have filters of their own, and what lacks a word says so."""
    word = f"numbat{uuid.uuid4().hex[:6]}"
    for number in range(34):
        prompt = said("a", None, "user", f"{word} {number}?")
        newest = home.put([prompt], cwd=f"/work/{word}-{number % 3}", name=f"{word} {number}").id
    home.world.call("update", ref=newest, tags=["Ants"])
    until(lambda: len(home.world.call("search", query=word, limit=500)["hits"]) > 60, "the words")
    page = home.open(tabs, f"/?q={word}")
    shown, heading = page.locator("#results .hits > li"), page.locator("#results h2")
    expect(heading).to_have_text(re.compile(r"^The best \d\d sessions$"))
    page.get_by_role("link", name="More results").click()
    expect(heading).to_have_text("34 sessions")
    expect(shown).to_have_count(34)
    expect(page.get_by_role("link", name="More results")).to_have_count(0)
    agents = page.get_by_role("group", name="Agent").get_by_role("link")
    expect(agents).to_have_text(["any", re.compile(r"^pi\s+34$")])  # others have none
    page.get_by_role("group", name="Project").get_by_role("link", name=f"{word}-0 12").click()
    expect(heading).to_have_text("12 sessions")
    page.get_by_role("group", name="Tag").get_by_role("link", name="ants 1").click()
    expect(heading).to_have_text("1 session")
    page = home.open(tabs, f"/?q={word} zeppelin")
    expect(shown.first).to_be_visible()
    expect(page.locator("#results .hits > li", has_not_text="1 of 2 words")).to_have_count(0)


def test_snippets_are_plain_text(home: Served, tabs: Tabs) -> None:
    """Without Markdown's signs, but with all of a path."""
    word = f"potto{uuid.uuid4().hex[:6]}"
    text = f"Go.\n\n## A\n\n### **1. {word}**\n\n| a | b |\n|---|---|\n| `c` | [d](https://e.f/) |"
    home.put([said("a", None, "user", text)], cwd=f"C:\\Users\\x{word}\\.claude")
    (message,) = until(lambda: home.world.call("search", query=word)["hits"], "the words")
    assert message["snippet"] == f"Go. A 1. «{word}» a b c d"
    snippet = home.open(tabs, f"/?q=x{word}").locator("#results .snippet", has_text="directory")
    expect(snippet).to_contain_text(f"C:\\Users\\x{word}\\.claude")


def test_a_hostile_session_is_text(home: Served, tabs: Tabs) -> None:
    """S4.24: markup in a name, directory or message is shown as text, also in a hit."""
    word = uuid.uuid4().hex[:8]
    evil = f"<img src=x onerror=owned=1><script>owned=1</script>{word}\x1b[31m\u202eabc"
    home.put([said("a", None, "user", f"{evil} asks")], cwd=f"/w/{evil[:30]}", name=evil)
    page = home.open(tabs, "/?since=all")
    page = home.open(tabs, f"/?q={word}")
    expect(page.locator("#results .hits li").first).to_be_visible()
    expect(page.locator("#results a.title").first).to_contain_text("<script>")
    assert page.evaluate("window.owned") is None
    expect(page.locator("#results img, #results script")).to_have_count(0)
    shown = page.evaluate("document.body.textContent")
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe_finds_nothing_serious(home: Served, tabs: Tabs, width: int, dark: bool) -> None:
    """List and hits have no serious problem and fit from 360 px on, light and dark."""
    title = name()
    titled(home, title)
    page = home.open(tabs, "/", width=width, dark=dark)
    expect(title_of(page, title)).to_be_visible()
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    red, _, _ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
    assert (int(red) < 60) is dark
    page.locator("#q").fill(title.partition(" ")[0])
    expect(page.locator("#results .hits li").first).to_be_visible()
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

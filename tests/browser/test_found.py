"""Search on pages finds everything, and texts and times are shown as they are."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.exported import FORKED, page_of
from tests.browser.served import Served, served
from tests.browser.tabs import NARROW, Tabs, findings
from tests.e2e.world import until
from tests.sessions.tree_sessions import entry, line, said

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser

THOUGHT = {"type": "thinking", "thinking": f"{'Well. ' * 30}The walrus is to blame."}
READ = {"type": "toolCall", "id": "1", "name": "read", "arguments": {"path": "/w/alerts.py"}}
SOUGHT = [
    said("a", None, "user", "Where do they go?"),
    said("b", "a", "assistant", content=[THOUGHT, READ], stopReason="toolUse"),
    said("c", "b", "toolResult", "def send(): ...", toolCallId="1", toolName="read", at=1),
    said("d", "c", "assistant", "To a file.", at=2),
    entry("custom_message", "e", "d", 3, customType="x", content="Nobody sees it.", display=False),
    entry("label", "f", "e", 3, targetId="e", label="unseen"),
    said("g", "f", "user", "Then on.", at=4),
    said("h", "g", "assistant", "It goes on.", at=5),
]


def exported(tabs: Tabs, file: Path, more: str = "", **how: Any) -> Page:
    page = tabs.open(file.as_uri() + more, offline=True, **how)
    expect(page.locator("#path").locator("> *").first).to_be_attached()
    return page


def test_a_search_of_the_address_finds_calls_thoughts_and_results(
    tabs: Tabs, tmp_path: Path
) -> None:
    """S1.35, S4.22: folded entries are found, but not what their author hid (S1.32)."""
    page = exported(tabs, page_of(tmp_path, SOUGHT), "?find=alerts.py")
    rows, search = page.locator("#tree .row"), page.locator("#search")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("read /w/alerts.py")
    for words, told in (("the walrus", "The walrus is to blame"), ("def send", "def send()")):
        search.fill(words)
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(told)
        expect(rows.locator("mark")).to_contain_text(words.split(), ignore_case=True)
        assert rows.evaluate("(one) => one.querySelector('mark').offsetTop < one.offsetTop + 40")
    page.locator("#filter").select_option("user-only")
    expect(rows).to_have_count(0)
    expect(page.locator("#none")).to_contain_text("Prompts only")
    page.evaluate("indexerd.session.find('alerts.py')")  # as the link of a file does
    expect(rows).to_have_count(1)
    search.fill("nobody")
    expect(rows).to_have_count(0)
    expect(page.locator("#none")).to_contain_text("nobody")
    page.locator("#clear").click()
    expect(page.locator("#none")).to_be_hidden()
    expect(search).to_be_focused()
    expect(page.locator("#tree")).not_to_contain_text("Nobody sees it.")
    expect(page.locator("#tree")).not_to_contain_text("unseen")


def test_escape_clears_the_search_wherever_the_focus_is(tabs: Tabs, tmp_path: Path) -> None:
    """A second Escape shows the leaf; below 900 px a search of the address is visible."""
    file = page_of(tmp_path, FORKED)
    page = exported(tabs, file, "?find=redis#leaf=f&target=e", width=NARROW)
    expect(page.locator("#side")).to_be_visible()
    hit = page.locator("#tree .row", has_text="Redis is too big.")
    assert findings(page) == []
    hit.click()
    expect(page.locator("#side")).to_be_hidden()
    expect(page.locator("#path .aim")).to_be_focused()  # focus is not lost when the tree is hidden
    page.keyboard.press("Escape")
    expect(page.locator("#search")).to_have_value("")
    expect(page.locator("#path")).to_contain_text("Redis is too big.")
    page.keyboard.press("Escape")
    expect(page.locator("#path")).to_contain_text("It is written.")


def test_a_branch_begins_with_a_visible_row(tabs: Tabs, tmp_path: Path) -> None:
    """Settings come first in pi's branches; the prompt's row shows their labels."""
    model = {"provider": "p", "modelId": "m-2"}
    entries = [
        said("a", None, "user", "Begin."),
        said("b", "a", "assistant", "Begun."),
        entry("model_change", "c", "b", 1, **model),
        entry("label", "c2", "c", 1, targetId="c", label="other model"),
        said("d", "c2", "user", "This way.", at=2),
        said("e", "d", "assistant", "It was no good.", at=3),
        entry("model_change", "f", "b", 4, **model),
        said("g", "f", "user", "That way.", at=5),
        said("h", "g", "assistant", "It is done.", at=6),
    ]
    page = exported(tabs, page_of(tmp_path, entries))
    branch = page.locator("#tree .row.branch", has_text="This way.")
    expect(branch).to_have_attribute("aria-expanded", "false")
    expect(branch.locator(".label")).to_have_text("other model")
    branch.locator(".words").click()
    expect(page.locator("#path .aim")).to_contain_text("This way.")
    expect(page).to_have_url(re.compile("#leaf=e&target=d$"))
    expect(page.locator("#tree [aria-selected=true]")).to_have_text("This way.")


def test_times_are_local_and_bars_are_visible(tabs: Tabs, tmp_path: Path) -> None:
    """Each time names its zone in its title; forced colours keep the bars."""
    page = exported(tabs, page_of(tmp_path, SOUGHT))
    tools = page.context.new_cdp_session(page)
    tools.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    page.reload()
    time = page.locator("#path .said.user time").first
    expect(time).to_have_text("2026-01-01 05:30")
    expect(time).to_have_attribute(
        "title", re.compile(r"^2026-01-01 05:30 Asia/(Kolkata|Calcutta)$")
    )
    expect(time).to_have_attribute("datetime", "2026-01-01T00:00:00.000Z")
    page.emulate_media(forced_colors="active")
    colour = "(one) => getComputedStyle(one).backgroundColor"
    bars = page.locator(".row.active .bar")
    assert bars.count() > 0
    assert bars.first.evaluate(colour) != page.locator("body").evaluate(colour)


def test_an_old_open_turn_is_unfinished(home: Served, tabs: Tabs) -> None:
    """An open turn is active until half an hour has passed without a new line."""
    call = {"type": "toolCall", "id": "1", "name": "bash", "arguments": {"command": "sleep 9"}}

    def put(at: datetime) -> str:
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
        first = said("a", None, "user", "Go.")
        open_turn = line(type="message", id="b", parentId="a", timestamp=stamp, message=message)
        return home.put([first, open_turn]).id

    now = datetime.now(UTC)
    page = home.open(tabs, f"/s/{put(now)}")
    expect(page.locator("#state")).to_have_text("running")
    page = home.open(tabs, f"/s/{put(now - timedelta(hours=2))}")
    expect(page.locator("#state")).to_have_text("")


def test_a_deleted_session_says_so(home: Served, tabs: Tabs) -> None:
    """The note is still there after the page has updated itself."""
    session = home.put()
    home.world.call("index", ref=session.id, force=True, wait=True)
    session.path.unlink()
    until(lambda: home.world.row(session.id).get("gone"), "the loss to be seen")
    page = home.open(tabs, f"/s/{session.id}")
    with page.expect_response("**/document*"):
        page.evaluate("indexerd.live.refresh()")
    expect(page.locator("#down")).to_contain_text("file is gone")


def test_what_is_left_of_a_session_has_the_mark_of_the_list(tmp_path: Path, tabs: Tabs) -> None:
    """Only the prompts, or a copy in the archive, whose page says how to put it back."""
    prompt = {"display": "Feed the yak.", "timestamp": 1_700_000_000_000, "project": "/w"}
    with served(tmp_path) as home:
        session, history = home.put(), home.world.root / "home/.claude/history.jsonl"
        history.parent.mkdir(parents=True, exist_ok=True)
        history.write_text(json.dumps(prompt | {"sessionId": "0ddba11"}) + "\n")
        home.world.configure("[archive]\nquiet_seconds = 0.1\n")
        home.world.run("archive", "on")
        kept = home.world.root / "data/indexerd/archive/live"
        until(lambda: [*kept.rglob(f"*{session.id}*")], "the copy")
        session.path.unlink()
        until(lambda: home.world.row(session.id).get("copyOnly"), "the loss to be seen")
        until(lambda: home.world.row("0ddba11"), "the history")
        for key, mark in {session.id: "archived", "0ddba11": "prompts only"}.items():
            page = home.open(tabs, f"/s/{key}")
            expect(page.locator("#brief")).to_contain_text(mark)
            hint = page.locator("#notes").get_by_text(f"indexerd restore {session.id}")
            expect(hint).to_have_count(int(mark == "archived"))

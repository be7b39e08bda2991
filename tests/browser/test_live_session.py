"""A session's page of `indexerd web` in a browser, with a real daemon."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.exported import FORKED, PIXEL
from tests.browser.served import Placed, Served, served
from tests.browser.tabs import NARROW, WIDE, Tabs, findings, press
from tests.e2e.clients import ClaudeSession
from tests.e2e.world import until
from tests.sessions.tree_sessions import call, entry, line, result, said

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


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


def test_the_tree_goes_by_keys_to_an_abandoned_branch_and_back(home: Served, tabs: Tabs) -> None:
    """S1.41: arrow keys open an abandoned branch, Enter shows it, Escape returns to the leaf."""
    session = home.put()
    page = opened(home, tabs, session)
    expect(shown(page)).to_contain_text("It is written.")
    press(page, "t", "Home")
    expect(page.locator("#tree .row:focus")).to_contain_text("Where do alerts go?")
    expect(page.locator("#tree")).to_have_role("tree")
    press(page, "ArrowDown", "ArrowDown", "ArrowDown")
    expect(page.locator("#tree .row:focus")).to_contain_text("Take Redis.")
    expect(page.locator("#tree .row:focus")).to_have_attribute("aria-expanded", "false")
    press(page, "ArrowRight", "ArrowRight", "Enter")
    levels = "(rows) => rows.map((row) => row.ariaLevel).join('')"
    assert page.locator("[role=treeitem]").evaluate_all(levels)[:9] == "112122122"
    expect(shown(page)).to_contain_text("Redis is too big.")
    expect(shown(page)).not_to_contain_text("It is written.")
    expect(page).to_have_url(re.compile("#leaf=f&target=e$"))
    page.reload()
    expect(shown(page)).to_contain_text("Redis is too big.")
    page.locator("#reset").click()
    expect(shown(page)).to_contain_text("It is written.")
    expect(page.locator("#reset")).to_be_hidden()
    page.go_back()
    expect(shown(page)).to_contain_text("Redis is too big.")
    press(page, "Escape")
    expect(shown(page)).to_contain_text("It is written.")


def test_new_entries_appear_without_a_reload(home: Served, tabs: Tabs) -> None:
    """The scroll position and the opened branches stay as they are."""
    entries = [said("0", None, "user", "Begin.")]
    for at in range(1, 120):
        text = f"Word {at}. {'Long talk. ' * 20}"
        entries.append(said(str(at), str(at - 1), "user" if at % 2 else "assistant", text, at=at))
    left = said("left", "40", "user", "A way that was left.", at=40)
    entries[41:41] = [left, said("left2", "left", "assistant", "It led nowhere.", at=40)]
    entries.append(said("120", "119", "user", "The last one so far.", at=123))
    session = home.put(entries)
    page = opened(home, tabs, session)
    aside = row(page, "A way that was left.")
    aside.scroll_into_view_if_needed()
    aside.locator(".twist").click()
    expect(aside).not_to_have_attribute("aria-expanded", "false")
    read = shown(page).get_by_text("Word 60. Long talk.")
    expect(page.locator("#path .empty, #tree .empty")).to_have_count(0)  # everything has loaded
    read.evaluate(
        "(one) => one.scrollIntoView({ block: 'start' })"
    )  # the row being read is at the top
    before = top(read), top(aside)
    open_rows = page.locator("#tree .row[aria-expanded=true]").count()
    page.evaluate("window.kept = document.querySelector('#path article')")
    session.say("121", "120", "assistant", "EventBus from the agent.", at=200)
    expect(shown(page)).to_contain_text("EventBus from the agent.")
    expect(page.locator("#count")).to_contain_text("124")
    assert (top(read), top(aside)) == pytest.approx(before, abs=2)
    assert page.locator("#tree .row[aria-expanded=true]").count() == open_rows
    assert page.evaluate("window.kept === document.querySelector('#path article')")
    page.locator("#below").click()
    expect(shown(page).get_by_text("EventBus from the agent.")).to_be_in_viewport()
    session.say("122", "121", "user", "And one more.", at=201)
    expect(shown(page).get_by_text("And one more.")).to_be_in_viewport()


def test_a_branch_that_is_read_stays_while_the_leaf_moves(home: Served, tabs: Tabs) -> None:
    session = home.put()
    page = opened(home, tabs, session, "#leaf=f&target=e")
    expect(shown(page)).to_contain_text("Redis is too big.")
    session.say("i", "h", "user", "And the lock?", at=9)
    expect(page.locator("#count")).to_have_text("10 entries")
    expect(shown(page)).to_contain_text("Redis is too big.")
    expect(shown(page)).not_to_contain_text("And the lock?")
    page.locator("#reset").click()
    expect(shown(page)).to_contain_text("And the lock?")


def test_rename_by_keyboard(home: Served, tabs: Tabs) -> None:
    """A user's name shows in the page and the list, and is in no session file."""
    session = home.put()
    before = session.path.read_bytes()
    page = opened(home, tabs, session)
    page.locator("#rename").press("Enter")
    press(page, "Control+a")
    page.keyboard.type("Alerts <i>of</i> the north")
    press(page, "Enter")
    expect(page.locator("#title")).to_have_text("Alerts <i>of</i> the north")
    expect(page).to_have_title("Alerts <i>of</i> the north")
    expect(page.locator("#rename")).to_be_focused()
    assert home.world.row(session.id)["name"] == "Alerts <i>of</i> the north"
    page.locator("#rename").press("Enter")
    press(page, "Control+a", "Delete", "Enter")
    expect(page.locator("#title")).not_to_have_text("Alerts <i>of</i> the north")
    assert session.path.read_bytes() == before


def test_label_by_keyboard(home: Served, tabs: Tabs) -> None:
    """S1.31: a label shows in the tree at once and is stored in the sidecar."""
    session = home.put()
    before = session.path.read_bytes()
    page = opened(home, tabs, session)
    press(page, "t", "Home", "l")
    page.keyboard.type("the <u>question")
    press(page, "Enter")
    expect(page.locator("#tree .row").first.locator(".label")).to_have_text("the <u>question")
    expect(page.locator("#tree .row:focus")).to_contain_text("Where do alerts go?")
    page.locator("#filter").select_option("labeled-only")
    expect(page.locator("#tree .row")).to_have_count(2)
    assert session.path.read_bytes() == before


def test_what_is_sent_and_indexing_again(home: Served, tabs: Tabs) -> None:
    """The exact redacted prompt is shown; after indexing, the model's name."""
    secret = "ghp_" + "a1B2" * 9
    asked = said("i", "h", "user", f"The key is {secret}, keep it.", at=9)
    session = home.put([*FORKED, asked, said("j", "i", "assistant", "Kept.", at=10)])
    page = opened(home, tabs, session)
    unfold(page).locator("#sent > summary").press("Enter")
    panel = page.locator("#sent")
    expect(panel).to_contain_text("local/extractive")
    expect(panel).to_contain_text("stays on this machine")
    expect(panel).to_contain_text("keep it.")
    expect(panel).not_to_contain_text(secret)
    told = panel.get_by_role("region", name="User text").text_content() or ""
    sent = home.world.call("as_sent", ref=session.id)["user"]
    mark = r"\[(begin|end) \w+\]"  # it differs each time
    assert re.sub(mark, "", told) == re.sub(mark, "", sent)
    expect(panel).to_contain_text("This session has not been indexed yet.")
    panel.get_by_role("button", name=re.compile("Index now")).click()
    expect(panel).to_contain_text("Summary by local/extractive")
    assert home.world.meta(session.id)
    assert findings(page) == []


def test_a_request_for_indexing_shows_its_state(home: Served, tabs: Tabs) -> None:
    """S0.21: in the middle of a turn it is queued, and the page says so."""
    slow = call("1", "bash", command="sleep 9")
    open_turn = said("j", "i", "assistant", content=[slow], stopReason="toolUse", at=10)
    session = home.put([*FORKED, said("i", "h", "user", "Go on.", at=9), open_turn])
    page = opened(home, tabs, session)
    expect(page.locator("#state")).to_have_text("")
    unfold(page).locator("#sent > summary").press("Enter")
    page.locator("#sent").get_by_role("button", name=re.compile("Index now")).click()
    expect(page.locator("#queued")).to_contain_text("when the agent's turn ends")
    assert not home.world.meta(session.id)
    session.append(result("k", "j", "1", "bash", at=11))
    session.say("l", "k", "assistant", "It is over.", stopReason="stop", at=12)
    expect(page.locator("#sent")).to_contain_text("Summary by")
    expect(page.locator("#queued")).to_have_text("")
    assert home.world.meta(session.id)


def test_family(home: Served, tabs: Tabs) -> None:
    """A fork is listed below its origin, as links with current names; a missing parent is named."""
    origin = home.put(name="The origin")
    fork = home.put(parent=str(origin.path), name="The fork")
    page = opened(home, tabs, origin)
    family = unfold(page).locator("#family")
    expect(family.get_by_role("link")).to_have_count(2)
    first, second = family.get_by_role("link").evaluate_all(
        "(all) => all.map((one) => parseFloat(getComputedStyle(one).paddingLeft))"
    )
    assert 0 < first < second
    expect(family.locator("[aria-current=page]")).to_contain_text("The origin")
    family.get_by_role("link").last.click()
    expect(page).to_have_url(re.compile(f"/s/{fork.id}$"))
    expect(page.locator("#title")).to_have_text("The fork")
    expect(unfold(page).locator("#family [aria-current=page]")).to_contain_text("The fork")
    page.locator("#kin").get_by_role("link", name="The origin").click()
    expect(page.locator("#kin")).to_have_text("children: The fork")
    home.world.call("update", ref=fork.id, title="The spring")
    expect(unfold(page).locator("#family")).to_contain_text("The spring")
    orphan = home.put(parent=str(origin.path.with_name("2026-01-01T00-00-00-000Z_gone.jsonl")))
    page = opened(home, tabs, orphan)
    expect(unfold(page).locator("#family")).to_contain_text("session is unknown: ")
    assert findings(page) == []


def test_sub_agents(home: Served, tabs: Tabs) -> None:
    """S3.18: a parent leads to all of them; the page of each begins with its task."""
    origin = ClaudeSession(home.world.root / "home")
    origin.turn("Have the lexer reviewed.")
    folder = origin.path.with_suffix("") / "subagents"
    named = {"sessionId": origin.id, "isSidechain": True}
    for at in range(5):
        helper = ClaudeSession(
            origin.path.parent, folder=folder, session_id=f"agent-{at}{origin.id}"
        )
        helper.prompt(f"Review part {at}.\n\nReport **every** fault.", **named)
        helper.line("assistant", message={"role": "assistant", "content": "It is sound."}, **named)
    until(lambda: home.world.row(helper.id) and home.world.row(origin.id), "the sessions")
    page = home.open(tabs, f"/s/{origin.id}")
    expect(page.locator("#kin")).to_contain_text("Review part")
    page.locator("#kin").get_by_role("button", name="2 more").click()
    page.locator("#family").get_by_role("link", name="Review part 4.").click()
    expect(page.locator("#title")).to_contain_text("Review part 4.")
    expect(shown(page).locator(".said").first).to_contain_text("Task from the parent session")
    expect(shown(page).locator("strong")).to_have_text("every")
    expect(page.locator("#tree .row").first).to_contain_text("Review part 4.")
    expect(page.locator("#kin")).to_contain_text("sub-agent of Have the lexer reviewed.")
    assert findings(page) == []


def test_the_plan_that_a_session_carries_out(home: Served, tabs: Tabs) -> None:
    """It is shown in full before the first answer, but nobody typed it: it is no prompt."""
    session = ClaudeSession(home.world.root / "home")
    plan = "# Retry uploads\n\n1. Wrap it."
    session.prompt(f"Implement the following plan:\n\n{plan}", planContent=plan)
    session.say("It retries.")
    until(lambda: home.world.row(session.id), "the session")
    page = home.open(tabs, f"/s/{session.id}")
    expect(shown(page).locator(".said").first).to_contain_text("Plan to carry out")
    expect(shown(page).get_by_role("listitem")).to_have_text("Wrap it.")
    expect(shown(page).locator(".fold")).to_have_count(0)
    expect(page.locator("#tree .row").first).to_contain_text("Retry uploads")
    expect(page.locator("#brief")).not_to_contain_text("prompt")


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_export_downloads(home: Served, tabs: Tabs, tmp_path: Path, form: str) -> None:
    """S1.40: each format is downloaded as a file; its page opens offline."""
    session = home.put(name="To be given away")
    page = opened(home, tabs, session)
    names = {"html": "HTML", "md": "Markdown", "json": "JSON"}
    with page.expect_download() as coming:
        unfold(page).locator(".exports").get_by_role("link", name=names[form]).click()
    assert coming.value.suggested_filename == f"to-be-given-away-{session.id[:8]}.{form}"
    file = tmp_path / f"x.{form}"
    coming.value.save_as(file)
    assert "It is written." in file.read_text()
    if form == "json":
        assert json.loads(file.read_text())["session"]["sessionId"] == session.id
    if form == "html":
        other = tabs.open(file.as_uri(), offline=True)
        expect(other.locator("#path")).to_contain_text("It is written.")
        expect(other.locator("#rename, #sent, .label-it")).to_have_count(0)


SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='owned=1'/>").decode()
CHANGE = {"path": "/w/alerts.py", "oldText": "keep()\nset()", "newText": "keep()\ntable()"}
AGAIN = CHANGE | {"path": "alerts.py"}
LONG = {"path": "/w/long.py", "content": "".join(f"line {at}\n" for at in range(40))}


EDITED = [
    said("a", None, "user", content=[
        {"type": "text", "text": "As in the picture."},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "image", "data": SVG, "mimeType": "image/svg+xml"},
    ]),
    said("b", "a", "assistant", content=[call("1", "bash", command="ls")]),
    result("c", "b", "1", "bash", "alerts.py", at=1),
    said("d", "c", "assistant", content=[call("2", "edit", **CHANGE)], at=2),
    result("e", "d", "2", "edit", "Edited.", at=3),
    said("f", "e", "assistant", content=[call("3", "write", **LONG)], at=4),
    result("g", "f", "3", "write", "No.", isError=True, at=5),
    said("h", "g", "assistant", content=[call("4", "edit", **AGAIN)], at=6),
    result("i", "h", "4", "edit", "Edited.", at=7),
    said("j", "i", "assistant", "Done with `table()`.", at=8),
]  # fmt: skip


def test_edits_pictures_and_results(home: Served, tabs: Tabs) -> None:
    """Edits are diffs, results fold under their calls, only real pictures are shown."""
    page = opened(home, tabs, home.put(EDITED))
    picture = page.locator("#path img")
    expect(picture).to_have_count(1)
    expect(picture).to_have_js_property("naturalWidth", 1)
    expect(page.locator(".said.user")).to_contain_text("1 image not shown")
    first = page.locator("#path .edit").first
    expect(first.locator("summary")).to_have_text("alerts.py+1 \N{MINUS SIGN}1")
    expect(first.locator(".diff")).to_have_text(" keep()\n-set()\n+table()\n")
    refused = page.locator("#path .edit", has_text="long.py")
    expect(refused).to_contain_text("failed")
    expect(refused.locator(".diff")).to_have_count(0)  # folded
    expect(page.locator("#path .fold")).to_have_count(1)
    page.locator("#path .fold > summary").click()
    colour = "(one) => getComputedStyle(one).backgroundColor"
    code = page.locator("#path .prose code", has_text="table()")
    assert code.evaluate(colour) != page.locator("body").evaluate(colour)
    page.locator("#path .fold .call summary", has_text="ls").click()
    expect(shown(page)).to_contain_text("alerts.py")
    expect(shown(page)).not_to_contain_text("Result of")
    page.locator("#see-files").click()
    expect(shown(page)).to_be_hidden()
    files = page.locator("#files")
    expect(files).to_contain_text("1 file edited on this path +2 \N{MINUS SIGN}2")
    several = files.locator(".file")
    expect(several.locator(".edit")).to_have_count(2)
    assert findings(page) == []
    page.locator("#see-path").click()
    page.set_viewport_size({"width": 1000, "height": 200})
    page.evaluate("scrollTo(0, 60)")
    page.locator("#see-files").evaluate("(one) => one.click()")
    expect(several.first).to_be_in_viewport()  # whatever is above it
    page.locator("#see-path").evaluate("(one) => one.click()")
    page.wait_for_function("() => scrollY === 60")  # the place that was read
    page.locator("#see-files").click()
    several.get_by_role("link").last.click()
    expect(page).to_have_url(re.compile("target=h$"))
    expect(page.locator("#path .aim .diff")).to_be_in_viewport()


def test_a_files_card_fits_a_phone(home: Served, tabs: Tabs) -> None:
    """Paths are relative, on Windows, too, and the link to the message is beside them."""
    new = {"path": rf"C:\w\{'src' * 9}.py", "content": "x = 1\n"}
    entries = [said("a", None, "assistant", content=[call("1", "write", **new)])]
    page = opened(home, tabs, home.put(entries, cwd=r"C:\w"), width=NARROW)
    page.locator("#see-files").click()
    path = page.locator("#files .path")
    expect(path).to_have_text(f"{'src' * 9}.py")
    link = page.locator("#files .entry > a")
    expect(link).to_have_text(re.compile(r"^message \d\d:\d\d$"))
    left, right = path.bounding_box(), link.bounding_box()
    assert left
    assert right
    assert left["x"] + left["width"] <= right["x"]
    assert abs(left["y"] - right["y"]) < 6


def test_the_conversation_begins_on_the_first_screen(home: Served, tabs: Tabs) -> None:
    """Also on a phone; the tree follows what is read, and an error leads back."""
    texts = [(f"Question {at}.", f"Answer {at}. {'Long talk. ' * 300}") for at in range(12)]
    model = {"provider": "p", "modelId": "m-2"}
    entries, above = [entry("model_change", "m", None, 0, **model)], "m"
    for at, (question, answer) in enumerate(texts):
        entries.append(said(f"q{at}", above, "user", question, at=2 * at))
        entries.append(said(f"a{at}", f"q{at}", "assistant", answer, at=2 * at + 1))
        above = f"a{at}"
    session = home.put(entries, name="A long title of a session that is about many things at once")
    for width in (WIDE, NARROW):
        page = opened(home, tabs, session, width=width)
        expect(shown(page).get_by_text("Question 0.")).to_be_in_viewport(ratio=1)
    page = opened(home, tabs, session)
    expect(page.locator("#tree [aria-selected=true]")).to_contain_text("Question 0.")
    shown(page).get_by_text("Question 7.").evaluate("(one) => one.scrollIntoView()")
    expect(page.locator("#tree [aria-selected=true]")).to_contain_text("Question 7.")
    tabs.forgive("404")
    page = home.open(tabs, "/s/nobody")
    page.get_by_role("link", name="indexerd").click()
    expect(page).to_have_url(f"{home.running.origin}/")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe_finds_nothing_serious(home: Served, tabs: Tabs, width: int, dark: bool) -> None:
    """S1.42: with tree, branch, panel and family; everything fits 360 px."""
    steep = said("j", "h", "assistant", "# One\n\n#### Two\n\n## Three\n\n###### Four", at=7)
    session = home.put([*FORKED, steep])
    home.put(parent=str(session.path))
    page = opened(home, tabs, session, width=width, dark=dark)
    expect(shown(page).get_by_role("heading", name="Four")).to_be_visible()
    assert findings(page) == []
    page = opened(home, tabs, session, "#leaf=f&target=c", width=width, dark=dark)
    expect(unfold(page).locator("#family a").last).to_be_visible()
    page.locator("#sent > summary").click()
    expect(page.locator("#sent")).to_contain_text("local/extractive")
    page.locator("#path .call summary").click()
    expect(shown(page)).to_contain_text("alerts.py")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    red, _, _ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
    assert (int(red) < 60) is dark
    assert findings(page) == []
    if width == NARROW:
        expect(page.locator("#side")).to_be_hidden()
        page.locator("#toggle").click()
        expect(page.locator("#side")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert findings(page) == []
        row(page, "It is written.").or_(page.locator("#tree .row").last).first.click()
        expect(page.locator("#side")).to_be_hidden()


def test_an_old_open_turn_is_unfinished(home: Served, tabs: Tabs) -> None:
    """An open turn is active until half an hour has passed without a new line."""

    def put(at: datetime) -> str:
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        slow = call("1", "bash", command="sleep 9")
        message = {"role": "assistant", "content": [slow], "stopReason": "toolUse"}
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

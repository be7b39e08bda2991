"""An exported page in a real browser: keys, branches, filters, small screens, hostile texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.exported import EVIL, FORKED, PIXEL, forked, hostile, page_of
from tests.browser.tabs import NARROW, Tabs, findings, press
from tests.sessions.tree_sessions import call, entry, result, said

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported page of a session with two branches."""
    return forked(tmp_path_factory.mktemp("forked"))


def opened(tabs: Tabs, file: Path, more: str = "", **how: Any) -> Page:
    """Open the page from disk without a network."""
    page = tabs.open(file.as_uri() + more, offline=True, **how)
    expect(page.locator("[role=treeitem]").first).to_be_attached()
    return page


def shown(page: Page) -> Locator:
    """Labels and texts of the tree's rows."""
    return page.locator("#path")


def rows(page: Page) -> list[str]:
    """The rows of the tree: label and words."""
    told: list[str] = page.locator(".row").evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('.label, .words')]"
        ".map((one) => one.textContent).join(' '))"
    )
    return told


def choose(page: Page, mode: str) -> list[str]:
    """The tree's rows under another filter."""
    page.locator("#filter").select_option(mode)
    return rows(page)


def test_a_page_opens_without_any_request(tabs: Tabs, page_file: Path) -> None:
    """S1.40: markup in names, texts, calls and digests is shown as text, and nothing fails."""
    page = opened(tabs, page_file)
    expect(page).to_have_title(f"Tidy up {EVIL}")
    expect(shown(page)).to_contain_text(f"Where do alerts go? {EVIL}")
    expect(shown(page)).to_contain_text("It is written.")
    expect(shown(page)).not_to_contain_text("Redis is too big.")
    expect(page.locator("#about")).to_contain_text("<b>.py")
    expect(page.locator("#about")).to_contain_text("p1")
    expect(page.locator("#about")).to_contain_text("by indexerd")
    page.locator("#path .fold > summary").click()
    page.locator("#path .call summary").click()
    expect(shown(page)).to_contain_text("alerts.py")
    assert page.evaluate("window.owned") is None
    expect(page.locator("img, iframe, #path script")).to_have_count(0)
    expect(page.locator(".range .digest .prose")).to_have_text(f"Alerts. {EVIL}")
    expect(page.locator(".range .digest")).to_contain_text(f"No Redis. {EVIL}")


def test_a_turn_lasts_until_its_last_answer(tabs: Tabs, tmp_path: Path) -> None:
    """Not until a setting that is written when the next turn begins."""
    entries = [
        said("a", None, "user", "Begin."),
        said("b", "a", "assistant", "Done.", at=46),
        entry("thinking_level_change", "c", "b", 3000, thinkingLevel="high"),
        said("d", "c", "user", "Go on.", at=3001),
    ]
    page = opened(tabs, page_of(tmp_path, entries))
    expect(page.locator("#path article.user header").first).to_contain_text("46 s")


def test_what_a_program_put_around_a_prompt_folds_out(tabs: Tabs, tmp_path: Path) -> None:
    """Only the user's words are read first; those of a program are there, as they were sent."""
    skill = '<skill name="x" location="/s/SKILL.md">\n# Remember **this**\n</skill>\n\nthe port'
    page = opened(tabs, page_of(tmp_path, [said("a", None, "user", skill)]))
    prompt = page.locator("#path article.user")
    expect(prompt.locator(".prose")).to_have_text("the port")
    expect(prompt).not_to_contain_text("Remember")
    prompt.locator("summary", has_text="that a program put around this prompt").click()
    expect(prompt.locator("pre")).to_contain_text("# Remember **this**")


def test_the_policy_blocks_injected_content(tabs: Tabs, page_file: Path) -> None:
    """The page's policy blocks an injected script, image or style."""
    page = opened(tabs, page_file)
    assert tabs.troubles() == []
    with page.expect_event("requestfailed") as failed:
        page.evaluate(
            """() => {
              const script = document.createElement("script");
              try { script.textContent = "window.owned = 1"; } catch {}
              document.body.append(script);
              const image = document.createElement("img");
              image.src = "http://127.0.0.1:9/x";
              document.body.append(image);
              try { document.body.innerHTML = "<b>owned</b>"; } catch { window.kept = true; }
            }"""
        )
    assert failed.value.failure == "csp"
    assert page.evaluate("[window.owned, window.kept]") == [None, True]
    told = "\n".join(tabs.troubles())
    for breach in ("policy: img-src", "policy: require-trusted-types-for", "request: GET http:"):
        assert breach in told
    tabs.forgive("")


HOSTILE = f"""# {EVIL}
[js](javascript:owned=1) [data](data:text/html,<script>owned=1</script>) [web](https://example.com/x)
![pixel](https://example.com/p.png) ![svg](data:image/svg+xml,<svg/onload=owned=1>)
<svg onload=owned=1><style>*{{display:none}}</style><iframe src="https://example.com">

```html" onclick="owned=1
{EVIL}
```
| {EVIL} | b |
|--------|---|
| `{EVIL}` | **c** |
"""


def test_hostile_markdown_is_inert(tabs: Tabs, tmp_path: Path) -> None:
    """S1.40: nothing runs, nothing is loaded, and links lead to the web only."""
    blocks = [
        {"type": "text", "text": HOSTILE},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    ]
    lines = [said("a", None, "user", content=blocks), said("b", "a", "assistant", HOSTILE)]
    page = opened(tabs, page_of(tmp_path, lines))
    expect(page.locator("#path img")).to_have_js_property("naturalWidth", 1)
    for who in ("user", "assistant"):
        message = page.locator(f".said.{who} .prose")
        expect(message).to_contain_text("<svg onload=owned=1>")
        evil = message.locator("img, svg, style, script, iframe, [onclick], [onload]")
        expect(evil).to_have_count(0)
    expect(page.locator(".said.user .prose")).to_contain_text("| **c** |")
    expect(message.locator("td strong")).to_have_text("c")
    links = message.locator("a[href]").evaluate_all(
        "(all) => all.map((one) => `${one.href} ${one.rel} ${one.target}`)"
    )
    web = ["http://127.0.0.1:9/x", *(f"https://example.com/{name}" for name in ("", "x", "p.png"))]
    assert set(links) == {f"{address} noopener noreferrer _blank" for address in web}
    message.get_by_role("button", name="Copy").click()
    expect(page.locator("#told")).not_to_be_empty()
    assert page.evaluate("window.owned") is None


def test_filters_and_search(tabs: Tabs, page_file: Path) -> None:
    """S1.35: five filters, and a search for all words in texts, labels and calls."""
    page = opened(tabs, page_file)
    assert len(choose(page, "all")) == len(FORKED)
    assert [len(choose(page, one)) for one in ("default", "no-tools")] == [7, 7]
    asks = choose(page, "user-only")
    assert [one for one in asks if "Branch" not in one and "alerts" not in one] == ["Take a file."]
    (labelled,) = choose(page, "labeled-only")
    assert "storage" in labelled
    choose(page, "default")
    press(page, "/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("redis big")
    press(page, "Enter")
    assert rows(page) == ["Answer: Redis is too big."]
    press(page, "Enter")
    expect(shown(page)).to_contain_text("Redis is too big.")
    press(page, "/")
    page.locator("#search").fill("onerror alerts go")
    press(page, "Enter")
    (hit,) = rows(page)
    assert hit.startswith("You: …")
    assert "onerror" in hit


def test_a_link_leads_to_an_entry(tabs: Tabs, page_file: Path) -> None:
    """The fragment names a leaf and an entry; an unknown one shows the session's leaf."""
    page = opened(tabs, page_file, "#leaf=f&target=c")
    expect(shown(page)).to_contain_text("Redis is too big.")
    expect(page.locator(".aim")).to_contain_text(re.compile("^bash "))
    expect(page.locator("[aria-selected=true]")).to_have_class(re.compile("work"))
    page.goto("about:blank")
    page = opened(tabs, page_file, "#target=e")
    expect(shown(page)).to_contain_text("Redis is too big.")
    page = opened(tabs, page_file, "#leaf=nowhere&target=%00")
    expect(shown(page)).to_contain_text("It is written.")


def test_a_long_and_hostile_session(tabs: Tabs, tmp_path: Path) -> None:
    """20,000 entries, a word of 5 MB, control characters and nested forks are all shown."""
    file = page_of(tmp_path, hostile(20_000))
    assert file.stat().st_size < 30_000_000
    page = opened(tabs, file, "#target=1")
    expect(shown(page)).to_contain_text("of 5,000,000 characters")
    page.locator("#filter").select_option("all")
    expect(page.locator("#count")).to_have_text("20,000 of 20,000 entries")
    press(page, "/")
    page.locator("#search").fill("onerror 19998")
    expect(page.locator(".row")).to_have_count(1)
    press(page, "Enter", "Enter")
    expect(shown(page)).to_contain_text("19998")
    assert "\x1b" not in page.evaluate("document.body.textContent")
    assert page.evaluate("window.owned") is None


THOUGHT = {"type": "thinking", "thinking": f"{'Well. ' * 30}The walrus is to blame."}
READ = call("1", "read", path="/w/alerts.py")
SOUGHT = [
    said("a", None, "user", "Where do they go?"),
    said("b", "a", "assistant", content=[THOUGHT, READ], stopReason="toolUse"),
    result("c", "b", "1", "read", "def send(): ...", at=1),
    said("d", "c", "assistant", "To a file.", at=2),
    entry("custom_message", "e", "d", 3, customType="x", content="Nobody sees it.", display=False),
    entry("label", "f", "e", 3, targetId="e", label="unseen"),
    said("g", "f", "user", "Then on.", at=4),
    said("h", "g", "assistant", "It goes on.", at=5),
]


def test_a_search_of_the_address_finds_calls_thoughts_and_results(
    tabs: Tabs, tmp_path: Path
) -> None:
    """S1.35, S4.22: folded entries are found, but not what their author hid (S1.32)."""
    page = opened(tabs, page_of(tmp_path, SOUGHT), "?find=alerts.py")
    found, search = page.locator("#tree .row"), page.locator("#search")
    expect(found).to_have_count(1)
    expect(found).to_contain_text("Call: read /w/alerts.py")
    search.fill("toolresult")
    expect(found).to_contain_text("read result: def send()")
    for words, told in (("the walrus", "The walrus is to blame"), ("def send", "def send()")):
        search.fill(words)
        expect(found).to_have_count(1)
        expect(found).to_contain_text(told)
        expect(found.locator("mark")).to_contain_text(words.split(), ignore_case=True)
        assert found.evaluate("(one) => one.querySelector('mark').offsetTop < one.offsetTop + 40")
    page.locator("#filter").select_option("user-only")
    expect(found).to_have_count(0)
    expect(page.locator("#none")).to_contain_text("Prompts only")
    page.evaluate("indexerd.session.find('alerts.py')")  # as the link of a file does
    expect(found).to_have_count(1)
    search.fill("nobody")
    expect(found).to_have_count(0)
    expect(page.locator("#none")).to_contain_text("nobody")
    page.locator("#clear").click()
    expect(page.locator("#none")).to_be_hidden()
    expect(search).to_be_focused()
    expect(page.locator("#tree")).not_to_contain_text("Nobody sees it.")
    expect(page.locator("#tree")).not_to_contain_text("unseen")


def test_escape_clears_the_search_wherever_the_focus_is(tabs: Tabs, tmp_path: Path) -> None:
    """A second Escape shows the leaf; below 900 px a search of the address is visible."""
    file = page_of(tmp_path, FORKED)
    page = opened(tabs, file, "?find=redis#leaf=f&target=e", width=NARROW)
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
    page = opened(tabs, page_of(tmp_path, entries))
    branch = page.locator("#tree .row.branch", has_text="This way.")
    expect(branch).to_have_attribute("aria-expanded", "false")
    expect(branch.locator(".label")).to_have_text("other model")
    branch.locator(".words").click()
    expect(page.locator("#path .aim")).to_contain_text("This way.")
    expect(page).to_have_url(re.compile("#leaf=e&target=d$"))
    expect(page.locator("#tree [aria-selected=true]")).to_have_text("This way.")


def test_times_are_local_and_bars_are_visible(tabs: Tabs, tmp_path: Path) -> None:
    """Each time names its zone in its title; forced colours keep the bars."""
    page = opened(tabs, page_of(tmp_path, SOUGHT))
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
    bar = page.locator(".row.active .bar").first  # the tree is drawn after the path
    assert bar.evaluate(colour) != page.locator("body").evaluate(colour)

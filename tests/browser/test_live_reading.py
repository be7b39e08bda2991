"""A session's page in a browser: what is being read stays where it is, whatever comes in."""

from __future__ import annotations

import pytest

from tests.browser.served import Served
from tests.browser.session_page import expect, opened, row, shown, top
from tests.browser.tabs import Tabs
from tests.sessions.tree_sessions import said

pytestmark = pytest.mark.browser


def long_talk(count: int = 120) -> list[bytes]:
    """A session of one path, most of whose entries are larger or smaller than a browser guesses."""
    entries = [said("0", None, "user", "Begin.")]
    for at in range(1, count):
        text = f"Word {at}. {'Long talk. ' * (at % 7 * 40)}"
        entries.append(said(str(at), str(at - 1), "user" if at % 2 else "assistant", text, at=at))
    return entries


STILL = """() => { // lists are filled in when a test says so
  window.held = [];
  window.IntersectionObserver = class {
    constructor(tell) { this.tell = tell; this.seen = new Set(); window.held.push(this); }
    observe(one) { this.seen.add(one); }
    unobserve(one) { this.seen.delete(one); }
    disconnect() { this.seen.clear(); }
  };
  window.requestIdleCallback = () => 0;
  window.comes = (box) => { // a part comes into sight, as the browser tells it
    for (const one of held) {
      if (one.seen.has(box)) one.tell([{ target: box, isIntersecting: true }], one);
    }
  };
}"""
# Fill in what stands above and, before the browser paints, change something else above: what is
# read is where it was, in that task and two frames later.
MOVES = """async () => {
  const next = () => new Promise(requestAnimationFrame);
  const frame = () => next().then(next);
  const one = document.querySelector('.aim'), top = () => one.getBoundingClientRect().top;
  await frame();
  const tops = [top()];
  for (const part of [...document.querySelectorAll('#path .chunk.empty')].reverse()) {
    if (!(part.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
    comes(part);
    tops.push(top());
    indexerd.talk.steady(() => document.querySelector("#described").append(" More. ".repeat(200)));
    tops.push(top());
    await frame();
    tops.push(top());
  }
  return tops;
}"""


def test_what_is_read_stays_while_the_page_fills_itself(home: Served, tabs: Tabs) -> None:
    """Parts above that are filled in, together with news above them, move nothing on the screen."""
    session = home.put(long_talk())
    context = tabs.context(home.running.origin, cookies=home.cookies)
    context.add_init_script(f"({STILL})()")
    page = context.new_page()
    page.goto(f"{home.running.origin}/s/{session.id}#target=75")
    read = shown(page).locator(".aim")
    expect(read).to_contain_text("Word 75.")
    page.mouse.move(700, 400)
    page.mouse.wheel(0, 1)  # the reader's own hand ends what the page does by itself
    expect(page.locator("#path .empty")).not_to_have_count(0)
    tops = page.evaluate(MOVES)
    assert len(tops) > 10
    assert tops == pytest.approx([tops[0]] * len(tops), abs=1)


DIGEST = """async () => {
  const next = () => new Promise(requestAnimationFrame);
  const { story, talk } = indexerd, one = document.querySelector(".aim");
  const top = () => one.getBoundingClientRect().top, tops = [top()];
  const content = "What was said. ".repeat(30);
  story.doc.digests = [{ from: 3, to: 58, covering_messages: [3, 58], content }];
  talk.steady(() => talk.draw(story.doc.leaf));
  tops.push(top());
  for (let at = 0; at < 5; at++) {
    await next();
    tops.push(top());
  }
  return tops;
}"""


def test_what_is_read_stays_while_a_digest_comes_in(home: Served, tabs: Tabs) -> None:
    """The conversation is cut into other parts then; what is read stands where it stood."""
    session = home.put(long_talk())
    page = opened(home, tabs, session, "#target=75")
    expect(page.locator("#path .empty, #tree .empty")).to_have_count(0)
    page.mouse.move(700, 400)
    page.mouse.wheel(0, 120)
    page.wait_for_function("scrollY > 0")
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    tops = page.evaluate(DIGEST)
    assert tops == pytest.approx([tops[0]] * len(tops), abs=1)
    expect(page.locator(".range .digest")).to_be_attached()


def test_rows_that_are_read_stay_while_the_session_grows(home: Served, tabs: Tabs) -> None:
    """The tree goes with the leaf where it was at its very end, and nowhere else."""
    session = home.put(long_talk(90))
    page = opened(home, tabs, session)
    expect(page.locator("#tree .empty")).to_have_count(0)
    page.mouse.move(900, 400)
    tree = page.locator("#tree")
    end = "(one) => one.scrollHeight - one.clientHeight - one.scrollTop"
    tree.evaluate("(one) => { one.scrollTop = one.scrollHeight - one.clientHeight - 20; }")
    expect(page.locator("#tree .now")).to_be_in_viewport()
    before = tree.evaluate("(one) => one.scrollTop")
    ask = row(page, "Word 87.")
    stood = top(ask)
    session.say("90", "89", "user", "One more ask.", at=200)
    expect(row(page, "One more ask.")).to_be_attached()
    assert tree.evaluate("(one) => one.scrollTop") == before
    assert top(ask) == stood
    tree.evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
    for at in (91, 92):
        session.say(str(at), str(at - 1), "user", f"And ask {at}.", at=200 + at)
        expect(row(page, f"And ask {at}.")).to_be_in_viewport()
        assert tree.evaluate(end) < 2
    page.locator("#tree .row:focus, #tree .row[tabindex='0']").first.focus()
    before = tree.evaluate("(one) => { one.scrollTop = one.scrollHeight; return one.scrollTop; }")
    session.say("93", "92", "user", "While a row has the keyboard.", at=300)
    expect(row(page, "While a row has the keyboard.")).to_be_attached()
    assert tree.evaluate("(one) => one.scrollTop") == before


def test_a_branch_that_is_read_stays_while_the_leaf_moves(home: Served, tabs: Tabs) -> None:
    """Who reads an abandoned branch is not taken to the new leaf."""
    session = home.put()
    page = opened(home, tabs, session, "#leaf=f&target=e")
    expect(shown(page)).to_contain_text("Redis is too big.")
    session.say("i", "h", "user", "And the lock?", at=9)
    expect(page.locator("#count")).to_contain_text("10 entries")
    expect(shown(page)).to_contain_text("Redis is too big.")
    expect(shown(page)).not_to_contain_text("And the lock?")
    page.locator("#reset").click()
    expect(shown(page)).to_contain_text("And the lock?")

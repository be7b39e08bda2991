"""The place being read on a session's page does not move when new entries arrive."""

import pytest

from tests.browser.served import Served
from tests.browser.session_page import expect, opened, row, shown, top
from tests.browser.tabs import Tabs
from tests.sessions.tree_sessions import said

pytestmark = pytest.mark.browser


def long_talk(count: int = 120) -> list[bytes]:
    """A session of one path whose entries are higher or lower than a browser estimates."""
    entries = [said("0", None, "user", "Begin.")]
    for at in range(1, count):
        text = f"Word {at}. {'Long talk. ' * (at % 7 * 40)}"
        entries.append(said(str(at), str(at - 1), "user" if at % 2 else "assistant", text, at=at))
    return entries


def test_rows_that_are_read_stay_while_the_session_grows(home: Served, tabs: Tabs) -> None:
    """The tree follows the leaf only if it was scrolled to its end."""
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
    """A reader of an abandoned branch is not moved to the new leaf."""
    session = home.put()
    page = opened(home, tabs, session, "#leaf=f&target=e")
    expect(shown(page)).to_contain_text("Redis is too big.")
    session.say("i", "h", "user", "And the lock?", at=9)
    expect(page.locator("#count")).to_have_text("10 entries")
    expect(shown(page)).to_contain_text("Redis is too big.")
    expect(shown(page)).not_to_contain_text("And the lock?")
    page.locator("#reset").click()
    expect(shown(page)).to_contain_text("And the lock?")

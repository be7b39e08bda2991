"""Access to the web view over HTTP, as a program that is no browser would try it."""

import json
from typing import Any

import httpx2
import pytest

from tests.browser.served import Placed, Served
from tests.browser.tabs import Tabs

pytestmark = pytest.mark.faults

RULES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types indexerd",
)


@pytest.fixture(scope="module")
def session(home: Served) -> Placed:
    """A session that no request may change."""
    return home.put(name="Mine")


def ask(
    home: Served, method: str, path: str, *, known: bool = True, **more: Any
) -> httpx2.Response:
    """Send one request, with the cookie if `known`."""
    headers = dict(more.pop("headers", {}))
    if known:
        headers["Cookie"] = "; ".join(
            f"{cookie['name']}={cookie['value']}" for cookie in home.cookies
        )
    url = f"{home.running.origin}{path}"
    return httpx2.request(method, url, headers=headers, follow_redirects=False, **more)


def rename(home: Served, session: Placed, **more: Any) -> int:
    """The status of a rename, by default with our own page's headers."""
    headers = {"Origin": home.running.origin, "Content-Type": "application/json"}
    headers |= more.pop("headers", {})
    body = json.dumps({"title": "Theirs"})
    path = f"/s/{session.id}/rename"
    return ask(home, "POST", path, headers=headers, content=body, **more).status_code


def test_without_a_cookie_everything_is_refused(home: Served, session: Placed) -> None:
    """Pages, data, events and changes are refused, and refusals name no session."""
    paths = ["/", f"/s/{session.id}", "/events", "/?q=mine", "/nowhere"]
    paths += [f"/s/{session.id}/{one}" for one in ("document", "sent", "family", "export")]
    for path in paths:
        answer = ask(home, "GET", path, known=False)
        assert answer.status_code == 403, path
        assert "Mine" not in answer.text
        assert "alerts" not in answer.text
    assert rename(home, session, known=False) == 403
    bad = {"Cookie": f"{home.cookies[0]['name']}=AAAA"}
    assert ask(home, "GET", "/", known=False, headers=bad).status_code == 403


CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(("headers", "status"), [
    ({"Host": "evil.example"}, 403),
    ({"Host": "evil.example:{port}"}, 403),
    ({"Host": "127.0.0.1:1"}, 403),
    ({"Host": "LOCALHOST:{port}"}, 200),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
    (CROSS, 200),
    (CROSS | {"Sec-Fetch-Dest": "iframe"}, 403),
])  # fmt: skip
def test_who_may_read(home: Served, headers: dict[str, str], status: int) -> None:
    """Only under its own host names (no DNS rebinding), from its own pages or a followed link."""
    port = home.running.origin.rsplit(":", 1)[1]
    sent = {name: value.format(port=port) for name, value in headers.items()}
    for path in ("/", "/static/view.css"):
        assert ask(home, "GET", path, headers=sent).status_code == status, path


def test_changes_are_accepted_only_from_its_own_pages(home: Served, session: Placed) -> None:
    """Another origin, none, or another content type changes nothing."""
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert rename(home, session, headers=headers) == 403, headers
    assert home.world.row(session.id)["name"] == "Mine"
    path = f"/s/{session.id}/rename"
    plain = ask(home, "POST", path, content=b'{"title": "Theirs"}')
    assert plain.status_code == 403
    assert ask(home, "GET", path).status_code in (404, 405)
    assert home.world.row(session.id)["name"] == "Mine"
    other = home.put(name="Other")
    assert rename(home, other) == 200
    assert home.world.row(other.id)["name"] == "Theirs"


def test_rendering_is_bounded_and_for_its_own_pages(home: Served, session: Placed) -> None:
    """Texts come back as HTML; images are found by entry, and are nothing but images."""
    own = {"Origin": home.running.origin, "Content-Type": "application/json"}
    body = json.dumps({"kind": "texts", "text": "**a** <b>"})

    def rendered(**more: Any) -> httpx2.Response:
        return ask(home, "POST", "/rendered", **{"headers": own, "content": body, **more})

    assert rendered().json() == {"html": "<p><strong>a</strong> &lt;b&gt;</p>\n"}
    prompt = rendered(content=json.dumps({"kind": "prompts", "text": "**a**"}))
    assert prompt.json() == {"html": '<p class="typed">**a**</p>\n'}
    assert rendered(known=False).status_code == 403
    assert rendered(headers=own | {"Origin": "http://evil.example"}).status_code == 403
    for kind, text in (("texts", 1), ("prompts", None), ("texts", "a" * 500_000), ("x", "a")):
        assert rendered(content=json.dumps({"kind": kind, "text": text})).status_code == 400
    assert rendered(content="[]").status_code == 400
    for path in ("0/0", "9999/0", "0/9999"):
        assert ask(home, "GET", f"/s/{session.id}/image/{path}").status_code == 404


def test_every_answer_carries_the_policy(home: Served, session: Placed) -> None:
    """Pages, data, assets, refusals and errors have it, and private data is not cached."""
    for path, known in (
        ("/", True),
        (f"/s/{session.id}", True),
        (f"/s/{session.id}/document", True),
        ("/static/view.css", True),
        ("/nowhere", True),
        ("/s/nobody", True),
        ("/", False),
    ):
        answer = ask(home, "GET", path, known=known)
        policy = answer.headers["content-security-policy"]
        assert all(rule in policy for rule in RULES), path
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        if not path.startswith("/static/"):
            assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_a_changed_script_does_not_run(home: Served, session: Placed, tabs: Tabs) -> None:
    """The content of an asset must match the hash in the page."""
    tabs.forgive("integrity")
    body = "document.documentElement.dataset.theirs = 1;"
    for path in ("/", f"/s/{session.id}"):
        context = tabs.context(home.running.origin, cookies=home.cookies)
        context.route(
            "**/*.js", lambda route: route.fulfill(body=body, content_type="text/javascript")
        )
        page = context.new_page()
        with page.expect_console_message(lambda told: "integrity" in told.text):
            page.goto(home.running.origin + path)
        assert not page.evaluate("document.documentElement.dataset.theirs || ''")

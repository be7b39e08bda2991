"""A search on the home page, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from indexerd.errors import UsageError
from indexerd.web import home
from tests.web.home_page import (
    Answer,
    World,
    hit,
    listing,
    raising,
    row,
)


def searching(*hits: dict[str, Any], **more: Any) -> dict[str, Answer]:
    """An answer of `search`, with what is known of the sessions that were found."""
    rows = {one["sessionId"]: row(one["sessionId"]) for one in hits if one["sessionId"] != "gone"}
    return {"search": lambda _: {"hits": list(hits), "rows": rows, **more}}


def test_a_search_shows_where_each_hit_is() -> None:
    """Field, words in their place, marked; session, project, agent, age and resume command."""
    world = World(searching(hit(), hit("s-2", field="message", entryId="e 1", role="user")))
    page = world.get("/?q=b&agent=pi")
    asked = {"agent": "pi", "query": "b", "limit": home.HITS, "rows": True}
    assert world.desk.asked[0] == ("search", asked)
    assert len(page.all("mark")) == 2
    assert "summary a b c" in page.text
    assert "2 hits" in page.text
    assert [one["href"] for one in page.all("a", class_="title")] == [
        "/s/s-1",
        "/s/s-2#target=e%201",
    ]
    assert "~/site" in page.text
    assert page.all("button", class_="copy")
    assert page.all("input", id="q")[0]["value"] == "b"


def test_one_question_brings_all_that_a_search_shows() -> None:
    """Also of a session that was forgotten meanwhile, which is shown as the search has it."""
    world = World(searching(hit(), hit(field="message", entryId="e"), hit("gone", name="Lost one")))
    page = world.get("/?q=b")
    assert [method for method, _ in world.desk.asked] == ["search"]
    assert "Lost one" in page.text
    keys = [one["data-key"] for one in page.all("li")]
    assert len(set(keys)) == 3


def test_a_search_without_hits_says_what_can_be_done() -> None:
    """The warning of a bad pattern stands there too (S1.44)."""
    world = World(searching(warnings=["re: not a pattern: missing )"]))
    page = world.get("/?q=re:(&agent=pi")
    assert "Nothing found" in page.text
    assert "re: not a pattern: missing )" in page.text
    assert page.all("a", href="/?q=re%3A%28")  # everywhere


def test_filters_that_are_typed_are_filters() -> None:
    """Each is there to be taken back; the box goes on saying what was typed."""
    listed = listing(row(cwd="/w/weatherd"), row(cwd="/w/site"))
    world = World(searching(hit()), list=listed)
    typed = "agent:pi since:today project:weather file:b"
    page = world.get("/?" + urlencode({"q": typed, "agent": "codex"}))
    asked = {"agent": "pi", "cwd": "/w/weatherd", "since": "2026-11-19T00:00:00.000Z"}
    assert world.desk.asked == [
        ("list", {"limit": home.PROJECTS_OF}),
        ("search", asked | {"query": "file:b", "limit": home.HITS, "rows": True}),
    ]
    assert page.all("input", id="q")[0]["value"] == typed
    assert [one["value"] for one in page.all("input", type="hidden")] == ["codex"]
    on = {one["data-key"] for one in page.all("a", aria_current="true")}
    assert on == {"agent:pi", "since:today"}
    there = urlsplit(page.all("a", data_key="project")[0]["href"]).query
    assert dict(parse_qsl(there)) == {"q": "file:b", "agent": "pi", "since": "today"}


def test_filters_alone_are_a_list() -> None:
    """Nothing is looked for then."""
    world = World(list=listing(row()))
    page = world.get("/?q=agent:pi")
    assert [(method, asked["agent"]) for method, asked in world.desk.asked] == [("list", "pi")]
    assert "Today" in page.text


def test_a_search_that_cannot_be_made_is_said_in_the_place_of_the_hits() -> None:
    """A page, not an error page: the search goes on being typed."""
    page = World(search=raising(UsageError("too long", hint="shorter"))).get("/?q=x")
    assert "too long" in page.text
    assert page.all("div", id="results")

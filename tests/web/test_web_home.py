"""The home page over HTTP: whole without a script, and nothing in it is what it is not."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from indexerd.errors import AccessError, IndexerdError, UsageError
from indexerd.web import home
from indexerd.web.pages import STATIC, Pages
from tests.web.home_page import (
    Page,
    World,
    hit,
    listing,
    raising,
    row,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;"


# -- the list ------------------------------------------------------------------------------------


def test_a_session_is_one_line_with_all_that_one_asks_of_it() -> None:
    """Day, project, title, agent, state, what it is about, files, age, and how to go on."""
    page = World(list=listing(row())).get()
    for said in (
        "Today", "site", "~/site", "Fix the cursor", "pi", "idle", "Compared as pairs.", "page.py",
        "3 min ago", "summary is 2 messages behind", "Daemon runs", "now UTC",
    ):  # fmt: skip
        assert said in page.text
    assert page.all("a", class_="title")[0]["href"] == "/s/s-1"
    assert page.all("button", class_="copy")[0]["data-copy"].endswith("pi --session s-1")
    assert page.all("code", class_="command")  # for who has no script
    assert page.all("code", title="/home/ada/site/page.py")
    time = page.all("time")[0]
    assert time["datetime"] == "2026-11-19T11:57:00.000Z"
    assert time["title"] == "Thu 19 November 2026, 11:57"


def test_the_first_page_asks_for_one_page_of_rows() -> None:
    """And for nothing else: an open page costs one question."""
    world = World(list=listing(row()))
    world.get()
    limits = {"archived": False, "subagents": False, "limit": home.ROWS}
    assert world.desk.asked == [("list", limits)]


def test_filters_of_the_address_reach_the_list() -> None:
    """As `list` takes them; the form of the search carries them along."""
    world = World(list=listing(row(), nextCursor="c&2"))
    page = world.get("/?agent=codex&project=/a%20b&since=7d&archived=1&subagents=1&before=c1")
    assert world.desk.asked[0][1] == {
        "agent": "codex",
        "cwd": "/a b",
        "since": "2026-11-13T00:00:00.000Z",
        "archived": True,
        "subagents": True,
        "limit": home.ROWS,
        "cursor": "c1",
    }
    hidden = {one["name"]: one["value"] for one in page.all("input", type="hidden")}
    assert hidden == {
        "agent": "codex", "project": "/a b", "since": "7d", "archived": "1", "subagents": "1",
    }  # fmt: skip
    older = dict(parse_qsl(urlsplit(page.all("a", data_key="older")[0]["href"]).query))
    assert older == hidden | {"before": "c&2"}
    assert page.all("a", data_key="newest")
    assert [one["data-key"] for one in page.all("a", aria_current="true")] == [
        "agent:codex", "since:7d", "archived", "subagents",
    ]  # fmt: skip
    assert dict(parse_qsl(urlsplit(page.all("a", data_key="project")[0]["href"]).query)) == (
        {key: value for key, value in hidden.items() if key != "project"}
    )


def test_without_any_session_it_says_what_to_do() -> None:
    """And where filters left nothing, that."""
    world = World(list=listing())
    assert "indexerd run" in world.get().text
    assert "None fits these filters" in world.get("/?agent=pi").text


def test_without_a_daemon_it_says_so_calmly() -> None:
    """What is stored is shown."""
    page = World(up=False, list=listing(row())).get()
    assert "hidden" not in page.all("p", id="down")[0]
    assert "Fix the cursor" in page.text
    assert "hidden" in World(list=listing(row())).get().all("p", id="down")[0]


def test_a_cursor_of_another_list_is_said_in_the_place_of_the_list() -> None:
    """With a way back to the first page."""
    bad = UsageError("not a cursor of this list", hint="begin with the first page")
    page = World(list=raising(bad)).get("/?agent=pi&before=zzz")
    assert "not a cursor of this list" in page.text
    assert page.all("a", href="/?agent=pi")


def test_another_error_is_not_the_page_s_to_hide() -> None:
    """It goes on to whoever makes problems into answers."""
    with pytest.raises(AccessError):
        World(list=raising(AccessError("no"))).client.get("/")


def test_warnings_of_an_answer_are_shown() -> None:
    """Bounded, as text."""
    page = World(list=listing(row(), warnings=["behind <b>", 3, "x" * 9000])).get()
    assert "behind <b>" in page.text
    assert "x" * 501 not in page.text


# -- others' texts -------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["/", "/?q=x"])
def test_texts_of_others_stay_texts(address: str) -> None:
    """Markup in any field adds no element, no attribute, and no link out of the page (S4.24)."""
    foreign = dict.fromkeys(("name", "description", "agent", "state", "firstUserMessage"), HOSTILE)
    held = row(**foreign) | {
        "sessionId": f"javascript:{HOSTILE}",
        "cwd": f"/w/{HOSTILE}",
        "filesModified": [f"/w/{HOSTILE}"],
        "resume": f"pi {HOSTILE}",
    }
    found = hit(held["sessionId"], name=HOSTILE, snippet=f"«{HOSTILE}»", field=HOSTILE)
    told = {"warnings": [HOSTILE]}
    world = World(
        list=listing(held, nextCursor=HOSTILE, **told),
        search=lambda _: {"hits": [found], **told},
        get=lambda _: {"session": held},
    )
    page = world.get(f"{address}{'&' if '?' in address else '?'}project=%22%3E%3Cscript%3E")
    assert HOSTILE in "".join(page.texts)
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    for tag, held_attributes in page.elements:
        assert not [key for key in held_attributes if key.startswith("on") or key == "style"]
        for key in ("href", "src", "action"):
            where = held_attributes.get(key)
            if where is not None:
                assert re.match(r"/(?!/)|#", where), (tag, where)


def test_what_is_no_text_can_still_be_sent() -> None:
    """Half a surrogate pair in a path does not cost the page."""
    page = World(list=listing(row(cwd="/w/\ud800", name="a\udfff"))).get()
    assert "Today" in page.text


def test_scripts_and_styles_come_from_here_alone() -> None:
    """No inline script, no inline style: the policy would drop them."""
    page = World(list=listing(row())).get()
    for one in page.all("script"):
        assert one["src"].startswith("/static/")
    assert page.all("style") == []
    assert all(one["href"].startswith("/static/") for one in page.all("link"))


def test_every_control_has_a_name_and_every_id_is_one_of_a_kind() -> None:
    """What a reader of the page by ear needs."""
    page = World(list=listing(row(), row("s-2"))).get()
    ids = [held["id"] for _, held in page.elements if held.get("id")]
    assert len(set(ids)) == len(ids)
    labelled = {one["for"] for one in page.all("label")}
    assert {one["id"] for one in page.all("input", type="search")} == labelled
    tags = [tag for tag, _ in page.elements]
    assert {"header", "main", "nav", "h1", "h2", "h3", "ul"} <= set(tags)
    assert tags.count("h1") == tags.count("main") == 1


def test_a_footer_s_link_is_led_to_its_session() -> None:
    """What web/footer_html.py links to (S4.24)."""
    answer = World().client.get("/?session=s-1&applet=text-editor&path=/w/src/a%20b.py")
    assert (answer.status_code, answer.headers["location"]) == (303, "/s/s-1?find=a%20b.py")


# -- templates and assets ------------------------------------------------------------------------


def test_assets_are_those_of_a_list() -> None:
    """No name leads out of the directory, or to a template."""
    pages = Pages()
    for name in ("../errors.py", "home.html", "page.html", "", "/etc/passwd", "home.css/"):
        assert pages.static(name) is None
    for name in STATIC:
        held = pages.static(name)
        assert held is not None
        assert held.body
        assert pages.url(name) == f"/static/{name}?v={held.digest}"


def test_another_asset_has_another_address(tmp_path: Path) -> None:
    """So that a browser may keep each for ever."""
    (tmp_path / "home.css").write_text("a{}")
    before = Pages(tmp_path).url("home.css")
    (tmp_path / "home.css").write_text("b{}")
    assert Pages(tmp_path).url("home.css") != before


def test_a_file_that_is_missing_says_so(tmp_path: Path) -> None:
    """A broken installation, not a traceback."""
    with pytest.raises(IndexerdError, match=r"home\.css"):
        Pages(tmp_path).static("home.css")
    with pytest.raises(IndexerdError, match=r"problem\.html"):
        Pages(tmp_path).render("problem.html")


def test_a_template_escapes_and_misses_nothing() -> None:
    """Foreign text in a problem's page is text; a value that nobody gave is an error."""
    pages = Pages()
    told = {"title": "Not found", "message": HOSTILE, "hint": "try `indexerd list`"}
    page = Page(pages.render("problem.html", **told))
    assert HOSTILE in "".join(page.texts)
    assert page.all("script") == page.all("img") == []
    assert page.all("a", href="/")
    assert "try indexerd list" in page.text
    assert page.all("code")
    with pytest.raises(Exception, match="undefined"):
        pages.render("problem.html", title="only this")


def test_the_script_makes_no_markup_of_texts() -> None:
    """No sink that trusted types would have to guard, and no address but this server's."""
    script = (Pages().static("home.js") or pytest.fail("no script")).body.decode()
    for sink in ("innerHTML", "outerHTML", "insertAdjacent", "DOMParser", "eval(", "document.write",
                 'setAttribute("on', "http:", "https:"):  # fmt: skip
        assert sink not in script
    assert len(script.splitlines()) <= 400

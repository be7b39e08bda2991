"""The document, and the page that holds it: nothing of a session is markup there."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.web.export import assets
from indexerd.web.export_html import (
    EXPORT_PARTS,
    LIVE,
    LIVE_PARTS,
    STYLE,
    Assets,
    html,
    island,
    live_page,
    policy,
)
from indexerd.web.export_json import Head, document, to_json
from indexerd.web.story import Story
from tests.sessions.tree_sessions import said
from tests.web.story_told import told

ANY = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(
    ["</script>", "<!--", "<script>", "-->", "]]>", "\u2028", "\ud800", "</SCRIPT\n>", "&lt;"]
)
VALUES = st.recursive(ANY, lambda one: st.lists(one, max_size=3) | st.dictionaries(ANY, one))


class Page(HTMLParser):
    """A page's elements, and what stands in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.held: list[tuple[str, dict[str, str | None], str]] = []
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.held.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            tag, attrs, before = self.held[-1]
            self.held[-1] = (tag, attrs, before + data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def made(story: Story | None = None, **row: Any) -> dict[str, Any]:
    """A document."""
    head = Head(row={"sessionId": "s1", "cwd": "/w", "name": "A name", **row})
    return document(head, story or told(said("a", None, "user", "Go.")))


def test_the_page_is_ours_and_its_data_is_data() -> None:
    """One style, one script, both of the hashes that the policy allows; and a block of data."""
    ours = assets()
    evil = "</script><script>alert(1)</script><!--<b style=x onclick=y>"
    found = made(told(said("a", None, "user", evil)), name=evil, cwd=evil)
    text = html(found, ours)
    page = Page(text)
    assert page.comments == []
    assert [(tag, attrs.get("type")) for tag, attrs, _ in page.held] == [
        ("style", None),
        ("script", "application/json"),
        ("script", None),
    ]
    assert json.loads(page.held[1][2]) == json.loads(json.dumps(found))
    (rules,) = (attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs)
    assert rules is not None
    for (_, _, body), rule in zip(page.held[::2], ("style-src", "script-src"), strict=True):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in rules
    assert rules.startswith("default-src 'none'; ")
    assert "unsafe" not in rules


def test_the_page_asks_for_nothing() -> None:
    """No address but fragments, no handler, no inline style; each id once."""
    page = Page(html(made(), assets()))
    names = [name for _, attrs in page.tags for name in attrs]
    assert not [one for one in names if one.startswith("on") or one in ("src", "style", "action")]
    links = [attrs["href"] or "" for _, attrs in page.tags if "href" in attrs]
    assert [one for one in links if not one.startswith("#")] == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    ours = assets()
    for asset in (ours.page, ours.style, ours.script):
        assert re.search(r"https?:|//[a-z]|url\(|@import", asset.replace("// ", "")) is None
        assert asset.isascii() or "…" in asset  # no emoji


LIVE_URLS = {name: f"/static/{name}?v=1&2" for name in (STYLE, LIVE)}
WHOLE = {STYLE: "sha256-c3R5bGU=", LIVE: "sha256-bGl2ZQ=="}


@settings(max_examples=50, deadline=None)
@given(ANY, ANY)
@example("</title><script>alert(1)</script>", "@DATA@ @SCRIPT@ </p><img src=x onerror=alert(1)>")
def test_the_live_page_is_the_same_frame(title: str, description: str) -> None:
    """S1.42: its name and description are text before any script runs; nothing stands inline."""
    ours = assets()
    before, between, after = live_page(
        ours, title=title, description=description, urls=LIVE_URLS, integrity=WHOLE
    )
    data = island({"session": {"name": title}})
    page = Page(before + data + between + after)
    assert [(attrs.get("type"), body) for tag, attrs, body in page.held if tag == "script"] == [
        (None, ""),
        ("application/json", data),
    ]
    scripts = [attrs for tag, attrs in page.tags if tag == "script" and "src" in attrs]
    assert [attrs["src"] for attrs in scripts] == [LIVE_URLS[LIVE]]
    assert all("defer" in attrs for attrs in scripts)
    assert [attrs.get("integrity") for attrs in scripts] == [WHOLE[LIVE]]
    styles = [attrs for tag, attrs in page.tags if attrs.get("rel") == "stylesheet"]
    assert [attrs.get("integrity") for attrs in styles] == [WHOLE[STYLE]]
    names = [name for _, attrs in page.tags for name in attrs]
    assert not [one for one in names if one.startswith("on") or one in ("style", "http-equiv")]
    assert "style" not in [tag for tag, _ in page.tags]
    assert page.comments == []
    exported = Page(html({}, ours))
    shared = [one for one in exported.tags if one[0] in ("h1", "h2", "nav", "main", "section", "p")]
    assert [
        one for one in page.tags if one[0] in ("h1", "h2", "nav", "main", "section", "p")
    ] == shared


def test_the_head_is_whole_before_the_data() -> None:
    """A reader sees the session's name and description while its entries are still being read."""
    before, between, after = live_page(
        assets(), title="Tidy <up>", description="It & that", urls=LIVE_URLS, integrity=WHOLE
    )
    assert "<title>Tidy &lt;up&gt;</title>" in before
    assert '<h1 id="title">Tidy &lt;up&gt;</h1>' in before
    assert '<p id="described">It &amp; that</p>' in before
    assert before.endswith('<script type="application/json" id="data">')
    assert between.startswith("</script>")
    assert after.endswith("</html>\n")
    assert 'rel="icon"' in before  # else a browser asks for one that is not there


def test_the_parts_of_the_view_are_one_program() -> None:
    """The file has the live page's parts, in its order, each wrapped and of readable length."""
    assert [name for name in LIVE_PARTS if name in EXPORT_PARTS] == list(EXPORT_PARTS)
    assert len(set(LIVE_PARTS)) == len(LIVE_PARTS)
    folder = files("indexerd") / "view"
    for name in EXPORT_PARTS:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.rstrip().endswith("})((window.indexerd ||= {}));")
        assert len(text.splitlines()) <= 400


def test_the_script_has_no_way_to_make_markup() -> None:
    """What would parse a text as HTML, or run it, or send it, does not occur in the view."""
    words = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "DOMParser", "eval(")
    more = (
        "new Function",
        "fetch(",
        "XMLHttp",
        "WebSocket",
        "import(",
        'setAttribute("on',
        "srcdoc",
        "EventSource",
        "sendBeacon",
    )
    assert [one for one in words + more if one in assets().script] == []
    folder = files("indexerd") / "view"
    for name in LIVE_PARTS:
        text = (folder / name).read_text(encoding="utf-8")
        assert [one for one in words if one in text] == []


@settings(max_examples=50, deadline=None)
@given(VALUES)
@example("</script><!--<script>\u2028&amp;\ud800")
def test_data_cannot_end_its_element(value: Any) -> None:
    """Whatever a session holds: read back it is the same, and to the page it is one text."""
    text = island(value)
    assert not set(text) & set("<>&\u2028\u2029\x00\x1b")
    text.encode()  # no half characters
    if re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False)) is None:
        assert json.loads(text) == value
    page = Page(f'<script type="application/json">{text}</script>')
    assert len(page.tags) == 1
    assert page.held[0][2] == text


def test_assets_that_would_end_their_element_are_refused() -> None:
    """A slip in an asset is found where it is built in, not in a reader's browser."""
    ours = assets()
    for bad in (
        Assets(ours.page, ours.style + "</style>", ours.script),
        Assets(ours.page, ours.style, "'</SCRIPT>'"),
        Assets(ours.page, ours.style, "'<!--'"),
        Assets("<title>x</title>", ours.style, ours.script),
    ):
        with pytest.raises(ValueError, match="view"):
            html({}, bad)
    assert policy(ours) != policy(Assets(ours.page, ours.style + " ", ours.script))


@settings(max_examples=50, deadline=None)
@given(ANY)
def test_the_json_is_harmless_to_look_at(text: str) -> None:
    """A terminal that is shown the document finds nothing to act on, and a program all of it."""
    shown = to_json({"one": text, "many": [text, {"a": text}], "none": []})
    assert all(char.isprintable() for char in shown.replace("\n", ""))
    held = json.loads(shown)
    assert held["many"][1]["a"] == held["one"]
    if text.isprintable():
        assert held["one"] == text


def test_the_document_holds_the_tree() -> None:
    """Every entry with its place, text and parent; the story; what is empty is left out."""
    story = told(
        said("a", None, "user", "Go."),
        said("b", "a", "assistant", "Left."),
        said("c", "a", "assistant", "Right.", model="m-1", usage={"input": 3, "output": 5}),
    )
    found = made(story, firstUserMessage="", tags=["x"])
    assert found["session"] == {"sessionId": "s1", "cwd": "/w", "name": "A name", "tags": ["x"]}
    assert (found["leafId"], found["leaf"], found["meta"]) == ("c", 2, None)
    assert [(node["id"], node["parentId"], node["above"]) for node in found["nodes"]] == [
        ("a", None, -1),
        ("b", "a", 0),
        ("c", "a", 0),
    ]
    last = found["nodes"][2]
    assert (last["text"], last["model"], last["active"]) == ("Right.", "m-1", True)
    assert last["tokens"] == {"input": 3, "output": 5}
    assert "label" not in last
    assert [beat["kind"] for beat in found["beats"]] == ["ask", "work", "work"]

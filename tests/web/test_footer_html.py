"""The footer as HTML: links that nothing in a sidecar can turn into something else (S4.24)."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.meta.context_sets import footer
from indexerd.web.footer_html import address, footer_html

HOSTILE = [
    '/w/"><script>alert(1)</script>.py',
    "/w/a' onmouseover='x.py",
    "/w/a&amp;b&lt;c.py",
    "/w/a b&path=/etc/passwd#top?x=1%2e%2e+y.py",
    "javascript:alert(1)//x.py",
    "//evil.example/x.py",
    "/w/\u05d0\u05d1\u05d2.py",
    "C:\\w\\<b>.py",
    "/w/東京 🌦.py",
]


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.links: list[dict[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "a":
            self.links.append({key: value or "" for key, value in attrs})

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page(context: dict[str, list[str]], session: str = "s-1", cwd: str = "/w") -> Page:
    """The footer of some sets."""
    return Page(footer_html(footer(context, cwd), session, cwd))


def asked(link: dict[str, str]) -> dict[str, str]:
    """The parameters of a link, each of them once."""
    pairs = parse_qsl(urlsplit(link["href"]).query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_files_and_the_applet_are_links() -> None:
    """S4.22, S4.24: by name, with the whole path in the address, and a relative one to read."""
    text = footer_html(
        footer({"files": ["src/a.py", *map(str, range(6))], "applet": ["git-diff", "k=a b"]}, "/w"),
        "s-1",
        "/w",
    )
    first = '<a href="/?session=s-1&amp;applet=text-editor&amp;path=%2Fw%2Fsrc%2Fa.py"'
    assert text.startswith(f'{first} title="src/a.py"><bdi>a.py</bdi></a> · <a href=')
    assert text.endswith(
        ' · <span>+2 more</span> · <a href="/?session=s-1&amp;applet=git-diff&amp;k=a%20b"'
        ' title="git-diff k=a b"><bdi>[git-diff]</bdi></a>'
    )


def test_nothing_is_nothing() -> None:
    """S4.23: a footer without anything to show is not there."""
    empty: list[dict[str, list[str]]] = [{}, {"files": []}, {"ports": ["80"]}]
    assert [footer_html(footer(one, "/w"), "s-1", "/w") for one in empty] == ["", "", ""]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_is_text_and_one_parameter(path: str) -> None:
    """S4.24: no tag, no attribute, no scheme, no host, no second parameter comes out of it."""
    held = footer({"files": [path]}, "/w")
    found = page({"files": [path]})
    assert found.tags == ["a", "bdi"]
    (link,) = found.links
    assert link.keys() == {"href", "title"}
    assert link["href"].startswith("/?session=s-1&applet=text-editor&path=")
    where = urlsplit(link["href"])
    assert (where.scheme, where.netloc, where.path, where.fragment) == ("", "", "/", "")
    assert asked(link)["path"] == held["files"][0]["path"]
    assert "".join(found.texts) == held["files"][0]["basename"]


def test_hostile_parameters_are_encoded() -> None:
    """S4.24: an item gives its own parameter, and neither another one nor ours once more."""
    items = ["<b>", 'q="x"&applet=evil', "a=b=c", "flag", "applet=evil", " Session=other", "é=#"]
    (link,) = page({"applet": items}).links
    told = {"q": '"x"&applet=evil', "a": "b=c", "flag": "", "é": "#"}
    assert asked(link) == {"session": "s-1", "applet": "<b>", **told}


def test_what_a_hand_has_written_is_made_visible() -> None:
    """S4.24: a directory with controls in its name, half a character, another session's id."""
    made = {"files": [{"basename": "\u202ea\ud800", "path": "/w/\x1b[2J\ud800"}], "more": 0}
    text = footer_html(made, 's"&applet=x', "/w")
    assert text.isprintable()
    (link,) = Page(text).links
    assert asked(link)["session"] == 's"&applet=x'
    assert asked(link)["path"] == "/w/\x1b[2J\ufffd"
    assert link["title"] == "\\x1b[2J\\ud800"


@given(
    st.lists(st.text(max_size=40), max_size=8),
    st.lists(st.text(max_size=40), max_size=8),
    st.text(max_size=20),
)
def test_whatever_is_stored_there_are_only_links(
    files: list[str], applet: list[str], cwd: str
) -> None:
    """S4.24: as many links as are shown, to our page, of this session."""
    held: dict[str, Any] = footer({"files": files, "applet": applet}, cwd)
    found = Page(footer_html(held, "s-1", cwd))
    assert set(found.tags) <= {"a", "bdi", "span"}
    assert len(found.links) == len(held["files"]) + ("applet" in held)
    for link in found.links:
        assert link.keys() == {"href", "title"}
        assert link["href"].isascii()
        assert link["href"].startswith("/?session=s-1&applet=")


def test_an_address_holds_what_it_is_given() -> None:
    """S4.24: encoded whole, slashes and all."""
    assert address("/view", "a/b", "x?y", [("k&", "v=")]) == (
        "/view?session=a%2Fb&applet=x%3Fy&k%26=v%3D"
    )

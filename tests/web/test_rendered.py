"""Markdown of sessions as HTML: what it may contain, whatever the text."""

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.web.markdown import TEXT_MAX, to_html, to_text, typed_to_html

TAGS = {
    *("p", "br", "hr", "h4", "h5", "h6", "strong", "em", "s", "a", "code", "pre", "span"),
    *("blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
PARTS = [
    "<script>", "</p>", "<img src=x onerror=y>", "<svg onload=x>", "<!--", "[a](", "![b](", ")",
    "javascript:x", "JaVaScRiPt&colon;x", "data:text/html,x", "https://h/x", "//h/x", '"', "'",
    "<", ">", "`", "```", "```html", "\n", "|", "|-|-|", "# ", "> ", "- ", "&lt;", "&#106;",
    "[x]: ", "\0", "\u202e", "style=x", "~~", "**",
]  # fmt: skip


class Found(HTMLParser):
    """The tags, addresses and attributes of a fragment."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=25).map("".join))
@example("[a](javascript:x) ![b](data:image/svg+xml,x) <svg/onload=x> [c](//h/x)")
@example('```"onload=x\ny\n```')
def test_no_text_leaves_the_allow_list(text: str) -> None:
    for found in (Found(to_html(text)), Found(typed_to_html(text))):
        assert found.tags <= TAGS
        assert found.attributes <= {"href", "title", "rel", "target", "class", "start"}
        assert all(link.startswith("https://h/x") for link in found.links)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*PARTS, "\\.", "__a__", "  ", "*"]), max_size=25).map("".join))
@example(r"cd C:\.venv\_x; f(*a, **b)" + "\n\n    # not a heading\n| a | b |\n|---|---|")
def test_a_prompt_is_shown_as_it_was_typed(text: str) -> None:
    """But for fences and their languages, each character but blank lines at both ends."""
    if not {"```", "~~~"} & {text[at : at + 3] for at in range(len(text))}:
        shown = "".join(re.findall(r">([^<>]*)(?=<|$)", typed_to_html(text).removesuffix("\n")))
        assert unescape(shown) == text.strip("\n").replace("\0", "") or not text.strip()


def test_fences_and_addresses_of_a_prompt() -> None:
    html = typed_to_html("Run\n\n```sh\nmake a_*b*\n```\n  and *see* https://h/x.")
    assert '<p class="typed">Run</p>\n<pre><code class="language-sh">make a_*b*' in html
    assert '<p class="typed">  and *see* <a href="https://h/x"' in html


@pytest.mark.parametrize(("text", "html"), [
    ("# Plan", "<h4>Plan</h4>"),
    ("[a](https://h/x)", '<a href="https://h/x" target="_blank" rel="noopener noreferrer">a</a>'),
    ("![a](https://h/x)", '<a href="https://h/x" target="_blank" rel="noopener noreferrer">a</a>'),
    ("(see https://h/x_1?a=b&c).", 'rel="noopener noreferrer">https://h/x_1?a=b&amp;c</a>).'),
    ("|a|\n|-:|\n|1|", '<td class="right">1</td>'),
    ("```python\ndef f(): ...\n```", '<span class="k">def</span> <span class="nf">f</span>'),
    ("```nothing\n<b>\n```", "&lt;b&gt;"),
    ("~~a~~ `b`", "<s>a</s> <code>b</code>"),
    ("> " * 5000 + "x", "&gt; x"),
    ("```make\na: b\n```", "a: b"),  # this language takes quadratic time
    ("[" * 50_000, "<pre>[["),
    ("x" * (TEXT_MAX + 1), "<pre>x"),
])  # fmt: skip
def test_markdown(text: str, html: str) -> None:
    assert html in to_html(text)
    assert to_html("<proposed_plan>\n# Plan\n</proposed_plan>") == "<h4>Plan</h4>\n"


def test_one_line_has_no_signs() -> None:
    text = "## Plan\n\n- **Do** `it` with [care](https://h/x)\n\n```\ncode\n```"
    assert to_text(text, 80) == "Plan Do it with care code"
    assert to_text(text, 6) == "Plan D"

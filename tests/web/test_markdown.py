"""A path as Markdown, which no text of a session can take apart; read by a CommonMark parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from indexerd.web.session_page import code, markdown, plain, quoted

PARSER = MarkdownIt("commonmark", {"html": True})

# What Markdown is made of, and what ends lines.
MARKS = ["```", "~~~", "`", "\n", "\r", "\t", " ", "    ", "> ", "- ", "1. ", "# ", "---", "==="]
TAGS = ["<b>", "</blockquote>", "<!--", "<script>", "![x](http://h/y)", "![a]", "\\", "[a]: b", "x"]
OTHERS = ["\x0c", "\x85", "\u2028", "\x1b[31m", "\u202e", "&lt;", "py", "|", "*"]
TEXTS = st.lists(st.sampled_from([*MARKS, *TAGS, *OTHERS]), max_size=30).map("".join)


def node(kind: str, text: str, above: int, **more: Any) -> dict[str, Any]:
    return {"id": str(above + 1), "kind": kind, "text": text, "above": above, "time": "", **more}


def document(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document, as far as Markdown is made of it."""
    session = {"name": "A name", "sessionId": "s1", "agent": "pi", "cwd": "/w"}
    found = {"session": session, "meta": None, "footer": "", "leafId": "x"}
    rest = {"exportedAt": "", "redacted": False, "warnings": [], "digests": []}
    return found | rest | {"nodes": list(nodes), "leaf": len(nodes) - 1} | more


def flat(tokens: list[Token]) -> Iterator[Token]:
    """Every token, those within others, too."""
    for one in tokens:
        yield one
        yield from flat(one.children or [])


@settings(max_examples=150, deadline=None)
@given(TEXTS)
@example("- a\n```\n<b>\n```\n<b>")
@example("```\n\t```\n<b>x</b>")
@example("\\<script>\\![x](http://h/y)")
@example("1. x\n   ```\n<script>")
def test_a_quoted_text_stays_in_its_quotation(text: str) -> None:
    """No tag, no image, and nothing after the quotation but what we put there."""
    told = "\n".join([*quoted(text), "", "## Ours"])
    tokens = PARSER.parse(told)
    assert [
        one.type for one in flat(tokens) if one.type.startswith("html") or one.type == "image"
    ] == []
    outside = [one.type for one in tokens if one.level == 0]
    assert outside == ["blockquote_open", "blockquote_close", "heading_open", "heading_close"]
    assert tokens[-2].content == "Ours"


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_words_on_our_lines_are_no_markdown(text: str) -> None:
    """A heading and an item of ours hold foreign words as words, or as one piece of code."""
    (_, inline, _) = PARSER.parse(f"## 1. {plain(text)}x")
    assert {one.type for one in inline.children or []} == {"text"} or inline.content == "1. x"
    tokens = PARSER.parse(f"- {code(text)} x")
    kinds = [one.type for one in flat(tokens) if one.type not in ("inline", "text")]
    held = ["code_inline"] if code(text) else []
    ends = ["paragraph_close", "list_item_close", "bullet_list_close"]
    assert kinds == ["bullet_list_open", "list_item_open", "paragraph_open", *held, *ends]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), TEXTS), max_size=6))
def test_a_document_has_the_headings_that_we_gave_it(told: list[tuple[str, str]]) -> None:
    """A hostile session has one heading for its name and one for each ask."""
    nodes = [node(kind, text, at - 1) for at, (kind, text) in enumerate(told)]
    text = markdown(document(*nodes))
    tokens = PARSER.parse(text)
    headings = [one for one in tokens if one.type == "heading_open" and one.level == 0]
    assert len(headings) == 1 + sum(kind == "user" for kind, _ in told)
    assert [one for one in flat(tokens) if one.type.startswith("html")] == []

"""A path as Markdown that no text of a session can break, checked by a CommonMark parser."""

from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from indexerd.web.session_page import code, markdown, plain, quoted

PARSER = MarkdownIt("commonmark", {"html": True})

# Markdown syntax and line endings.
MARKS = ["```", "~~~", "`", "\n", "\r", "\t", " ", "    ", "> ", "- ", "1. ", "# ", "---", "==="]
TAGS = ["<b>", "</blockquote>", "<!--", "<script>", "![x](http://h/y)", "![a]", "\\", "[a]: b", "x"]
OTHERS = ["\x0c", "\x85", "\u2028", "\x1b[31m", "\u202e", "&lt;", "py", "|", "*"]
TEXTS = st.lists(st.sampled_from([*MARKS, *TAGS, *OTHERS]), max_size=30).map("".join)


def node(kind: str, text: str, above: int, **more: Any) -> dict[str, Any]:
    return {"id": str(above + 1), "kind": kind, "text": text, "above": above, "time": "", **more}


def document(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Any document, as far as Markdown uses it."""
    session = {"name": "A name", "sessionId": "s1", "agent": "pi", "cwd": "/w"}
    found = {"session": session, "meta": None, "footer": "", "leafId": "x"}
    rest = {"exportedAt": "", "redacted": False, "warnings": [], "digests": []}
    return found | rest | {"nodes": list(nodes), "leaf": len(nodes) - 1} | more


def flat(tokens: list[Token]) -> Iterator[Token]:
    """Every token, including nested ones."""
    for token in tokens:
        yield token
        yield from flat(token.children or [])


@settings(max_examples=150, deadline=None)
@given(TEXTS)
@example("- a\n```\n<b>\n```\n<b>")
@example("```\n\t```\n<b>x</b>")
@example("\\<script>\\![x](http://h/y)")
@example("1. x\n   ```\n<script>")
def test_a_quoted_text_stays_in_its_quotation(text: str) -> None:
    """No tag or image, and only our own lines after the quotation."""
    told = "\n".join([*quoted(text), "", "## Ours"])
    tokens = PARSER.parse(told)
    assert [
        token.type
        for token in flat(tokens)
        if token.type.startswith("html") or token.type == "image"
    ] == []
    outside = [token.type for token in tokens if token.level == 0]
    assert outside == ["blockquote_open", "blockquote_close", "heading_open", "heading_close"]
    assert tokens[-2].content == "Ours"


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_texts_in_headings_and_items_are_no_markdown(text: str) -> None:
    """They stay plain words or one piece of code."""
    (_, inline, _) = PARSER.parse(f"## 1. {plain(text)}x")
    assert {child.type for child in inline.children or []} == {"text"} or inline.content == "1. x"
    tokens = PARSER.parse(f"- {code(text)} x")
    kinds = [token.type for token in flat(tokens) if token.type not in ("inline", "text")]
    held = ["code_inline"] if code(text) else []
    ends = ["paragraph_close", "list_item_close", "bullet_list_close"]
    assert kinds == ["bullet_list_open", "list_item_open", "paragraph_open", *held, *ends]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), TEXTS), max_size=6))
def test_a_document_has_only_its_own_headings(told: list[tuple[str, str]]) -> None:
    """One heading for the name and one for each prompt, however hostile the session."""
    nodes = [node(kind, text, at - 1) for at, (kind, text) in enumerate(told)]
    text = markdown(document(*nodes))
    tokens = PARSER.parse(text)
    headings = [token for token in tokens if token.type == "heading_open" and token.level == 0]
    assert len(headings) == 1 + sum(kind == "user" for kind, _ in told)
    assert [token for token in flat(tokens) if token.type.startswith("html")] == []

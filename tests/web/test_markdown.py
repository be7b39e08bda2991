"""A path as Markdown, which no text of a session can take apart; read by a CommonMark parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from indexerd.web.markdown import code, markdown, plain, quoted

PARSER = MarkdownIt("commonmark", {"html": True})

# What Markdown is made of, and what ends lines.
MARKS = ["```", "~~~", "`", "\n", "\r", "\t", " ", "    ", "> ", "- ", "1. ", "# ", "---", "==="]
TAGS = ["<b>", "</blockquote>", "<!--", "<script>", "![x](http://h/y)", "![a]", "\\", "[a]: b", "x"]
OTHERS = ["\x0c", "\x85", "\u2028", "\x1b[31m", "\u202e", "&lt;", "py", "|", "*"]
TEXTS = st.lists(st.sampled_from([*MARKS, *TAGS, *OTHERS]), max_size=30).map("".join)


def node(kind: str, text: str, above: int, **more: Any) -> dict[str, Any]:
    """An entry of a document."""
    return {"id": str(above + 1), "kind": kind, "text": text, "above": above, "time": "", **more}


def document(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document, as far as Markdown is made of it."""
    session = {"name": "A name", "sessionId": "s1", "agent": "pi", "cwd": "/w"}
    found = {"session": session, "meta": None, "footer": "", "leafId": "x", "kin": {}}
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


def test_one_path_from_its_root() -> None:
    """Asks are headings, answers quoted, calls a line each; nothing else is there."""
    text = markdown(
        document(
            node("user", "List *the* files.\nPlease.", -1),
            node("assistant", "Left.", 0),
            node("assistant", "Two:\n```sh\n<a> ![x](y)\n```", 0, calls=[["bash", "ls `x`"]]),
            node("custom", "psst", 2, hidden=True),
            node("tool", "No such file", 3, failed=1, tool="bash"),
            node("compaction", "Before that, nothing.", 4, label="here"),
            node("assistant", "a" * 5, 5, length=900, failed=1, model="m-1"),
        )
    )
    told = text[text.index("## 1.") :]
    assert told == (
        "## 1. List \\*the\\* files.\n\n> List *the* files.\n> Please.\n\n"
        "**Answer**\n\n> Two:\n> ```sh\n> <a> ![x](y)\n> ```\n\n- `bash` `ls 'x'`\n"
        "- failed: `bash` No such file\n\n"
        "*Label: here*\n\n**Compaction: what came before, in short**\n\n> Before that, nothing.\n\n"
        "**Answer, failed** (m-1)\n\n> aaaaa\n\n*Cut: 5 of 900 characters.*\n"
    )


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("redacted", True, "- Note: secrets were taken out"),
        ("warnings", ["1 entry is too long"], "- Note: 1 entry is too long"),
        ("kin", {"parent": "p1", "forks": ["f1", "f2"]}, "- Forks: `f1`, `f2`"),
        ("meta", {"summary": "# Goal\nAll."}, "## Summary\n\n> # Goal\n> All."),
        ("footer", "a.py <b>", "- Context: a.py \\<b\\>"),
        ("digests", [{"covering_messages": [0, 4], "content": "# No"}], "0 to 4\n\n> # No\n"),
    ],
)
def test_what_is_known_of_the_session_comes_first(field: str, value: Any, line: str) -> None:
    """Facts, notes, relatives by id and the summary stand before the first ask."""
    told = markdown(document(node("user", "Go.", -1), **{field: value}))
    assert line in told[: told.index("## 1. Go.")]
